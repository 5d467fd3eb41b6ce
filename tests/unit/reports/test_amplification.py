import math

import numpy as np
import pytest
from scipy import stats

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.numerics.reports.amplification import local_epsilon_for, shuffled_epsilon


def clone_delta(epsilon: float, local_epsilon: float, n_reports: int) -> float:
    """Hockey-stick divergence of the pair to which hiding among clones reduces a shuffled batch.

    With C ~ Bin(n - 1, exp(-local)), A ~ Bin(C, 1/2) and a coin D of odds exp(local): (A + D, C - A + 1 - D) against
    (A + 1 - D, C - A + D) (Feldman, McMillan, Talwar 2022, Theorem III.2).
    """
    clones = stats.binom(n_reports - 1, math.exp(-local_epsilon))
    totals = np.arange(int(clones.ppf(1e-13)), int(clones.ppf(1.0 - 1e-13)) + 1)
    heads = math.exp(local_epsilon) / (1.0 + math.exp(local_epsilon))
    delta = 0.0
    for total, chance in zip(totals, clones.pmf(totals), strict=True):
        first = np.arange(total + 2)
        one, none = stats.binom.pmf(first - 1, total, 0.5), stats.binom.pmf(first, total, 0.5)
        p, q = heads * one + (1.0 - heads) * none, (1.0 - heads) * one + heads * none
        delta += chance * float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
    return delta


@pytest.mark.parametrize(("n_reports", "expected"), [(10_000, 3.50), (100_000, 5.70), (1_000_000, 7.99)])
def test_the_closed_form_gives_the_known_local_epsilons(n_reports, expected):
    local = local_epsilon_for(1.0, 1e-6, n_reports, 9.0)
    assert local == pytest.approx(expected, abs=0.01)
    assert shuffled_epsilon(local, n_reports, 1e-6) <= 1.0
    assert shuffled_epsilon(local + 1e-6, n_reports, 1e-6) > 1.0


@pytest.mark.parametrize(
    ("local_epsilon", "n_reports", "delta"), [(1.0, 2000, 1e-4), (2.0, 10_000, 1e-6), (3.5, 10_000, 1e-6)]
)
def test_the_closed_form_is_no_less_than_the_exact_divergence_of_the_clones(local_epsilon, n_reports, delta):
    assert clone_delta(shuffled_epsilon(local_epsilon, n_reports, delta), local_epsilon, n_reports) <= delta


def test_shuffling_never_weakens_a_report_and_more_reports_never_hurt():
    assert shuffled_epsilon(6.0, 1000, 1e-6) == 6.0
    for local in (0.01, 0.5, 2.0, 3.0):
        spent = [shuffled_epsilon(local, n_reports, 1e-6) for n_reports in (10, 10**3, 10**4, 10**5, 10**6)]
        assert spent == sorted(spent, reverse=True)
        assert max(spent) <= local


def test_a_batch_too_small_for_amplification_is_refused():
    with pytest.raises(ConfigError, match="must be large enough for shuffling to add privacy, got 100"):
        local_epsilon_for(1.0, 1e-6, 100, 8.0)
    with pytest.raises(ConfigError, match="large enough"):
        local_epsilon_for(8.0, 1e-6, 1000, 8.0)


def test_the_local_epsilon_stays_below_its_ceiling():
    assert local_epsilon_for(1.0, 1e-6, 10**8, 8.0) == 8.0
