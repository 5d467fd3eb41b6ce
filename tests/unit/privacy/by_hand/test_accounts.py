"""Accounts worked out by second formulas: every term of a slack, a level or a search, and both sides of each bound."""

import math

import pytest
from dp_accounting import gaussian_mechanism

from dapple_dp.pipelines.kmeans.plan.simulated_shares import nearly_calibrated
from dapple_dp.schemas.core.plan import Allocation, Geometry, LatticeNoise, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.discretization import discretization_slack, lattice_noise, upper_ratio
from dapple_dp.transforms.numerics.masked.noise_shares import with_shares
from tests.scenes.plans import LAPLACE, PAPER, TUNED, calibrate, init_specs, multipliers, one_round, planned, spec


def noise_of(stddev, size, geometry=Geometry.VECTOR):
    return lattice_noise(planned(stddev, shape=(size,), sensitivity=1, geometry=geometry))


# Noise on the lattice: the formulas of steps 1 and 2, of variances 4 and 2 (off the diagonal), 3 + 3 coordinates.


def test_noise_of_a_vector_is_summed_over_its_coordinates():
    assert noise_of(2.0, 5) == pytest.approx(
        (-5.0 * math.log(95.0 / 96.0), 5.0 * (0.125 + 3.0 * math.exp(-8.0 * math.pi**2)), 5.0 / 16.0, 0.25), rel=1e-12
    )


def test_noise_of_a_symmetric_matrix_has_half_the_variance_off_its_diagonal():
    found = noise_of(1.0, 6, Geometry.SYMMETRIC)
    small, large = math.exp(-2.0 * math.pi**2), math.exp(-(math.pi**2))
    assert found.lower == pytest.approx(-3.0 * math.log(23.0 / 24.0) - 3.0 * math.log(11.0 / 12.0), rel=1e-12)
    assert found.mean == pytest.approx(3.0 * (0.5 + 3.0 * small) + 3.0 * (1.0 + 3.0 * large), rel=1e-12)
    assert (found.square, found.largest) == (3.0 + 3.0 * 4.0, 2.0)


@pytest.mark.parametrize(("stddev", "finite"), [(0.5, True), (0.5 - 1e-9, False)])
def test_noise_is_finite_down_to_half_a_unit(stddev, finite):
    found = noise_of(stddev, 1)
    assert all(math.isfinite(each) is finite for each in found)
    if finite:
        assert found.mean == pytest.approx(2.0 + 3.0 * math.exp(-0.5 * math.pi**2), rel=1e-12)


def test_an_empty_release_has_no_noise_of_the_lattice():
    assert noise_of(2.0, 0) == LatticeNoise()


def test_the_upper_ratio_is_mean_and_both_tails():
    assert upper_ratio(LatticeNoise(9.0, 1.0, 4.0, 0.5), 16.0) == 1.0 + 8.0 + 8.0


def test_slack_has_every_term():
    rounds = planned(2.0, shape=(5,), sensitivity=1)
    noise, tail = lattice_noise(rounds), 5e-4 * 1e-6
    slack = discretization_slack(rounds, 1.5, 1e-6)
    assert slack.epsilon == pytest.approx(noise.lower + upper_ratio(noise, 1.5 - math.log(tail)), rel=1e-12)
    left = (1e-6 - tail) * math.exp(-noise.lower)
    assert slack.delta == pytest.approx(1e-6 - left, rel=1e-9)


# The accountant.


@pytest.mark.parametrize(
    ("epsilon", "multiplier", "n_laplace", "width"),
    [
        (1.0, 1.0, 0, 1e-3),
        (0.5, 1.0, 1, 5e-4),
        (100.0, 1.0, 0, 5e-3),
        (0.01, 1.0, 0, 1e-4),
        (1.0, 0.01, 0, 1e-2),
        (1.0, 1.0, 4, 2.5e-4),
        (1.0, 1.0, 10, 1e-4),
        (1.0, 1.0, 25, 1e-4),
    ],
)
def test_bins_of_losses_are_as_wide_as_stated(epsilon, multiplier, n_laplace, width):
    assert accounting._discretization_interval(epsilon, multiplier, n_laplace) == pytest.approx(width, rel=1e-12)


@pytest.mark.parametrize(("multiplier", "delta"), [(1.0, 0.1), (0.5, 1e-6), (4.0, 0.05)])
def test_one_laplace_release_is_randomized_response(multiplier, delta):
    """Its delta at epsilon is p - e^epsilon (1 - p), where p = 1 / (1 + e^-L) and L = 1 / multiplier."""
    epsilon = accounting._single_epsilon(planned(multiplier, mechanism=LAPLACE), delta)
    truth = 1.0 / (1.0 + math.exp(-1.0 / multiplier))
    assert truth - math.exp(epsilon) * (1.0 - truth) == pytest.approx(delta, rel=1e-6)


def test_the_worse_of_both_kinds_bounds_a_plan_from_below():
    gaussian_only, laplace_only = planned(1.0), planned(0.1, mechanism=LAPLACE)
    together = accounting._single_epsilon([*gaussian_only, *laplace_only, *planned(0.2, mechanism=LAPLACE)], 1e-6)
    assert together == accounting._single_epsilon(laplace_only, 1e-6) > accounting._single_epsilon(gaussian_only, 1e-6)
    assert accounting._single_epsilon([*planned(0.1), *planned(2.0, mechanism=LAPLACE)], 1e-6) == pytest.approx(
        gaussian_mechanism.get_epsilon_gaussian(0.1, 1e-6), rel=1e-12
    )


def test_far_beyond_the_target_a_lower_bound_is_enough(monkeypatch):
    accounting._composed.clear()
    rounds = planned(1.0)
    least = accounting._single_epsilon(rounds, 1e-6) + discretization_slack(rounds, 1.0, 1e-6).epsilon
    composed = []
    monkeypatch.setattr(accounting, "compose_epsilon", lambda *_: composed.append(1) or 7.0)
    assert accounting._spent(rounds, 0.4999 * least, 1e-6) == pytest.approx(least)
    assert composed == []
    assert accounting._spent(rounds, 0.5001 * least, 1e-6) == pytest.approx(7.0)
    assert composed == [1]


def test_what_a_formula_confirms_is_not_composed_again(monkeypatch):
    plan = calibrate(init_specs(TUNED), 1.0, 1e-6)
    monkeypatch.setattr(accounting, "compose_epsilon", lambda *_: 7.0)
    accounting._composed.clear()
    stored = (1.0, plan.epsilon)
    assert accounting._recheck(stored, lambda _: plan.rounds, lambda: 1.0, 1.0, 1e-6) == stored
    accounting._remember(plan.rounds, 1.0, 1e-6, plan.epsilon)
    assert accounting.spent_epsilon(plan.rounds, 1.0, 1e-6) == plan.epsilon
    accounting._composed.clear()
    assert accounting.spent_epsilon(plan.rounds, 1.0, 1e-6) > 7.0
    accounting._composed.clear()


def test_the_statement_is_composed_with_its_slack():
    """A lattice so coarse that every term of the slack is seen, and a composition without it as the truth."""
    rounds = planned(2.0, shape=(50,), sensitivity=4)
    target = accounting._single_epsilon(rounds, 1e-6)
    slack = discretization_slack(rounds, 2.0 * target, 1e-6)
    found = accounting.stated_epsilon(rounds, 1e-6)
    assert found == accounting.compose_epsilon(rounds, 1e-6 - slack.delta, target) + slack.epsilon
    assert slack.epsilon > 0.05
    assert accounting.spent_epsilon(tuple(rounds), found, 1e-6) == pytest.approx(found, rel=1e-2)


def test_no_epsilon_is_composed_at_a_delta_that_floats_cannot_tell_from_nothing():
    assert accounting.compose_epsilon(planned(1.0), 1e-14, 1.0) == math.inf
    assert accounting.compose_epsilon(planned(1.0), 1.1e-14, 1.0) < math.inf


def test_a_composition_of_many_laplace_releases_is_an_upper_bound_and_close():
    rounds = [each for index in range(12) for each in planned(4.0, f"r{index}", mechanism=LAPLACE, shape=(4,))]
    exact = _randomized_responses(0.25, 12, 1e-3)
    assert exact <= accounting.compose_epsilon(rounds, 1e-3, exact) <= exact * 1.001


def _randomized_responses(loss, n, delta):
    """Epsilon of n responses, by their binomial law (Kairouz, Oh, Viswanath 2015, Theorem 3.3)."""
    truth = 1.0 / (1.0 + math.exp(-loss))
    low, high = 0.0, n * loss
    for _ in range(100):
        middle = 0.5 * (low + high)
        spent = math.fsum(
            math.comb(n, k) * max(0.0, truth ** (n - k) * (1 - truth) ** k
                                  - math.exp(middle) * truth**k * (1 - truth) ** (n - k))
            for k in range(n + 1)
        )  # fmt: skip
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("allocation", "epsilon", "delta"),
    [(TUNED, 1.0, 1e-6), (TUNED, 8.0, 1e-9), (PAPER, 0.5, 1e-5), (PAPER, 20.0, 1e-6)],
)
def test_the_search_ends_next_to_its_aim(allocation, epsilon, delta, monkeypatch, tmp_path):
    """0.06% below the budget, up to the tolerance of the search; that is what it composes, and in few steps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    accounting._composed.clear()
    accounting._calibrate.cache_clear()
    composed, compose = [], accounting.compose_epsilon
    monkeypatch.setattr(accounting, "compose_epsilon", lambda *args: composed.append(1) or compose(*args))
    plan = calibrate(init_specs(allocation), epsilon, delta, allocation)
    assert 1.0 - 6e-4 - 4e-4 <= plan.epsilon / epsilon <= 1.0 - 6e-4 + 4e-4
    assert len(composed) <= (6 if allocation is TUNED else 12)


def test_the_first_level_of_the_paper_is_near():
    specs = init_specs(PAPER)
    assert accounting._first_level(specs, 2.0, 1e-6, PAPER) == pytest.approx(2.8 / 1.0, rel=1e-12)
    assert accounting._first_level(one_round(spec(share=4.0)), 2.0, 1e-6, PAPER) == pytest.approx(0.7, rel=1e-12)
    level = accounting._first_level(specs, 2.0, 1e-6, TUNED)
    assert level == pytest.approx(1.0 / gaussian_mechanism.get_sigma_gaussian((1.0 - 6e-4) * 2.0, 1e-6), rel=1e-12)


def test_shares_of_a_plan_scale_its_noise_by_the_stated_rules():
    specs = (*one_round(spec(share=1.0)), *one_round(spec("counts", (4,), LAPLACE, 3.0), "other"))
    nominal = math.sqrt(2.0 * math.log(1.25 / 1e-6))
    found = [each.releases[0].noise_multiplier for each in accounting._paper(specs, 1e-6)(0.5)]
    assert found == pytest.approx([nominal / 0.5, 1.0 / 1.5], rel=1e-12)
    found = [each.releases[0].noise_multiplier for each in accounting._tuned(specs)(0.5)]
    assert found == pytest.approx([2.0 * 2.0, 2.0 * math.sqrt(4.0 / 3.0)], rel=1e-12)


@pytest.mark.parametrize("start", [-3.0, -0.3, 0.0, 0.3, 3.0])
def test_a_bracket_is_around_the_zero(start):
    asked = []

    def excess(log_level):
        asked.append(log_level)
        return math.log(min(max(math.exp(log_level), 1e-3), 1e3))

    low, high = accounting._bracket(excess, start)
    assert low <= 0.0 <= high
    assert high - low <= 1.05 * abs(start) + 0.0021
    assert len(asked) <= 6


def test_a_bracket_that_starts_at_the_zero_is_the_zero():
    assert accounting._bracket(lambda log_level: log_level - 1.0, 1.0) == (1.0, 1.0)
    low, high = accounting._bracket(lambda log_level: log_level, 2.0)
    assert (low, high) == (pytest.approx(2.0 - 0.002 - 1.05 * 2.0), 2.0)
    low, high = accounting._bracket(lambda log_level: log_level, -2.0)
    assert (low, high) == (-2.0, pytest.approx(-2.0 + 0.002 + 1.05 * 2.0))


@pytest.mark.parametrize(
    ("ratio", "composed"),
    [(0.00995, False), (0.01, False), (0.01005, True), (99.5, True), (100.0, False), (100.5, False)],
)
def test_a_stored_level_far_from_the_first_guess_is_not_even_composed(monkeypatch, ratio, composed):
    asked = []
    monkeypatch.setattr(accounting, "_spent", lambda *given: asked.append(given) or 0.995)
    rounds = tuple(planned(1.0, mechanism=LAPLACE))
    stored = (ratio, 7.0)
    found = accounting._recheck(stored, lambda level: rounds, lambda: 1.0, 1.0, 1e-6)
    assert found == ((ratio, 0.995) if composed else None)
    assert asked == ([(rounds, 1.0, 1e-6)] if composed else [])


@pytest.mark.parametrize(("spent", "is_used"), [(0.99, True), (0.9899, False), (1.0, True), (1.0001, False)])
def test_a_stored_level_is_used_just_within_the_budget(monkeypatch, spent, is_used):
    monkeypatch.setattr(accounting, "_spent", lambda *given: spent)
    rounds = tuple(planned(1.0, mechanism=LAPLACE))
    found = accounting._recheck((1.0, 7.0), lambda level: rounds, lambda: 1.0, 1.0, 1e-6)
    assert found == ((1.0, spent) if is_used else None)


@pytest.mark.parametrize(
    ("spent", "ratio"), [(0.5, 0.5 / 0.9994), (1e-9, 1e-3), (1e-3, 1e-3 / 0.9994), (999.0, 999.0 / 0.9994), (1e9, 1e3)]
)
def test_what_a_level_spends_is_compared_with_the_aim_within_bounds(monkeypatch, spent, ratio):
    found = []
    monkeypatch.setattr(accounting, "_spent", lambda *given: spent)
    monkeypatch.setattr(accounting, "_bracket", lambda excess, start: found.append((excess(start), start)))
    with pytest.raises(ConfigError):
        accounting._search(lambda level: (), 2.0, 1.0, 1e-6)
    assert found == [(pytest.approx(math.log(ratio), abs=1e-9), math.log(2.0))]


def test_a_search_without_an_end_is_given_up():
    asked = []
    assert accounting._bracket(lambda log_level: asked.append(log_level) or 1.0, 0.0) is None
    assert len(asked) == 3 * 40
    asked.clear()
    assert accounting._bracket(lambda log_level: asked.append(log_level) or -1.0, 0.0) is None
    assert len(asked) == 2 * 40
    assert asked[2] == pytest.approx(0.002 + 1.05)


def test_a_search_composes_no_more_levels_than_it_may(monkeypatch):
    composed = []

    def jumps(rounds, epsilon, delta):
        composed.append(1)
        return 2.0 if len(composed) % 2 else 0.5

    monkeypatch.setattr(accounting, "_spent", lambda *args: jumps(*args))
    monkeypatch.setattr(accounting, "_bracket", lambda excess, start: [excess(each) for each in range(200)] and None)
    with pytest.raises(ConfigError, match=r"no amount of noise reaches epsilon 1 at delta 1e-06"):
        accounting._search(lambda level: (), 1.0, 1.0, 1e-6)
    assert len(composed) == 90


@pytest.mark.parametrize("spent", [math.nan, 1.5])
def test_a_search_that_finds_no_level_within_the_budget_is_refused(monkeypatch, spent):
    monkeypatch.setattr(accounting, "_spent", lambda *_: spent)
    monkeypatch.setattr(accounting, "_bracket", lambda excess, start: (excess(0.0), excess(1.0)) and (0.0, 1.0))
    monkeypatch.setattr("scipy.optimize.brentq", lambda *_, **__: 0.5)
    with pytest.raises(ConfigError, match="no amount of noise reaches"):
        accounting._search(lambda level: (), 1.0, 1.0, 1e-6)


def _rechecked(level, spent, epsilon=1.0):
    specs = one_round(spec())
    stored = (level, spent)
    return accounting._recheck(stored, accounting._tuned(specs), lambda: 1.0, epsilon, 1e-6)


@pytest.mark.parametrize(
    ("level", "spent", "believed"),
    [
        (1.0, 1.0, True),
        (1.0, 0.99, True),
        (1.0, 0.9899, False),
        (1.0, 1.0001, False),
        (0.0101, 1.0, True),
        (0.0099, 1.0, False),
        (99.0, 1.0, True),
        (101.0, 1.0, False),
        (1e-12, 1.0, False),
        (1e12, 1.0, False),
    ],
)
def test_a_stored_level_is_used_only_near_the_guess_and_just_within_the_budget(monkeypatch, level, spent, believed):
    monkeypatch.setattr(accounting, "_spent", lambda *_: spent)
    monkeypatch.setattr(accounting, "is_tight", lambda *_: False)
    assert _rechecked(level, 0.5) == ((level, spent) if believed else None)


@pytest.mark.parametrize(("level", "believed"), [(1.01e-12, True), (1e-12, False), (0.99e12, True), (1e12, False)])
def test_a_stored_level_that_a_formula_confirms_has_bounds_too(monkeypatch, level, believed):
    monkeypatch.setattr(accounting, "is_tight", lambda *_: True)
    assert (_rechecked(level, 0.995) is not None) is believed
    assert _rechecked(0.5, 1.0001) is None


def test_formulas_tell_within_their_range_only(monkeypatch):
    monkeypatch.setattr(accounting, "discretization_slack", lambda *_: (0.0, 0.0) and _NO_SLACK)
    monkeypatch.setattr(accounting, "log_delta", lambda z, epsilon: -10.0 if epsilon >= limit else -5.0)
    for limit, spent, holds in [(99.0, 99.9, True), (99.9, 100.0, False), (1.0, 0.0, False), (-1.0, -1.0, False)]:
        assert accounting.is_tight(planned(1.0), spent, 1.0, 1e-4) is (holds and limit / spent > 0.998)
    limit = 1.0
    for multiplier, holds in [(1.001e-3, True), (1e-3, False), (0.999e3, True), (1e3, False)]:
        assert accounting.is_tight(planned(multiplier), 1.0, 1.0, 1e-4) is holds


_NO_SLACK = type("NoSlack", (), {"epsilon": 0.0, "delta": 0.0})()


def test_a_formula_takes_its_own_rounding_off_delta(monkeypatch):
    monkeypatch.setattr(accounting, "discretization_slack", lambda *_: _NO_SLACK)
    for found, holds in [(1e-4, False), (1e-4 * (1.0 - 0.9e-9), False), (1e-4 * (1.0 - 1.2e-9), True)]:
        logs = iter((math.log(found), 0.0))
        monkeypatch.setattr(accounting, "log_delta", lambda *_: next(logs))  # noqa: B023
        assert accounting.is_tight(planned(1.0), 1.0, 1.0, 1e-4) is holds
    for found, holds in [(1e-13 - 0.9e-14, False), (1e-13 - 1.1e-14, True)]:
        logs = iter((math.log(found), 0.0))
        monkeypatch.setattr(accounting, "log_delta", lambda *_: next(logs))  # noqa: B023
        assert accounting.is_tight(planned(1.0), 1.0, 1.0, 1e-13) is holds


def test_no_more_is_remembered_than_fits():
    accounting._composed.clear()
    for each in range(256):
        accounting._remember((), each, 1e-6, 1.0)
    assert len(accounting._composed) == 256
    accounting._remember((), 256, 1e-6, 1.0)
    assert len(accounting._composed) == 1
    accounting._composed.clear()
    assert not accounting._composed


def test_gaussian_releases_are_merged_by_hand():
    assert accounting.merged_multiplier([*planned(3.0), *planned(4.0), *planned(9.0, mechanism=LAPLACE)]) == 2.4
    assert accounting.merged_multiplier(planned(9.0, mechanism=LAPLACE)) == math.inf


def test_a_plan_to_simulate_refuses_what_a_plan_refuses():
    with pytest.raises(ValueError, match="at least 2\\*\\*10 lattice units"):
        nearly_calibrated(PrivacyUnit.RECORD, one_round(spec(sensitivity=1)), 1.0, 1e-6)
    found = nearly_calibrated(PrivacyUnit.CLIENT, init_specs(TUNED), 2.0, 1e-6)
    assert found.unit is PrivacyUnit.CLIENT
    merged = accounting.merged_multiplier(found.rounds)
    assert merged == pytest.approx(gaussian_mechanism.get_sigma_gaussian((1.0 - 6e-4) * 2.0, 1e-6), rel=1e-12)
    assert len(multipliers(found)) == 4


def test_with_shares_is_more_never_less():
    assert with_shares(1.0, planned(4.0)) > 1.0
    assert with_shares(1.0, ()) == math.nextafter(1.0, math.inf)


def test_what_noise_cannot_be_is_said_by_its_side_of_the_middle():
    small, large = planned(2.0**6, sensitivity=1), planned(2.0**44, sensitivity=1)
    with pytest.raises(ConfigError, match=r"small enough .* lower epsilon"):
        accounting._check_lattice(small, 1.0)
    with pytest.raises(ConfigError, match=r"large enough .* raise epsilon"):
        accounting._check_lattice(large, 1.0)
    accounting._check_lattice(planned(2.0**27, sensitivity=1), 1.0)


@pytest.mark.parametrize(("delta", "said"), [(1e-12, None), (0.9e-12, "delta"), (1.0 - 1e-9, None), (1.0, "delta")])
def test_ends_of_delta(delta, said):
    if said is None:
        accounting._check_budget(1.0, delta)
    else:
        with pytest.raises(ConfigError, match="delta must be at least 1e-12 and less than 1"):
            accounting._check_budget(1.0, delta)


def test_one_lattice_unit_is_a_sensitivity_and_triangles_are_symmetric():
    for geometry, size in [
        (Geometry.VECTOR, 1),
        (Geometry.SYMMETRIC, 1),
        (Geometry.SYMMETRIC, 3),
        (Geometry.SYMMETRIC, 6),
    ]:
        accounting._check_specs(one_round(spec(shape=(size,), sensitivity=1, geometry=geometry)), TUNED)
    for size in (2, 4, 5, 7, 8):
        with pytest.raises(ConfigError, match=r"must have d \* \(d \+ 1\) / 2 coordinates"):
            accounting._check_specs(one_round(spec(shape=(size,), geometry=Geometry.SYMMETRIC)), TUNED)
    accounting._check_specs(one_round(spec(mechanism=LAPLACE)), Allocation.PAPER)
