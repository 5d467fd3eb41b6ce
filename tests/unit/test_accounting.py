"""The accountant: least noise within the budget, composition against exact figures, slack, cache, refusals."""

import dataclasses
import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from schemas.choices import Allocation
from schemas.errors import ConfigError, UnsupportedEventError
from schemas.plan import Geometry, Mechanism, PrivacyUnit, ReleasePlan, ReleaseSpec, RoundPlan, RoundSpec
from transforms import accounting, plan_cache
from transforms.discretization import discretization_slack
from transforms.numerics.noise import check_release_noise

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
TUNED, PAPER = Allocation.TUNED, Allocation.PAPER
SHARES = {TUNED: (0.35, 0.10, 0.45, 0.10), PAPER: (0.20, 0.20, 0.45, 0.15)}
STDDEVS = (1.0, 2.0, 5.0, 30.0)


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        accounting._calibrate.cache_clear()
        yield folder / "dapple" / "plans"
    accounting._calibrate.cache_clear()


def _spec(name="sums", shape=(10, 100), mechanism=GAUSSIAN, share=1.0, sensitivity=1 << 20, geometry=Geometry.VECTOR):
    return ReleaseSpec(
        name=name, shape=shape, mechanism=mechanism, sensitivity=sensitivity, share=share, geometry=geometry
    )


def _specs(allocation, shares=None, lloyd_steps=0) -> tuple[RoundSpec, ...]:
    """The releases of FedDP-Init, d = 100, k = 10."""
    outer, weights, sums, counts = shares or SHARES[allocation]
    noise = GAUSSIAN if allocation is TUNED else LAPLACE
    means = (_spec("sums", (10, 100), GAUSSIAN, sums), _spec("counts", (10,), noise, counts))
    scatter = _spec("scatter", (5050,), GAUSSIAN, outer, 1 << 32, Geometry.SYMMETRIC)
    rounds = [
        RoundSpec(path="init/outer", releases=(scatter,)),
        RoundSpec(path="init/weights", releases=(_spec("histogram", (300,), noise, weights),)),
        RoundSpec(path="init/centers", releases=means),
    ]
    return (*rounds, *(RoundSpec(path=f"lloyd/{step}", releases=means) for step in range(lloyd_steps)))


def _one(spec: ReleaseSpec, path="round") -> tuple[RoundSpec, ...]:
    return (RoundSpec(path=path, releases=(spec,)),)


def _planned(multiplier: float, path="round", **kwargs) -> tuple[RoundPlan, ...]:
    return (RoundPlan(path=path, releases=(ReleasePlan(spec=_spec(**kwargs), noise_multiplier=multiplier),)),)


def _calibrate(rounds, epsilon=1.0, delta=1e-6, allocation=TUNED):
    return accounting.calibrate(PrivacyUnit.RECORD, rounds, epsilon, delta, allocation)


def _multipliers(plan) -> list[float]:
    return [release.noise_multiplier for each in plan.rounds for release in each.releases]


def _gaussian_delta(multiplier: float, epsilon):
    """Delta of a continuous Gaussian mechanism (Balle, Wang 2018, Theorem 8)."""
    shift = mpmath.mpf(1) / (2 * multiplier)
    return mpmath.ncdf(shift - epsilon * multiplier) - mpmath.exp(epsilon) * mpmath.ncdf(-shift - epsilon * multiplier)


def _exact_delta(rounds, epsilon):
    """Delta of Gaussian releases and randomized responses, by cases of the responses."""
    plans = [release for each in rounds for release in each.releases]
    pure = [1.0 / each.noise_multiplier for each in plans if each.spec.mechanism is LAPLACE]
    merged = 1.0 / math.sqrt(sum(each.noise_multiplier**-2 for each in plans if each.spec.mechanism is GAUSSIAN))
    total = mpmath.mpf(0)
    for signs in itertools.product((1, -1), repeat=len(pure)):
        losses = [sign * mpmath.mpf(each) for sign, each in zip(signs, pure, strict=True)]
        weight = mpmath.fprod(1 / (1 + mpmath.exp(-loss)) for loss in losses)
        total += weight * _gaussian_delta(merged, epsilon - mpmath.fsum(losses))
    return total


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 50.0])
def test_tuned_is_the_analytic_gaussian_mechanism(epsilon):
    plan = _calibrate(_specs(TUNED), epsilon)
    assert 0.998 * epsilon <= plan.epsilon <= epsilon
    merged = 1.0 / math.sqrt(sum(z**-2 for z in _multipliers(plan)))
    shift = 1.0 / (2.0 * merged)

    def log_ratio(exact):
        larger = norm.logcdf(shift - exact * merged)
        return larger + np.log1p(-np.exp(exact + norm.logcdf(-shift - exact * merged) - larger)) - math.log(1e-6)

    assert brentq(log_ratio, 0.5 * epsilon, 2.0 * epsilon) == pytest.approx(epsilon, rel=2e-3)
    assert [z**-2 * merged**2 for z in _multipliers(plan)] == pytest.approx(SHARES[TUNED])


def test_plan_repeats_its_request():
    specs = _specs(PAPER)
    plan = accounting.calibrate(PrivacyUnit.CLIENT, list(specs), 1, 1e-6, PAPER)
    assert (plan.unit, plan.delta) == (PrivacyUnit.CLIENT, 1e-6)
    assert [each.path for each in plan.rounds] == [each.path for each in specs]
    assert [r.spec for each in plan.rounds for r in each.releases] == [r for each in specs for r in each.releases]


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 50.0])
def test_paper_scales_nominal_epsilons_together(epsilon):
    plan = _calibrate(_specs(PAPER), epsilon, allocation=PAPER)
    outer, weights, sums, counts = _multipliers(plan)
    gaussian = math.sqrt(2.0 * math.log(1.25 / 1e-6))
    levels = np.array([gaussian / outer, 1.0 / weights, gaussian / sums, 1.0 / counts]) / SHARES[PAPER]
    np.testing.assert_allclose(levels, levels[0], rtol=1e-12)
    assert 0.998 * epsilon <= plan.epsilon <= epsilon
    if epsilon == 1.0:
        assert levels[0] * sum(SHARES[PAPER]) == pytest.approx(1.425, abs=0.003)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_plans_keep_their_promise_in_exact_composition(epsilon, delta):
    plan = _calibrate(_specs(PAPER), epsilon, delta, PAPER)
    with mpmath.workdps(40):
        exact = _exact_delta(plan.rounds, mpmath.mpf(plan.epsilon)) / delta
    assert 0.9 < exact <= 1.0 - plan.discretization_slack / delta


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    allocation=st.sampled_from(Allocation),
    epsilon=st.floats(0.1, 8.0),
    log_delta=st.floats(-11.0, -3.0),
    shares=st.tuples(*[st.floats(0.01, 1.0)] * 4),
)
def test_dp_accounting_never_finds_more_than_the_target(allocation, epsilon, log_delta, shares):
    delta = 10.0**log_delta
    try:
        plan = _calibrate(_specs(allocation, shares), epsilon, delta, allocation)
    except ConfigError as refusal:
        assume("lattice units" not in str(refusal))
        raise
    assert 0.997 * epsilon < plan.epsilon <= epsilon
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon / 4000.0)
    accountant.compose(accounting.events(plan.rounds))
    assert accountant.get_epsilon(delta - plan.discretization_slack) <= epsilon


@pytest.mark.parametrize("allocation", list(Allocation))
def test_epsilon_grows_with_rounds_and_noise_with_them(allocation):
    long = _calibrate(_specs(allocation, lloyd_steps=10), 1.0, 1e-6, allocation)
    spent = [accounting.compose_epsilon(long.rounds[:n], 1e-6, 1.0) for n in range(1, len(long.rounds) + 1)]
    assert all(np.diff(spent) > 0.0)
    assert spent[-1] <= long.epsilon <= 1.0
    short = _calibrate(_specs(allocation), 1.0, 1e-6, allocation)
    assert all(np.array(_multipliers(long)[:4]) > _multipliers(short))


def test_gaussian_releases_are_merged_exactly():
    rounds = [*_planned(8.0), *_planned(6.0)]
    merged = accounting.compose_epsilon(_planned(4.8), 1e-6, 1.0)
    assert accounting.compose_epsilon(rounds, 1e-6, 1.0) == pytest.approx(merged, rel=1e-12)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    assert accountant.compose(accounting.events(rounds)).get_epsilon(1e-6) == pytest.approx(merged, rel=1e-4)


@pytest.mark.parametrize("pure_epsilon", [0.05, 0.3, 1.0, 4.0])
def test_laplace_event_dominates_the_scalar_laplace_mechanism(pure_epsilon):
    release = _planned(1.0 / pure_epsilon, mechanism=LAPLACE)
    ours = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4).compose(accounting.events(release))
    scalar = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    scalar.compose(dp_event.LaplaceDpEvent(1.0 / pure_epsilon))
    for epsilon in np.linspace(0.0, pure_epsilon, 7):
        response = (math.exp(pure_epsilon) - math.exp(epsilon)) / (1.0 + math.exp(pure_epsilon))
        assert ours.get_delta(epsilon) >= scalar.get_delta(epsilon) - 1e-4 * pure_epsilon
        assert ours.get_delta(epsilon) == pytest.approx(response, abs=2e-4)
    assert scalar.get_epsilon(1e-6) <= ours.get_epsilon(1e-6) <= pure_epsilon + 1e-4


def test_rounding_errors_of_tiny_deltas_do_not_leak():
    rounds = [*_planned(0.12), *_planned(0.1, mechanism=LAPLACE), *_planned(0.2, mechanism=LAPLACE)]
    for delta in (1e-9, 1e-11, 1e-12):
        with mpmath.workdps(40):
            assert _exact_delta(rounds, mpmath.mpf(accounting.compose_epsilon(rounds, delta, 50.0))) <= delta
    assert accounting.compose_epsilon(rounds, 1e-15, 50.0) == math.inf


def _rounded_and_discrete(stddev: float, size: int):
    """Integers in [-size, size], the law of rounded and of discrete Gaussian noise on them, and S."""
    integers = np.arange(-size, size + 1)
    low, high = (np.abs(integers) - 0.5) / stddev, (np.abs(integers) + 0.5) / stddev
    rounded = norm.sf(low) - norm.sf(high)
    density = norm.pdf(integers, scale=stddev)
    return integers, rounded, density / density.sum(), density.sum()


@pytest.mark.parametrize("stddev", STDDEVS)
def test_discrete_noise_is_close_to_rounded_noise_as_stated(stddev):
    integers, rounded, discrete, total = _rounded_and_discrete(stddev, round(8 * stddev))
    bound = 1.0 / (24.0 * stddev**2)
    assert 1.0 <= total + 1e-12 <= 1.0 + 3.0 * math.exp(-2.0 * math.pi**2 * stddev**2) + 2e-12
    assert 0.35 * bound < 0.5 * np.abs(rounded - discrete).sum() <= bound
    assert (discrete <= rounded / (1.0 - bound) * (1.0 + 1e-12)).all()
    assert (rounded <= discrete * total * np.exp(integers**2 / (8.0 * stddev**4)) * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("stddev", STDDEVS)
@pytest.mark.parametrize("shift", [(1,), (2,), (5,), (3, 4)])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6])
def test_discrete_mechanisms_keep_what_the_slack_pays_for(stddev, shift, delta):
    rounds = _planned(stddev / math.hypot(*shift), shape=(len(shift),), sensitivity=round(math.hypot(*shift)))
    lower, upper = 1e-9, 400.0
    while upper - lower > 1e-9 * upper:
        middle = (lower + upper) / 2.0
        slack = discretization_slack(rounds, middle, delta)
        kept = _gaussian_delta(rounds[0].releases[0].noise_multiplier, middle - slack.epsilon) > delta - slack.delta
        lower, upper = (middle, upper) if kept else (lower, middle)
    laws = [_rounded_and_discrete(stddev, round(12 * stddev) + 5)[2] for _ in shift]
    here, there = laws[0], np.roll(laws[0], shift[0])
    if len(shift) == 2:
        here, there = np.multiply.outer(here, laws[1]), np.multiply.outer(there, np.roll(laws[1], shift[1]))
    assert np.maximum(here - np.exp(upper) * there, 0.0).sum() <= delta


def test_a_continuous_figure_alone_would_claim_too_much():
    law = _rounded_and_discrete(1.0, 20)[2]
    epsilon = brentq(lambda exact: float(_gaussian_delta(1.0, exact)) - 1e-3, 0.0, 10.0)
    assert np.maximum(law - math.exp(epsilon) * np.roll(law, 1), 0.0).sum() > 1.3e-3


def test_slack_counts_off_diagonal_entries_with_their_smaller_noise():
    symmetric = _planned(0.01, shape=(10,), geometry=Geometry.SYMMETRIC)
    parts = [*_planned(0.01, shape=(4,)), *_planned(0.01 * math.sqrt(0.5), shape=(6,))]
    assert discretization_slack(symmetric, 1.0, 1e-6) == pytest.approx(discretization_slack(parts, 1.0, 1e-6))
    assert discretization_slack(symmetric, 1.0, 1e-6) > discretization_slack(_planned(0.01, shape=(10,)), 1.0, 1e-6)


def test_slack_is_zero_for_laplace_and_never_finite_below_the_lattice():
    assert discretization_slack(_planned(0.01, mechanism=LAPLACE), 1.0, 1e-6) == (0.0, 0.0)
    assert discretization_slack(_planned(0.4, sensitivity=1), 1.0, 1e-6) == (math.inf, 1e-6)


def test_slack_of_a_usual_job_is_tiny_and_stays_so_at_large_epsilon():
    for epsilon in (0.1, 1.0, 10.0, 50.0):
        plan = _calibrate(_specs(TUNED), epsilon)
        slack = discretization_slack(plan.rounds, epsilon, 1e-6)
        assert slack.epsilon < 1e-6 * epsilon
        assert plan.discretization_slack == slack.delta < 1e-3 * plan.delta


def test_a_coarse_lattice_costs_noise_but_never_the_guarantee():
    coarse = _spec(shape=(20_000_000,), sensitivity=1 << 11)
    plan = _calibrate(_one(coarse))
    fine = _calibrate(_one(dataclasses.replace(coarse, sensitivity=1 << 20)))
    slack = discretization_slack(plan.rounds, 1.0, 1e-6)
    assert slack.epsilon > 1e-3
    assert slack.delta > 2e-3 * plan.delta
    assert accounting.compose_epsilon(plan.rounds, 1e-6 - slack.delta, 1.0) + slack.epsilon == plan.epsilon <= 1.0
    assert _multipliers(plan)[0] > 1.001 * _multipliers(fine)[0]


def test_describe_lists_every_release():
    rows = accounting.describe(_calibrate(_specs(PAPER), allocation=PAPER))
    assert [row["path"] for row in rows] == [
        "init/outer/scatter",
        "init/weights/histogram",
        "init/centers/sums",
        "init/centers/counts",
    ]
    assert rows[0]["geometry"] == "symmetric"
    assert rows[0]["shape"] == [5050]
    assert rows[1]["mechanism"] == "discrete_laplace"
    scale = math.ceil(rows[1]["noise_multiplier"] * 2**20)
    assert rows[1]["noise_stddev_lattice"] == math.sqrt(2.0) * scale
    assert rows[2]["noise_stddev_lattice"] == rows[2]["noise_multiplier"] * rows[2]["sensitivity_lattice"]
    assert json.loads(json.dumps(rows)) == rows


class _Compositions:
    """Counts calls of `compose_epsilon`."""

    def __init__(self, monkeypatch):
        self.count, self._compose = 0, accounting.compose_epsilon
        monkeypatch.setattr(accounting, "compose_epsilon", self)

    def __call__(self, *args):
        self.count += 1
        return self._compose(*args)

    def of(self, *args) -> tuple[int, object]:
        """Calls made, and the plan found, without the memory of the process."""
        accounting._calibrate.cache_clear()
        before = self.count
        plan = _calibrate(*args)
        return self.count - before, plan


@pytest.fixture
def compositions(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    accounting._calibrate.cache_clear()
    return _Compositions(monkeypatch)


def _cached(tmp_path):
    return list((tmp_path / "dapple" / "plans").iterdir())


@pytest.mark.parametrize("allocation", list(Allocation))
def test_a_stored_level_is_composed_once_and_gives_the_same_plan(compositions, tmp_path, allocation):
    request = (_specs(allocation), 1.0, 1e-6, allocation)
    first, plan = compositions.of(*request)
    assert first > 1
    assert compositions.of(*request) == (1, plan)
    assert _calibrate(*request) is _calibrate(*request)
    (file,) = _cached(tmp_path)
    assert list(json.loads(file.read_text())) == ["level"]
    compositions.of(_specs(allocation), 1.0, 2e-6, allocation)
    assert len(_cached(tmp_path)) == 2


@pytest.mark.parametrize(
    "content",
    [
        *[json.dumps({"level": level}) for level in (0.5, 1e9, 1e-9, 1e300, -1.0, 0.0, math.nan, math.inf)],
        *['{"level": 1}', '{"level": "0.2"}', '{"level": null}', "[0.2]", "0.2", "null", "{}", "", "{", "\udc80"],
    ],
)
def test_a_tampered_file_is_ignored_and_replaced(compositions, tmp_path, content):
    request = (_specs(TUNED), 1.0, 1e-6, TUNED)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    good = file.read_bytes()
    file.write_bytes(content.encode(errors="surrogateescape"))
    calls, again = compositions.of(*request)
    assert again == plan
    assert calls > 1
    assert file.read_bytes() == good


def test_too_little_stored_noise_is_never_used(compositions, tmp_path):
    request = (_specs(PAPER), 1.0, 1e-6, PAPER)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    level = json.loads(file.read_text())["level"]
    file.write_text(json.dumps({"level": level * 1.001}))
    assert compositions.of(*request)[1] == plan


def test_another_version_of_the_accountant_is_another_request(monkeypatch):
    digest = plan_cache.digest({"epsilon": 1.0})
    assert digest == plan_cache.digest({"epsilon": 1.0})
    assert digest != plan_cache.digest({"epsilon": 1.5})
    monkeypatch.setattr(plan_cache.importlib.metadata, "version", lambda name: "another")
    assert digest != plan_cache.digest({"epsilon": 1.0})


def test_a_cache_that_cannot_be_written_is_no_error(compositions, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compositions.of(_specs(TUNED), 1.0, 1e-6, TUNED)[1].epsilon <= 1.0


def test_a_failed_write_leaves_nothing_behind(compositions, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(plan_cache.os, "replace", refuse)
    compositions.of(_specs(TUNED), 1.0, 1e-6, TUNED)
    assert _cached(tmp_path) == []


@pytest.mark.parametrize("given_folder", ["", "relative"])
def test_default_cache_folder_is_in_the_home_folder(monkeypatch, tmp_path, given_folder):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", given_folder)
    plan_cache.store("0" * 64, 0.25)
    assert (tmp_path / ".cache" / "dapple" / "plans" / f"{'0' * 64}.json").exists()
    assert plan_cache.load("0" * 64) == 0.25


def test_no_home_folder_is_no_error(monkeypatch):
    def homeless():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(plan_cache.pathlib.Path, "home", homeless)
    plan_cache.store("0" * 64, 0.25)
    assert plan_cache.load("0" * 64) is None


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_out_of_range(epsilon):
    with pytest.raises(
        ConfigError, match=r"^epsilon must be a finite number > 0, got .*; give the total of the run\.$"
    ):
        _calibrate(_specs(TUNED), epsilon)


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1.0, math.nan])
def test_delta_out_of_range(delta):
    with pytest.raises(ConfigError, match=r"^delta must be at least 1e-12 and less than 1, got .*; give "):
        _calibrate(_specs(TUNED), 1.0, delta)


def test_no_release():
    with pytest.raises(ConfigError, match=r"^rounds must have at least one release, got none; "):
        _calibrate(())


@pytest.mark.parametrize(("share", "sensitivity"), [(0.0, 1), (-1.0, 1), (math.nan, 1), (math.inf, 1), (1.0, 0)])
def test_release_out_of_range(share, sensitivity):
    with pytest.raises(ConfigError, match=r"^sums must have a finite share > 0 and a sensitivity >= 1 lattice unit, "):
        _calibrate(_one(_spec(share=share, sensitivity=sensitivity)))


def test_tuned_refuses_laplace():
    with pytest.raises(
        UnsupportedEventError, match=r"^the mechanism of histogram must be discrete_gaussian .*; use Ga"
    ):
        _calibrate(_specs(PAPER))


def test_geometry_must_fit():
    laplace = _spec(mechanism=LAPLACE, geometry=Geometry.SYMMETRIC)
    with pytest.raises(UnsupportedEventError, match=r"^the geometry of sums must be vector for Laplace noise, "):
        _calibrate(_one(laplace), allocation=PAPER)
    with pytest.raises(ConfigError, match=r"^sums must have d \* \(d \+ 1\) / 2 coordinates .*, got 11; release "):
        _calibrate(_one(_spec(shape=(11,), geometry=Geometry.SYMMETRIC)))


def test_noise_below_the_lattice_is_refused():
    message = r"^epsilon must be small enough for the noise of sums to be at least 2\*\*10 .*, got 20.0 .*; lower "
    with pytest.raises(ConfigError, match=message):
        _calibrate(_one(_spec(sensitivity=1 << 10)), 20.0)


def test_off_diagonal_noise_must_fit_the_lattice_too():
    vector = _spec(shape=(3,), sensitivity=300)
    check_release_noise(_calibrate(_one(vector)).rounds[0].releases[0])
    with pytest.raises(ConfigError, match=r"^epsilon must be small enough for the noise of sums .*, got 1.0 "):
        _calibrate(_one(dataclasses.replace(vector, geometry=Geometry.SYMMETRIC)))


def test_noise_beyond_the_lattice_is_refused():
    message = r"^epsilon must be large enough for the noise of scatter to be below 2\*\*44 .*, got 0.0001 .*; raise "
    with pytest.raises(ConfigError, match=message):
        _calibrate(_specs(TUNED), 1e-4)
