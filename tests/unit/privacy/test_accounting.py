"""The accountant: least noise within the budget, composition against exact figures, slack, cache, refusals."""

import contextlib
import dataclasses
import json
import math
from typing import NamedTuple

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from dapple_dp.pipelines.kmeans.plan.simulated_shares import nearly_calibrated
from dapple_dp.schemas.core.plan import Allocation, Geometry, PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, UnsupportedEventError
from dapple_dp.schemas.privacy.statement import describe
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.discretization import discretization_slack
from dapple_dp.transforms.core.noise import check_release_noise
from dapple_dp.transforms.privacy import plan_cache
from tests.scenes.plans import (
    LAPLACE,
    PAPER,
    SHARES,
    TUNED,
    calibrate,
    init_specs,
    multipliers,
    one_round,
    planned,
    spec,
)

STDDEVS = (1.0, 2.0, 5.0, 30.0)
REQUEST = {"epsilon": 0.25}


@pytest.fixture(autouse=True, scope="module")
def cache_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        accounting._calibrate.cache_clear()
        yield folder / "dapple" / "plans"
    accounting._calibrate.cache_clear()


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 50.0])
def test_tuned_is_the_analytic_gaussian_mechanism(epsilon):
    plan = calibrate(init_specs(TUNED), epsilon)
    assert 0.998 * epsilon <= plan.epsilon <= epsilon
    merged = 1.0 / math.sqrt(sum(z**-2 for z in multipliers(plan)))
    shift = 1.0 / (2.0 * merged)

    def log_ratio(exact):
        larger = norm.logcdf(shift - exact * merged)
        return larger + np.log1p(-np.exp(exact + norm.logcdf(-shift - exact * merged) - larger)) - math.log(1e-6)

    assert brentq(log_ratio, 0.5 * epsilon, 2.0 * epsilon) == pytest.approx(epsilon, rel=2e-3)
    assert [z**-2 * merged**2 for z in multipliers(plan)] == pytest.approx(SHARES[TUNED])


def test_a_plan_to_simulate_has_nearly_the_noise_and_promises_nothing():
    plan = nearly_calibrated(PrivacyUnit.RECORD, init_specs(TUNED), 1.0, 1e-6)
    assert (plan.epsilon, plan.delta, plan.discretization_slack) == (math.inf, 1e-6, 0.0)
    assert multipliers(plan) == pytest.approx(multipliers(calibrate(init_specs(TUNED), 1.0)), rel=2e-3)


def test_plan_repeats_its_request():
    specs = init_specs(PAPER)
    plan = accounting.calibrate(PrivacyUnit.CLIENT, list(specs), 1, 1e-6, PAPER)
    assert (plan.unit, plan.delta) == (PrivacyUnit.CLIENT, 1e-6)
    assert [each.path for each in plan.rounds] == [each.path for each in specs]
    assert [r.spec for each in plan.rounds for r in each.releases] == [r for each in specs for r in each.releases]


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 50.0])
def test_paper_scales_nominal_epsilons_together(epsilon):
    plan = calibrate(init_specs(PAPER), epsilon, allocation=PAPER)
    outer, weights, sums, counts = multipliers(plan)
    gaussian = math.sqrt(2.0 * math.log(1.25 / 1e-6))
    levels = np.array([gaussian / outer, 1.0 / weights, gaussian / sums, 1.0 / counts]) / SHARES[PAPER]
    np.testing.assert_allclose(levels, levels[0], rtol=1e-12)
    assert 0.998 * epsilon <= plan.epsilon <= epsilon
    if epsilon == 1.0:
        assert levels[0] * sum(SHARES[PAPER]) == pytest.approx(1.425, abs=0.003)


@pytest.mark.parametrize("allocation", list(Allocation))
def test_epsilon_grows_with_rounds_and_noise_with_them(allocation):
    long = calibrate(init_specs(allocation, lloyd_steps=10), 1.0, 1e-6, allocation)
    spent = [accounting.compose_epsilon(long.rounds[:n], 1e-6, 1.0) for n in range(1, len(long.rounds) + 1)]
    assert all(np.diff(spent) > 0.0)
    assert spent[-1] <= long.epsilon <= 1.0
    short = calibrate(init_specs(allocation), 1.0, 1e-6, allocation)
    assert all(np.array(multipliers(long)[:4]) > multipliers(short))


def test_gaussian_releases_are_merged_exactly():
    rounds = [*planned(8.0), *planned(6.0)]
    merged = accounting.compose_epsilon(planned(4.8), 1e-6, 1.0)
    assert accounting.compose_epsilon(rounds, 1e-6, 1.0) == pytest.approx(merged, rel=1e-12)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    single = [dp_event.GaussianDpEvent(multiplier) for multiplier in (8.0, 6.0)]
    assert accountant.compose(dp_event.ComposedDpEvent(single)).get_epsilon(1e-6) == pytest.approx(merged, rel=1e-4)


def test_slack_counts_off_diagonal_entries_with_their_smaller_noise():
    symmetric = planned(0.01, shape=(10,), geometry=Geometry.SYMMETRIC)
    parts = [*planned(0.01, shape=(4,)), *planned(0.01 * math.sqrt(0.5), shape=(6,))]
    assert discretization_slack(symmetric, 1.0, 1e-6) == pytest.approx(discretization_slack(parts, 1.0, 1e-6))
    assert discretization_slack(symmetric, 1.0, 1e-6) > discretization_slack(planned(0.01, shape=(10,)), 1.0, 1e-6)


def test_slack_is_zero_for_laplace_and_never_finite_below_the_lattice():
    assert discretization_slack(planned(0.01, mechanism=LAPLACE), 1.0, 1e-6) == (0.0, 0.0)
    assert discretization_slack(planned(0.4, sensitivity=1), 1.0, 1e-6) == (math.inf, 1e-6)


def test_slack_of_a_usual_job_is_tiny_and_stays_so_at_large_epsilon():
    for epsilon in (0.1, 1.0, 10.0, 50.0):
        plan = calibrate(init_specs(TUNED), epsilon)
        slack = discretization_slack(plan.rounds, epsilon, 1e-6)
        assert slack.epsilon < 1e-6 * epsilon
        assert plan.discretization_slack == slack.delta < 1e-3 * plan.delta


def test_a_coarse_lattice_costs_noise_but_never_the_guarantee():
    coarse = spec(shape=(20_000_000,), sensitivity=1 << 11)
    plan = calibrate(one_round(coarse))
    fine = calibrate(one_round(dataclasses.replace(coarse, sensitivity=1 << 20)))
    slack = discretization_slack(plan.rounds, 1.0, 1e-6)
    assert slack.epsilon > 1e-3
    assert slack.delta > 2e-3 * plan.delta
    assert accounting.compose_epsilon(plan.rounds, 1e-6 - slack.delta, 1.0) + slack.epsilon == plan.epsilon <= 1.0
    assert multipliers(plan)[0] > 1.001 * multipliers(fine)[0]


def test_describe_lists_every_release():
    rows = describe(calibrate(init_specs(PAPER), allocation=PAPER))
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
        accounting._composed.clear()
        before = self.count
        plan = calibrate(*args)
        return self.count - before, plan


@pytest.fixture
def compositions(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    accounting._calibrate.cache_clear()
    return _Compositions(monkeypatch)


def _cached(tmp_path):
    return list((tmp_path / "dapple" / "plans").iterdir())


@pytest.mark.parametrize("allocation", list(Allocation))
def test_a_stored_level_gives_the_same_plan_and_is_composed_without_a_formula(compositions, tmp_path, allocation):
    request = (init_specs(allocation), 1.0, 1e-6, allocation)
    first, plan = compositions.of(*request)
    assert first > 1
    has_laplace = allocation is PAPER
    assert compositions.of(*request) == (int(has_laplace), plan)
    assert calibrate(*request) == calibrate(*request)
    (file,) = _cached(tmp_path)
    assert list(json.loads(file.read_text())) == ["format", "level", "epsilon"]
    compositions.of(init_specs(allocation), 1.0, 2e-6, allocation)
    assert len(_cached(tmp_path)) == 2


@pytest.mark.parametrize(
    "content",
    [
        *[
            json.dumps({"format": 1, "level": level, "epsilon": 0.9995})
            for level in (0.5, 1e9, 1e-9, 1e300, 1e-300, -1.0, 0.0, math.nan, math.inf)
        ],
        *[
            '{"format": 1, "level": 1, "epsilon": 1}',
            '{"format": 1, "level": "0.2", "epsilon": 1}',
            '{"format": 1, "level": null, "epsilon": 1}',
        ],
        *[
            '{"format": 1, "level": 0.2}',
            '{"format": 1, "epsilon": 1}',
            "[0.2]",
            "0.2",
            "null",
            "{}",
            "",
            "{",
            "\udc80",
        ],
    ],
)
def test_a_tampered_file_is_ignored_and_replaced(compositions, tmp_path, content):
    request = (init_specs(TUNED), 1.0, 1e-6, TUNED)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    good = file.read_bytes()
    file.write_bytes(content.encode(errors="surrogateescape"))
    calls, again = compositions.of(*request)
    assert again == plan
    assert calls > 1
    assert file.read_bytes() == good


def test_too_little_stored_noise_is_never_used(compositions, tmp_path):
    request = (init_specs(PAPER), 1.0, 1e-6, PAPER)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"level": stored["level"] * 1.001}))
    assert compositions.of(*request)[1] == plan


@pytest.mark.parametrize("factor", [0.5, 0.99, 0.999, 1.0 - 1e-5, 1.005, 2.0, 100.0])
def test_a_stored_epsilon_that_is_not_true_is_never_used(compositions, tmp_path, factor):
    request = (init_specs(TUNED), 1.0, 1e-6, TUNED)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"epsilon": stored["epsilon"] * factor}))
    assert compositions.of(*request) == (1, plan)


def test_a_level_and_an_epsilon_that_fit_each_other_must_fit_the_budget(compositions, tmp_path):
    """The cache holds the result of another budget under the name of this one."""
    request, other = (init_specs(TUNED), 1.0, 1e-6, TUNED), (init_specs(TUNED), 1.5, 1e-6, TUNED)
    _, plan = compositions.of(*request)
    (file,) = _cached(tmp_path)
    compositions.of(*other)
    (larger,) = set(_cached(tmp_path)) - {file}
    file.write_bytes(larger.read_bytes())
    calls, again = compositions.of(*request)
    assert again == plan
    assert calls > 1


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_the_formula_confirms_what_is_composed_and_nothing_less(epsilon, delta):
    plan = calibrate(init_specs(TUNED), epsilon, delta)
    exact = _exact_epsilon(plan.rounds, discretization_slack(plan.rounds, epsilon, delta), delta)
    assert exact <= plan.epsilon
    assert accounting.is_tight(plan.rounds, plan.epsilon, epsilon, delta)
    assert not accounting.is_tight(plan.rounds, exact * (1.0 - 1e-6), epsilon, delta)
    assert not accounting.is_tight(plan.rounds, plan.epsilon * 1.01, epsilon, delta)


def _exact_epsilon(rounds, slack, delta):
    """Epsilon by scipy's normal distribution, and a search of its own."""
    merged = 1.0 / math.sqrt(math.fsum(each.releases[0].noise_multiplier ** -2 for each in _single(rounds)))

    def excess(epsilon):
        larger, smaller = (norm.cdf(sign * 0.5 / merged - epsilon * merged) for sign in (1.0, -1.0))
        return larger - math.exp(epsilon) * smaller - (delta - slack.delta)

    return brentq(excess, 0.0, 100.0, xtol=1e-14, rtol=1e-14) + slack.epsilon


def _single(rounds):
    return [dataclasses.replace(each, releases=(release,)) for each in rounds for release in each.releases]


def test_no_formula_covers_laplace_releases():
    plan = calibrate(init_specs(PAPER), 1.0, 1e-6, PAPER)
    assert not accounting.is_tight(plan.rounds, plan.epsilon, 1.0, 1e-6)


def test_no_formula_covers_a_laplace_release_among_gaussian_ones():
    """However little it spends."""
    plan = calibrate(init_specs(TUNED), 1.0, 1e-6)
    (release, *_) = plan.rounds[0].releases
    spec = dataclasses.replace(release.spec, mechanism=LAPLACE)
    laplace = dataclasses.replace(
        plan.rounds[0], releases=(dataclasses.replace(release, spec=spec, noise_multiplier=1e9),)
    )
    assert accounting.is_tight(plan.rounds, plan.epsilon, 1.0, 1e-6)
    assert not accounting.is_tight((*plan.rounds, laplace), plan.epsilon, 1.0, 1e-6)


def test_no_other_number_than_what_rounds_spend_is_tight():
    plan = calibrate(init_specs(TUNED), 1.0, 1e-6)
    for spent in (0.5 * plan.epsilon, math.nan, math.inf, -1.0, 0.0):
        assert not accounting.is_tight(plan.rounds, spent, 1.0, 1e-6)


class _Lying(NamedTuple):
    """A cache that says what it likes."""

    said: tuple[float, float]

    def load(self, request):
        return self.said

    def store(self, request, level, epsilon):
        pass


@pytest.mark.parametrize("allocation", list(Allocation))
@pytest.mark.parametrize(("factor", "epsilon"), [(2.0, 0.9999), (1.001, 0.9999), (math.nan, 0.9999), (1.0, math.nan)])
def test_a_cache_in_memory_is_not_believed_either(allocation, factor, epsilon):
    """A level with too little noise, or an epsilon that is none: the plan is that of a search."""
    accounting._calibrate.cache_clear()
    specs = init_specs(allocation)
    plan = accounting.calibrate(PrivacyUnit.RECORD, specs, 1.0, 1e-6, allocation)
    share, known = specs[0].releases[0].share, plan.rounds[0].releases[0].noise_multiplier
    total = math.fsum(each.share for one in specs for each in one.releases)
    nominal = math.sqrt(total / share) if allocation is TUNED else math.sqrt(2.0 * math.log(1.25 / 1e-6)) / share
    found = accounting.calibrate(
        PrivacyUnit.RECORD, specs, 1.0, 1e-6, allocation, _Lying((nominal / known * factor, epsilon))
    )
    assert found.epsilon <= 1.0
    accounting._composed.clear()
    assert accounting.spent_epsilon(found.rounds, 1.0, 1e-6) == pytest.approx(found.epsilon, rel=1e-9)


def test_what_is_remembered_is_of_these_releases_this_target_and_this_delta():
    plan = calibrate(init_specs(TUNED), 1.0, 1e-6)
    renamed = tuple(dataclasses.replace(each, path="other") for each in plan.rounds)
    assert accounting.spent_epsilon(renamed, 1.0, 1e-6) == accounting.spent_epsilon(plan.rounds, 1.0, 1e-6)
    assert accounting.spent_epsilon(plan.rounds, 1.0, 1e-7) > plan.epsilon
    assert accounting.spent_epsilon(plan.rounds[:-1], 1.0, 1e-6) < plan.epsilon


def test_another_version_of_the_accountant_is_another_request(monkeypatch):
    digest = plan_cache.digest({"epsilon": 1.0})
    assert digest == plan_cache.digest({"epsilon": 1.0})
    assert digest != plan_cache.digest({"epsilon": 1.5})
    monkeypatch.setattr(plan_cache.importlib.metadata, "version", lambda name: "another")
    assert digest != plan_cache.digest({"epsilon": 1.0})


def test_a_cache_that_cannot_be_written_is_no_error(compositions, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compositions.of(init_specs(TUNED), 1.0, 1e-6, TUNED)[1].epsilon <= 1.0


def test_a_failed_write_leaves_nothing_behind(compositions, monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(plan_cache.os, "replace", refuse)
    compositions.of(init_specs(TUNED), 1.0, 1e-6, TUNED)
    assert _cached(tmp_path) == []


@pytest.mark.parametrize("given_folder", ["", "relative"])
def test_default_cache_folder_is_in_the_home_folder(monkeypatch, tmp_path, given_folder):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", given_folder)
    plan_cache.store(REQUEST, 0.25, 1.0)
    assert (tmp_path / ".cache" / "dapple" / "plans" / f"{plan_cache.digest(REQUEST)}.json").exists()
    assert plan_cache.load(REQUEST) == (0.25, 1.0)


def test_no_home_folder_is_no_error(monkeypatch):
    def homeless():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(plan_cache.pathlib.Path, "home", homeless)
    plan_cache.store(REQUEST, 0.25, 1.0)
    assert plan_cache.load(REQUEST) is None


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_out_of_range(epsilon):
    with pytest.raises(
        ConfigError, match=r"^epsilon must be a finite number > 0, got .*; set the total for the run\.$"
    ):
        calibrate(init_specs(TUNED), epsilon)


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1.0, math.nan])
def test_delta_out_of_range(delta):
    with pytest.raises(ConfigError, match=r"^delta must be at least 1e-12 and less than 1, got .*; use "):
        calibrate(init_specs(TUNED), 1.0, delta)


def test_no_release():
    with pytest.raises(ConfigError, match=r"^rounds must have at least one release, got none; "):
        calibrate(())


@pytest.mark.parametrize(("share", "sensitivity"), [(0.0, 1), (-1.0, 1), (math.nan, 1), (math.inf, 1), (1.0, 0)])
def test_release_out_of_range(share, sensitivity):
    with pytest.raises(ConfigError, match=r"^sums must have a finite share > 0 and a sensitivity >= 1 lattice unit, "):
        calibrate(one_round(spec(share=share, sensitivity=sensitivity)))


def test_tuned_refuses_laplace():
    with pytest.raises(
        UnsupportedEventError, match=r"^the mechanism of histogram must be discrete_gaussian .*; use Ga"
    ):
        calibrate(init_specs(PAPER))


def test_geometry_must_fit():
    laplace = spec(mechanism=LAPLACE, geometry=Geometry.SYMMETRIC)
    with pytest.raises(UnsupportedEventError, match=r"^the geometry of sums must be vector for Laplace noise, "):
        calibrate(one_round(laplace), allocation=PAPER)
    with pytest.raises(ConfigError, match=r"^sums must have d \* \(d \+ 1\) / 2 coordinates .*, got 11; release "):
        calibrate(one_round(spec(shape=(11,), geometry=Geometry.SYMMETRIC)))


def test_noise_below_the_lattice_is_refused():
    message = r"^epsilon must be small enough for the noise of sums to be at least 2\*\*10 .*, got 20.0 .*; lower "
    with pytest.raises(ConfigError, match=message):
        calibrate(one_round(spec(sensitivity=1 << 10)), 20.0)


def test_off_diagonal_noise_must_fit_the_lattice_too():
    vector = spec(shape=(3,), sensitivity=300)
    check_release_noise(calibrate(one_round(vector)).rounds[0].releases[0])
    with pytest.raises(ConfigError, match=r"^epsilon must be small enough for the noise of sums .*, got 1.0 "):
        calibrate(one_round(dataclasses.replace(vector, geometry=Geometry.SYMMETRIC)))


def test_noise_beyond_the_lattice_is_refused():
    message = r"^epsilon must be large enough for the noise of scatter to be below 2\*\*44 .*, got 0.0001 .*; raise "
    with pytest.raises(ConfigError, match=message):
        calibrate(init_specs(TUNED), 1e-4)


COUNTS = tuple(each for index in range(3) for each in one_round(spec("counts", (4,), LAPLACE), f"round_{index}"))


@pytest.mark.parametrize("n_rounds", [2, 3])
def test_laplace_releases_count_each(n_rounds):
    """The same law twice costs nearly twice as much: composed by hand, one after the other."""
    plan = accounting.calibrate(PrivacyUnit.RECORD, COUNTS[:n_rounds], 1.0, 1e-6, PAPER)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    for each in plan.rounds:
        accountant.compose(dp_event.DiscreteLaplaceDpEvent(1.0 / each.releases[0].noise_multiplier, 1))
    assert accountant.get_epsilon(1e-6) == pytest.approx(plan.epsilon, rel=2e-3)
    assert plan.epsilon == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize(
    "spent",
    [
        lambda level: 1e9,
        lambda level: 0.0,
        lambda level: math.nan,
        lambda level: 1.0000001 if level < 1e6 else 1.0000002,
        lambda level: 2.0 if int(level * 1e6) % 2 else 0.5,
    ],
    ids=["too much", "nothing", "nan", "never within", "jumps"],
)
def test_a_search_for_a_level_has_an_end_and_a_sentence(monkeypatch, tmp_path, spent):
    """Whatever the accountant says: a plan within the budget, or a refusal, after this many compositions."""
    levels = []

    def composed(rounds, epsilon, delta):
        levels.append(1.0 / rounds[0].releases[0].noise_multiplier)
        return spent(levels[-1])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(accounting, "_spent", composed)
    accounting._calibrate.cache_clear()
    with contextlib.suppress(ConfigError):
        assert accounting.calibrate(PrivacyUnit.RECORD, COUNTS, 1.0, 1e-6, PAPER).epsilon <= 1.0
    assert len(levels) <= accounting._MAX_COMPOSITIONS
    accounting._calibrate.cache_clear()


def test_epsilon_of_many_laplace_releases_is_no_more_than_its_slack_assumes():
    """Together they spend more than twice the worst of them."""
    laplace = [planned(10.0, f"p/{place}", mechanism=LAPLACE)[0] for place in range(60)]
    rounds, delta = (*laplace, *planned(20.0, "p/g")), 1e-6
    found = accounting.stated_epsilon(rounds, delta)
    slack = discretization_slack(rounds, found, delta)
    assert found > 1.0
    assert accounting.compose_epsilon(rounds, delta - slack.delta, 0.1) + slack.epsilon <= found * (1.0 + 1e-6)


def test_text_in_place_of_a_mechanism_gets_no_plan_from_memory():
    calibrate(one_round(spec()))
    for text in ({"mechanism": "discrete_gaussian"}, {"geometry": "vector"}):
        assert spec(**text) == spec()
        with pytest.raises(ConfigError, match="must have a Mechanism and a Geometry, got text"):
            calibrate(one_round(spec(**text)))
        with pytest.raises(ValueError, match="must have a Mechanism and a Geometry, got text"):
            check_release_noise(planned(2.0, **text)[0].releases[0])
