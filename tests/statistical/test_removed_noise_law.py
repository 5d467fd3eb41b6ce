"""Noise that is left once layers in excess are removed: its variance, and what a server with colluders learns.

The scene is that of `test_split_noise`: fixed keys, and a coordinate of a long release for each run.
"""

import numpy as np
import pytest
from scipy import stats

from schemas.privacy.noise_shares import MOST_LAYERS, ShareLaw
from tests.scenes import audit
from tests.statistical.test_split_noise import (
    ACCEPT,
    MULTIPLIER,
    REJECT,
    SENSITIVITY,
    party_key,
    round_of,
    variance_p_value,
)
from transforms.numerics.privacy.noise_layers import draw_layered, layer_keys, layers_from


def kept(plan, sender, counts, n_kept, statistic=None):
    """A share from which layers above `n_kept` were taken by whoever was given the key of the first of them."""
    statistic = np.zeros(plan.size, dtype=np.int64) if statistic is None else statistic
    share, first = draw_layered(party_key(sender), b"sender", plan, statistic, counts)
    number = n_kept + 1
    if number == len(counts):
        return share
    return share - layers_from(layer_keys(first, number)[number - 1], number, plan, counts)


@pytest.mark.parametrize("n_gone", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("corrupt", [0.0, 0.2])
def test_the_variance_of_a_sum_is_as_predicted(corrupt, n_gone):
    """Of 20 senders: the prediction is accepted, and those of one layer more, one less, and of kept noise are not."""
    plan, law = round_of(3.0, 20_000), ShareLaw(threshold=2, corrupt=corrupt, dropout=0.3, layers=2)
    n_present, counts = 20 - n_gone, law.counts(20)
    n_kept = law.n_kept(n_present, 20)
    noise = sum(kept(plan, sender, counts, n_kept) for sender in range(n_present))
    planned = plan.releases[0].noise_stddev ** 2
    assert variance_p_value(noise, planned * n_present / counts[n_kept]) > ACCEPT
    for other in {*counts} - {counts[n_kept]}:
        assert variance_p_value(noise, planned * n_present / other) < REJECT
    assert stats.kstest(noise / noise.std(), "norm").pvalue > ACCEPT


def test_at_the_defaults_a_thousand_senders_have_five_percent_more_than_planned():
    law = ShareLaw(threshold=2, corrupt=0.05, dropout=0.3, layers=MOST_LAYERS)
    factors = {present: present / law.counted_of(present, 1000) for present in range(700, 1001)}
    assert factors[1000] == pytest.approx(1000 / 950)
    assert factors[700] == pytest.approx(700 / 650)
    assert max(factors.values()) < 1.15
    all_kept = ShareLaw(threshold=2, corrupt=0.05, dropout=0.3)
    assert 1000 / all_kept.counted_of(1000, 1000) == pytest.approx(1000 / 650)


# What a server knows that pools everything with colluders: the sum without layers in excess, whose keys it was given,
# less the colluders' statistics and shares.

N_LISTED, N_COLLUDING = 20, 8
LAW = ShareLaw(threshold=2, corrupt=0.4, dropout=0.2, layers=2)


def bounds(n_present, n_kept, n_colluding=N_COLLUDING):
    """Lower bounds on epsilon by two auditors; all who drop out are honest."""
    plan, counts = round_of(MULTIPLIER, audit.RUNS), LAW.counts(N_LISTED)
    views = []
    for moved in (0, SENSITIVITY):
        own = np.full(plan.size, moved, dtype=np.int64)
        first = own + kept(plan, 0, counts, n_kept, own)
        others = sum(kept(plan, sender, counts, n_kept) for sender in range(1, n_present - n_colluding))
        views.append((first + others).astype(np.float64)[None])
    return audit.both_bounds(*views)


@pytest.mark.parametrize("n_present", [20, 18, 17, 16])
def test_a_server_with_colluders_learns_no_more_than_epsilon(n_present):
    assert LAW.counts(N_LISTED) == (12, 9, 8)
    found = bounds(n_present, LAW.n_kept(n_present, N_LISTED))
    assert max(found) <= audit.EPSILON
    # The auditors are not blind: with all noise that is planned and hardly more they come close to the claim.
    assert min(found) > 0.55 * audit.EPSILON


def test_layers_that_are_removed_though_senders_are_gone_are_caught():
    """As if the server could say that nobody is gone: the base alone, of 6 senders where 12 are counted on."""
    assert min(bounds(14, 0)) > audit.EPSILON


def test_colluders_whose_base_is_not_paid_for_are_caught():
    assert min(bounds(N_LISTED, 0, n_colluding=14)) > audit.EPSILON
