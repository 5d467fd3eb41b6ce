"""Numbers that proofs, formats and the curve of an account rest on: a change of one changes a line here, too.

Sizes of blocks and thresholds between two ways to the same integers are not among them: they change no result.
"""

import importlib

import pytest

NUMERICS = "dapple_dp.transforms.numerics"
CONSTANTS = {
    "dapple_dp.transforms.core.keystream": {
        "KEY_BYTES": 32,
        "MAX_BOUND": 2**62,
        "BATCH_TRIALS": 65_536,
        "_NONCE": b"\0" * 16,
        "_STREAM_PERSON": b"dapple-stream",
        "_SUBSTREAM_PERSON": b"dapple-substream",
    },
    # The error analysis of `bernoulli_exp` proves both margins; the rates order the draws.
    "dapple_dp.transforms.core.noise": {
        "MIN_RELEASE_SCALE": 1024.0,
        "SCALE_LIMIT": 2.0**44,
        "_LAPLACE_RATE": 0.63,
        "_GAUSSIAN_RATE": 0.75,
        "_RELATIVE_MARGIN": 2.0**-40,
        "_ABSOLUTE_MARGIN": 2.0**-62,
        "_WORD_BITS": 64,
    },
    f"{NUMERICS}.masked.noise_shares": {"LEAST_STDDEV": 4.0, "MOST_SHARES": 2**31},
    f"{NUMERICS}.clustered_fl.normal": {"_SPARE_STDDEVS": 6.0},
    "dapple_dp.transforms.core.accounting": {
        "MIN_DELTA": 1e-12,
        "_FLOAT_MARGIN": 1e-14,
        "_AIM": 0.9994,
        "_LOG_LEVEL_TOLERANCE": 2e-4,
        "_CACHED_PART": 0.99,
        "_SMALLEST_LEVEL": 1e-12,
        "_MAX_STEPS": 40,
        "_MAX_COMPOSITIONS": 90,
        "_MAX_REFINEMENT": 10,
        "_MIDDLE_SCALE": 2.0**27,
        "_LARGEST_EPSILON": 100.0,
        "_LEAST_MULTIPLIER": 1e-3,
        "_ABSOLUTE_MARGIN": 1e-14,
        "_RELATIVE_MARGIN": 1e-9,
        "_TIGHT": 0.998,
        "_MOST_COMPOSED": 256,
    },
    "dapple_dp.transforms.core.discretization": {
        "_FRACTION_FROM": 3.0,
        "_DEPTH": 80,
        "_TAIL_PART": 5e-4,
        "_MIN_VARIANCE": 0.25,
    },
    # Charges in ledgers were settled by these.
    "dapple_dp.transforms.privacy.ledger_filter": {
        "MOST_RUNS": 10_000,
        "_TAIL_PART": 4e-4,
        "_SEARCH_STEPS": 30,
        "_LEAST_EPSILON": 1e-6,
        "_RATIO_PART": 2e-5,
    },
    "dapple_dp.schemas.privacy.charge": {
        "_KNOWN_CORRECTIONS": 2,
        "_RELATIVE_UNITS": 2**26,
        "_SAFE_FEATURES": 1024,
        "_SAFE_FEATURES_OF_MEAN": 4096,
    },
    "dapple_dp.schemas.privacy.noise_shares": {"MOST_CORRUPT": 0.5, "_MANY": 10_000},
    "dapple_dp.transforms.core.statistics.lattice": {
        "SUM_BITS": 20,
        "OUTER_BITS": 16,
        "SUM_UNITS": 2**20,
        "OUTER_UNITS": 2**16,
        "EXACT_LIMIT": 2.0**53,
        "MAX_ROWS": 2**31 - 1,
    },
    "dapple_dp.transforms.core.statistics.assignment": {
        "PROJECTION_BITS": 24,
        "ROW_NORM": 2.0**20,
        "PROJECTED_NORM": 2.0**21,
    },
    "dapple_dp.transforms.core.statistics.differences": {
        "DIRECTION_UNITS": 2**20,
        "RELATIVE_BITS": 26,
        "RELATIVE_UNITS": 2**26,
        "MAX_CENTER_NORM": 2.0**24,
    },
    # Squared norms of the scatters of a chunk are exact for this many rows.
    "dapple_dp.transforms.core.statistics.client_chunks": {"CLIENT_BLOCK_ROWS": 2048},
    "dapple_dp.transforms.core.statistics.distances": {
        "SENSITIVITY": 2**20,
        "NORM_BINS": 162,
    },
    f"{NUMERICS}.kmeans.norms": {"_SIGNIFICANT_STDDEVS": 2.0},
    f"{NUMERICS}.trusted_zone.exact_sum": {"LIMB_BITS": 24, "_LOWEST_PLACE": -40},
    f"{NUMERICS}.statistics.nearest": {"CENTER_BITS": 22, "ROW_BITS": 26, "_FINEST_EXPONENT": -900},
    **{
        f"dapple_dp.transforms.core.statistics.{unit}": {
            "OUTER_SENSITIVITY": 2**32,
            "SUM_SENSITIVITY": 2**20,
            "COUNT_SENSITIVITY": 2**20,
            "RELATIVE_SENSITIVITY": 2**26,
            "DIRECTION_SENSITIVITY": 2**20,
            "QUALITY_SENSITIVITY": 2**20,
        }
        for unit in ("rows", "clients")
    },
    "dapple_dp.transforms.privacy.extensions": {"NEIGHBOR_TESTS": 200},
}


@pytest.mark.parametrize("module", CONSTANTS)
def test_numbers_are_those_of_the_proofs(module):
    found = importlib.import_module(module)
    assert {name: getattr(found, name) for name in CONSTANTS[module]} == CONSTANTS[module]
