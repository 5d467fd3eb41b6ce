"""Numbers that proofs, formats and the curve of an account rest on: a change of one changes a line here, too.

Sizes of blocks and thresholds between two ways to the same integers are not among them: they change no result.
"""

import importlib

import pytest

NUMERICS = "transforms.numerics"
CONSTANTS = {
    f"{NUMERICS}.privacy.keystream": {
        "KEY_BYTES": 32,
        "MAX_BOUND": 2**62,
        "BATCH_TRIALS": 65_536,
        "_NONCE": b"\0" * 16,
        "_STREAM_PERSON": b"dapple-stream",
        "_SUBSTREAM_PERSON": b"dapple-substream",
    },
    # The error analysis of `bernoulli_exp` proves both margins; the rates order the draws.
    f"{NUMERICS}.privacy.noise": {
        "MIN_RELEASE_SCALE": 1024.0,
        "SCALE_LIMIT": 2.0**44,
        "_LAPLACE_RATE": 0.63,
        "_GAUSSIAN_RATE": 0.75,
        "_RELATIVE_MARGIN": 2.0**-40,
        "_ABSOLUTE_MARGIN": 2.0**-62,
        "_WORD_BITS": 64,
    },
    f"{NUMERICS}.privacy.noise_shares": {"LEAST_STDDEV": 4.0, "MOST_SHARES": 2**31},
    f"{NUMERICS}.privacy.normal": {"_SPARE_STDDEVS": 6.0},
    f"{NUMERICS}.privacy.gaussian_mechanism": {"_FRACTION_FROM": 3.0, "_DEPTH": 80},
    "transforms.privacy.accounting": {
        "_FLOAT_MARGIN": 1e-14,
        "_AIM": 0.9994,
        "_LOG_LEVEL_TOLERANCE": 2e-4,
        "_CACHED_PART": 0.99,
        "_SMALLEST_LEVEL": 1e-12,
        "_MAX_STEPS": 40,
        "_MAX_COMPOSITIONS": 90,
        "_MAX_REFINEMENT": 10,
        "_MIDDLE_SCALE": 2.0**27,
    },
    "transforms.privacy.discretization": {"_TAIL_PART": 5e-4, "_MIN_VARIANCE": 0.25},
    "transforms.privacy.known_epsilons": {
        "_LARGEST_EPSILON": 100.0,
        "_LEAST_MULTIPLIER": 1e-3,
        "_ABSOLUTE_MARGIN": 1e-14,
        "_RELATIVE_MARGIN": 1e-9,
        "_TIGHT": 0.998,
        "_MOST": 256,
    },
    # Charges in ledgers were settled by these.
    "transforms.privacy.ledger_filter": {
        "MOST_RUNS": 10_000,
        "_TAIL_PART": 4e-4,
        "_SEARCH_STEPS": 30,
        "_LEAST_EPSILON": 1e-6,
        "_RATIO_PART": 2e-5,
    },
    "transforms.privacy.plan_limits": {"MIN_DELTA": 1e-12},
    "schemas.privacy.charge": {
        "_KNOWN_CORRECTIONS": 1,
        "_RELATIVE_UNITS": 2**26,
        "_SAFE_FEATURES": 1024,
        "_SAFE_FEATURES_OF_MEAN": 4096,
    },
    "schemas.privacy.noise_shares": {"MOST_CORRUPT": 0.5, "_MANY": 10_000},
    f"{NUMERICS}.statistics.lattice": {
        "SUM_BITS": 20,
        "OUTER_BITS": 16,
        "SUM_UNITS": 2**20,
        "OUTER_UNITS": 2**16,
        "EXACT_LIMIT": 2.0**53,
        "MAX_ROWS": 2**31 - 1,
    },
    f"{NUMERICS}.statistics.assignment": {"PROJECTION_BITS": 24, "ROW_NORM": 2.0**20, "PROJECTED_NORM": 2.0**21},
    f"{NUMERICS}.statistics.relative_sums": {
        "RELATIVE_BITS": 26,
        "RELATIVE_UNITS": 2**26,
        "MAX_CENTER_NORM": 2.0**24,
    },
    # Squared norms of the scatters of a chunk are exact for this many rows.
    f"{NUMERICS}.statistics.client_chunks": {"CLIENT_BLOCK_ROWS": 2048},
    f"{NUMERICS}.statistics.directions": {"DIRECTION_UNITS": 2**20},
    f"{NUMERICS}.statistics.center_quality": {"SENSITIVITY": 2**20},
    f"{NUMERICS}.statistics.norms": {"NORM_BINS": 162, "_SIGNIFICANT_STDDEVS": 2.0},
    f"{NUMERICS}.trusted_zone.exact_sum": {"LIMB_BITS": 24, "_LOWEST_PLACE": -40},
    f"{NUMERICS}.statistics.nearest": {"CENTER_BITS": 22, "ROW_BITS": 26, "_FINEST_EXPONENT": -900},
    **{
        f"{NUMERICS}.statistics.{unit}": {
            "OUTER_SENSITIVITY": 2**32,
            "SUM_SENSITIVITY": 2**20,
            "COUNT_SENSITIVITY": 2**20,
            "RELATIVE_SENSITIVITY": 2**26,
            "DIRECTION_SENSITIVITY": 2**20,
            "QUALITY_SENSITIVITY": 2**20,
        }
        for unit in ("rows", "clients")
    },
    "transforms.privacy_flow.extensions": {"NEIGHBOR_TESTS": 200},
}


@pytest.mark.parametrize("module", CONSTANTS)
def test_numbers_are_those_of_the_proofs(module):
    found = importlib.import_module(module)
    assert {name: getattr(found, name) for name in CONSTANTS[module]} == CONSTANTS[module]
