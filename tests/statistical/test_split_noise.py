"""Noise that senders split: sums have the planned variance, and a server with colluders learns what was paid for.

All keys are fixed. A coordinate of a long release stands for a run, since its noise is independent of all others'.
"""

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy import stats

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.numerics.masked.noise_shares import draw_share
from tests.scenes import audit
from tests.scenes.derived_keys import derived_key

KEY = bytes(range(32))
SENSITIVITY = 1 << 16
ACCEPT, REJECT = 1e-6, 1e-9
"""A right variance is rejected once in 1e6 keys; a wrong one must have a smaller p-value: power 1 - 1e-9 or more."""


def round_of(multiplier, size, geometry=Geometry.VECTOR):
    spec = ReleaseSpec(
        name="sums",
        shape=(size,),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=SENSITIVITY,
        share=1.0,
        geometry=geometry,
    )
    return RoundPlan(path="test/round", releases=(ReleasePlan(spec=spec, noise_multiplier=multiplier),))


def party_key(sender):
    """A key of the sender alone."""
    return derived_key(KEY, "test", bytes([sender]) * 16)


def shares(plan, senders, counted, statistic=None):
    """Shares of some senders, each on its own statistic; shape (n_senders, size)."""
    statistic = np.zeros(plan.size, dtype=np.int64) if statistic is None else statistic
    return np.stack([draw_share(party_key(each), b"sender", plan, statistic, counted) for each in senders])


def variance_p_value(noise, variance):
    """Chi-square of the noise's second moment, both sides."""
    statistic = float(np.sum(noise.astype(np.float64) ** 2) / variance)
    lower = stats.chi2.cdf(statistic, noise.size)
    return 2.0 * min(lower, 1.0 - lower)


@pytest.mark.parametrize("n_gone", [0, 2, 3])
@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_the_variance_of_a_sum_is_that_of_those_present(corrupt, n_gone):
    plan, law = round_of(3.0, 20_000), ShareLaw(threshold=2, corrupt=corrupt, dropout=0.3)
    counted = law.counted(10)
    assert counted == 7 - 10 * corrupt
    noise = shares(plan, range(10 - n_gone), counted).sum(axis=0)
    planned = plan.releases[0].noise_stddev ** 2
    assert variance_p_value(noise, planned * (10 - n_gone) / counted) > ACCEPT
    assert variance_p_value(noise, planned * (11 - n_gone) / counted) < REJECT
    assert variance_p_value(noise, planned * (9 - n_gone) / counted) < REJECT
    assert stats.kstest(noise / noise.std(), "norm").pvalue > ACCEPT


def test_a_symmetric_release_has_less_noise_off_the_diagonal():
    order = 200
    plan = round_of(3.0, order * (order + 1) // 2, Geometry.SYMMETRIC)
    rows, columns = np.triu_indices(order)
    noise = shares(plan, range(5), 5).sum(axis=0)
    variance = plan.releases[0].noise_stddev ** 2
    assert variance_p_value(noise[rows != columns], variance / 2) > ACCEPT
    assert variance_p_value(noise[rows != columns], variance) < REJECT
    assert variance_p_value(noise[rows == columns], variance) > ACCEPT


# What a server knows that pools everything with colluders: the sum, less their statistics and shares.

N_LISTED, N_GONE, N_COLLUDING = 20, 4, 8
LAW = ShareLaw(threshold=2, corrupt=0.4, dropout=0.2)
MULTIPLIER = float(gaussian_mechanism.get_sigma_gaussian(audit.EPSILON, audit.DELTA))


def bounds(counted, n_colluding=N_COLLUDING):
    """Lower bounds on epsilon by two auditors, of the view of the server and colluders; honest senders drop out."""
    plan = round_of(MULTIPLIER, audit.RUNS)
    views = []
    for moved in (0, SENSITIVITY):
        # The canary is the statistic of the first sender, which sends in both cases.
        own = np.full(plan.size, moved, dtype=np.int64)
        first = own + shares(plan, [0], counted, own)[0]
        others = shares(plan, range(1, N_LISTED - N_GONE - n_colluding), counted).sum(axis=0)
        views.append((first + others).astype(np.float64)[None])
    return audit.both_bounds(*views)


def test_a_server_with_colluders_learns_no_more_than_epsilon():
    assert LAW.counted(N_LISTED) == N_LISTED - N_GONE - N_COLLUDING == 8
    assert max(bounds(LAW.counted(N_LISTED))) <= audit.EPSILON


def test_the_audit_is_not_blind():
    """With all that is planned and no slack the bound comes close to the claim."""
    assert min(bounds(LAW.counted(N_LISTED))) > 0.6 * audit.EPSILON


def test_colluders_whose_shares_are_not_paid_for_are_caught():
    unpaid = ShareLaw(threshold=2, corrupt=0.0, dropout=0.2).counted(N_LISTED)
    assert unpaid == N_LISTED - N_GONE
    assert min(bounds(unpaid)) > audit.EPSILON


def test_dropouts_that_are_not_paid_for_are_caught():
    unpaid = ShareLaw(threshold=2, corrupt=0.0, dropout=0.0).counted(N_LISTED)
    assert min(bounds(unpaid, n_colluding=6)) > audit.EPSILON


def test_one_share_for_two_statistics_would_be_caught():
    """Bound to its statistic, a share says nothing of it; without that, the difference of two sums is exact."""
    plan = round_of(3.0, 64)
    zero, one = np.zeros(64, dtype=np.int64), np.eye(1, 64, dtype=np.int64)[0]
    first, second = (draw_share(KEY, b"sender", plan, statistic, 4) for statistic in (zero, one))
    assert np.count_nonzero(first - second) > 60
