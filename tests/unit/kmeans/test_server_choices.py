"""Choices by server data: the space of the start, the shares and the Lloyd rounds."""

import math

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.plan import simulated_shares
from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit, resolve_settings
from dapple_dp.pipelines.kmeans.plan.simulated_shares import nearly_calibrated
from dapple_dp.schemas.choices import Auto, StartSpace
from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.sections.privacy_config import Shares
from dapple_dp.schemas.privacy.statement import PrivacyStatement, describe, statement_from_json
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from dapple_dp.transforms.kmeans.feddp_kmeans.server import with_space
from dapple_dp.transforms.kmeans.lloyd.rounds import FULL_SPACE_SHARES
from dapple_dp.transforms.kmeans.protocols import protocol_of
from tests.scenes import lake
from tests.scenes.directions import in_few_directions, in_many_directions

SERVER = lake.mixture(60, seed=99)
AUTO = {"privacy__shares": "auto", "plan": {"assumed_rows": 3000}}


def feddp(unit="record", **settings):
    return validated(lake.job("lake", "server.parquet", unit, **settings))


def specs(job):
    found = feddp_kmeans.round_specs(job, n_features=4, n_bins=30)
    return {f"{each.path}/{spec.name}".removeprefix("feddp_kmeans/"): spec for each in found for spec in each.releases}


@pytest.mark.parametrize(
    ("settings", "space"),
    [
        ({}, "full"),
        ({"feddp_kmeans__space": "subspace"}, "subspace"),
        ({"privacy__allocation": "paper"}, "subspace"),
        ({"n_clusters": {"max": 4, "choose": "elbow"}}, "subspace"),
    ],
)
def test_the_space_is_chosen_where_nothing_else_rules(settings, space):
    job = with_space(feddp(**{"n_clusters": 4} | settings), in_many_directions())
    assert job.feddp_kmeans.space is StartSpace(space)


def test_server_data_decide_on_the_space():
    assert with_space(feddp(), in_few_directions()).feddp_kmeans.space is StartSpace.SUBSPACE
    assert with_space(feddp(n_clusters=4), in_many_directions()).feddp_kmeans.space is StartSpace.FULL


def test_points_that_stand_in_for_server_data_decide_nothing():
    job = validated(lake.job("lake", None, n_clusters=4))
    assert with_space(job, in_many_directions()).feddp_kmeans.space is StartSpace.SUBSPACE


@pytest.mark.parametrize("settings", [{}, {"lloyd": {"steps": 2, "share": 0.3}, "quality": {"share": 0.1}}])
def test_full_space_releases_no_outer_product_and_spends_all(settings):
    found = specs(feddp(feddp_kmeans__space="full", **settings))
    assert not [name for name in found if name.startswith("outer_product")]
    assert math.fsum(spec.share for spec in found.values()) == pytest.approx(1.0)


def test_full_space_has_shares_of_its_own():
    found = specs(feddp(feddp_kmeans__space="full"))
    np.testing.assert_allclose([each.share for each in found.values()], FULL_SPACE_SHARES[1:])
    job = feddp(feddp_kmeans__space="full")
    given = job.privacy.with_shares(Shares(outer_product=5.0, weights=1.0, sums=2.0, counts=1.0))
    found = specs(job.model_copy(update={"privacy": given}))
    np.testing.assert_allclose([each.share for each in found.values()], [0.25, 0.5, 0.25])


@pytest.mark.parametrize("unit", ["record", "client"])
def test_full_space_finds_clusters(unit):
    job = feddp(unit, feddp_kmeans={"space": "full", "restarts": 20})
    found = PublicFit.of(job, SERVER).simulated(job, SERVER, 10**6, draws=2)
    assert found.mean == pytest.approx(found.without_noise, rel=1e-3)


def test_another_space_is_another_job():
    job = lake.job("lake", "server.parquet")
    job["feddp_kmeans"]["space"] = "auto"
    assert config_digest(validated(job)) == config_digest(feddp())
    job["feddp_kmeans"]["space"] = "full"
    assert config_digest(validated(job)) != config_digest(feddp())


def test_auto_comes_back_from_a_dump():
    job = feddp(**AUTO)
    content = job.model_dump(mode="json", exclude_none=True)
    assert content["privacy"]["shares"] == "auto"
    again = validated(content)
    assert again.privacy.shares is Auto.AUTO
    assert config_digest(again) == config_digest(job)


NEEDS = "privacy.shares: auto needs algorithm feddp_kmeans"
REFUSED = [
    ({"plan": None}, "plan.assumed_rows is required for privacy.shares auto"),
    ({"privacy__allocation": "paper"}, NEEDS),
    ({"clipping__norm": "private"}, NEEDS),
    (lake.packed(1), NEEDS),
    ({"recurring": {"previous": "last"}, "lloyd": {"steps": 1}}, NEEDS),
    ({"server_data": "none", "clipping": {"norm": 3.0, "center": "none"}}, NEEDS),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_auto_is_refused_where_nothing_can_be_simulated(settings, message):
    with pytest.raises(ConfigError, match=message):
        feddp(**AUTO | settings)


def test_shares_that_are_not_chosen_yet_plan_nothing():
    with pytest.raises(ValueError, match="the shares are not chosen yet"):
        specs(feddp(**AUTO))


@pytest.mark.parametrize("space", ["subspace", "full"])
def test_candidates_spend_the_whole_budget(space):
    found = simulated_shares.candidates(feddp(feddp_kmeans__space=space, data__public_rows=500, **AUTO))
    assert len(found) == 32
    for each in found:
        assert math.fsum(spec.share for spec in specs(each).values()) == pytest.approx(1.0)


def test_lloyd_rounds_that_a_job_asks_for_stay():
    found = simulated_shares.candidates(feddp(lloyd={"steps": 3, "share": 0.4}, **AUTO))
    assert {(each.lloyd.steps, each.lloyd.share) for each in found} == {(3, 0.4)}


@pytest.fixture
def two_candidates(monkeypatch):
    """A small grid: nothing for the sums, or nearly all."""
    grid = [{"outer_product": 1.0, "weights": 1.0, "sums": 1e-4, "counts": 1e-4}]
    grid += [{"outer_product": 1.0, "weights": 1.0, "sums": 10.0, "counts": 1.0}]
    made = [Shares(**each) for each in grid]
    monkeypatch.setattr(simulated_shares, "_grid", lambda config: made)
    monkeypatch.setattr(simulated_shares, "LLOYD", ((0, 0.25),))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_better_candidate_is_chosen_and_said(two_candidates, unit):
    job = feddp(unit, **AUTO)
    fit = PublicFit.of(job, SERVER)
    assert fit.chosen is not None
    assert fit.chosen["shares"]["sums"] == 10.0
    assert fit.chosen["lloyd"] == {"steps": 0}
    statement = PrivacyStatement.from_plan(fit.plan, describe(fit.plan), chosen=fit.chosen)
    assert statement.to_json()["chosen"] == fit.chosen
    assert statement_from_json(statement.to_json()) == statement


def test_the_choice_repeats_itself(two_candidates):
    first, again = (resolve_settings(feddp(**AUTO), SERVER) for _ in range(2))
    assert first == again


def test_no_share_of_an_impossible_epsilon_is_chosen(two_candidates):
    with pytest.raises(ConfigError, match=r"no shares give noise that fits"):
        resolve_settings(feddp(**AUTO | {"privacy__epsilon": 1e-6}), SERVER)


def test_a_job_that_gives_its_shares_says_nothing_of_a_choice():
    assert PublicFit.of(feddp(), SERVER).chosen is None


def test_simulated_noise_is_that_of_the_plan():
    """Nearly: the slack of discrete noise is left out. The plan states no epsilon, so that nobody takes it for one."""
    job = feddp(data__public_rows=3000)
    found = protocol_of(job.algorithm).round_specs(job, 4, 60)
    near = nearly_calibrated(job.privacy.unit, found, 2.0, 1e-6)
    exact = accounting.calibrate(job.privacy.unit, found, 2.0, 1e-6, Allocation.TUNED)
    for simulated, planned in zip(near.rounds, exact.rounds, strict=True):
        for one, other in zip(simulated.releases, planned.releases, strict=True):
            assert one.noise_multiplier == pytest.approx(other.noise_multiplier, rel=0.01)
    assert near.epsilon == math.inf
