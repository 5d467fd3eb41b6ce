"""Every release of every algorithm says what it means, so that no page, plan or memory asks for its name."""

import numpy as np
import pytest

from dapple_dp.schemas.core.plan import (
    Mechanism,
    PrivacyPlan,
    PrivacyUnit,
    ReleasePlan,
    ReleaseSpec,
    RoundPlan,
    RoundSpec,
)
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced, Role, meaning_of
from dapple_dp.schemas.privacy.statement import describe
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.known_objects import innermost, name_of
from dapple_dp.transforms.core.stated_sensitivity import misshapen
from dapple_dp.transforms.kmeans.lloyd.specs import COUNTS, SUMS, for_sampled_rows
from dapple_dp.transforms.kmeans.protocols import PROTOCOLS, protocol_of
from dapple_dp.transforms.numerics.kmeans.centers import last_means, released_as
from tests.scenes import lake
from tests.scenes.protocol_jobs import settings_of

JOB = {
    "experimental": True,
    "data": {"path": "lake", "features": "x", "name": "d"},
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
}
BOX = {"domain": [0, 1]}
SERVER = {"server_data": {"path": "s"}, "clipping": {"norm": 1.0}}
JOBS = {str(each): lake.job("lake", "server", **settings_of(each)) for each in PROTOCOLS} | {
    "feddp": JOB
    | SERVER
    | {"algorithm": "feddp_kmeans", "quality": {"share": 0.1}, "lloyd": {"steps": 1, "share": 0.2}},
    "private norm": JOB | SERVER | {"algorithm": "feddp_kmeans", "clipping": {"norm": "private"}},
    "best": JOB | {"algorithm": "dp_lloyd", "dp_lloyd": BOX},
    "candidates": JOB | {"algorithm": "dp_lloyd", "dp_lloyd": BOX | {"init": "candidates"}},
    "served": JOB | {"algorithm": "dp_lloyd", "server_data": {"path": "s"}, "dp_lloyd": BOX | {"init": "candidates"}},
    "names": JOB
    | {
        "algorithm": "spherical",
        "names": {"column": "t", "words": ["a", "b"]},
        "justification": {"privacy.unit": "why"},
    },
}
"""A job of every algorithm, and those with releases that these have not."""


def specs_of(name):
    config = lake.fit_of(JOBS[name])
    return protocol_of(config.algorithm).round_specs(config, 4, 30)


@pytest.mark.parametrize("name", JOBS)
def test_every_release_says_what_it_means(name):
    releases = [release for each in specs_of(name) for release in each.releases]
    assert all(meaning_of(release).tells for release in releases)


@pytest.mark.parametrize("name", JOBS)
def test_sums_of_clusters_come_with_their_counts(name):
    for each in specs_of(name):
        roles = [meaning_of(release).role for release in each.releases]
        assert Role.CLUSTER_SUMS not in roles or roles == [Role.CLUSTER_SUMS, Role.CLUSTER_COUNTS]


@pytest.mark.parametrize("name", JOBS)
def test_every_release_is_a_part_of_its_statistic(name):
    config = lake.fit_of(JOBS[name])
    plans = [
        RoundPlan(path=each.path, releases=tuple(ReleasePlan(spec=one, noise_multiplier=1.0) for one in each.releases))
        for each in specs_of(name)
    ]
    plan = PrivacyPlan(unit=PrivacyUnit.RECORD, epsilon=1.0, delta=1e-6, discretization_slack=0.0, rounds=tuple(plans))
    rounds = protocol_of(config.algorithm).rounds(config, plan)
    assert len(rounds) == len(plans)
    assert [misshapen(name_of(innermost(each.statistic)), each.plan, 4, 3) for each in rounds] == [None] * len(plans)


def test_a_meaning_is_no_part_of_the_law():
    spec = specs_of("best")[-1].releases[0]
    plain = ReleaseSpec(**spec.law)
    assert plain == spec
    assert repr(plain) == repr(spec)
    assert (meaning_of(plain).tells, meaning_of(spec).tells) == ("", "where each center lies")


def test_a_plan_that_is_known_has_the_meanings_of_the_job_at_hand():
    """Plans are kept by their law; a second job of an equal law does not get the words of the first one."""
    plans = []
    for tells in ("one thing", "another"):
        meaning = Meaning(tells=tells)
        spec = ReleaseSpec(
            name="a", shape=(2,), mechanism=Mechanism.DISCRETE_GAUSSIAN, sensitivity=1 << 20, share=1.0, meaning=meaning
        )
        rounds = (RoundSpec(path="p/r", releases=(spec,)),)
        plans.append(accounting.calibrate(PrivacyUnit.RECORD, rounds, 1.0, 1e-6, "tuned"))
    told = [plan.rounds[0].releases[0].spec.meaning.tells for plan in plans]
    assert told == ["one thing", "another"]
    assert [describe(plan)[0]["tells"] for plan in plans] == told


@pytest.mark.parametrize(
    ("replaced", "mechanism", "times"),
    [
        (Replaced.TURNED, Mechanism.DISCRETE_GAUSSIAN, 2.0),
        (Replaced.LEFT, Mechanism.DISCRETE_GAUSSIAN, 2.0**0.5),
        (Replaced.LEFT, Mechanism.DISCRETE_LAPLACE, 2.0),
        (Replaced.BOUNDED, Mechanism.DISCRETE_LAPLACE, 1.0),
    ],
)
def test_one_row_in_place_of_another_moves_a_release_as_far_as_it_says(replaced, mechanism, times):
    config = validated(
        JOB
        | {"algorithm": "dp_lloyd", "dp_lloyd": BOX}
        | {"data": JOB["data"] | {"client_id": "c", "max_rows_per_client": 2}}
    )
    meaning = Meaning(tells="x", replaced=replaced)
    spec = ReleaseSpec(name="any", shape=(2,), mechanism=mechanism, sensitivity=1000, share=1.0, meaning=meaning)
    (found,) = for_sampled_rows(config, [RoundSpec(path="p/r", releases=(spec,))])
    np.testing.assert_allclose(found.releases[0].sensitivity, 1000 * times, atol=1)


def test_a_meaning_that_says_nothing_of_replacement_is_taken_for_the_worst():
    assert Meaning(tells="new").replaced is Replaced.TURNED


def release(path, meaning):
    shape = (2, 3) if meaning.quantity is Quantity.LENGTH else (2,)
    spec = ReleaseSpec(
        name=path, shape=shape, mechanism=Mechanism.DISCRETE_GAUSSIAN, sensitivity=1, share=1.0, meaning=meaning
    )
    (plan,) = (
        accounting.calibrate(PrivacyUnit.RECORD, (RoundSpec(path="p", releases=(spec_of(spec),)),), 1.0, 1e-6, "tuned")
        .rounds[0]
        .releases
    )
    return Release(path=f"p/{path}", plan=plan, values=np.zeros(shape, dtype=np.int64), lattice_unit=1.0)


def spec_of(spec):
    return ReleaseSpec(**spec.law | {"sensitivity": 1 << 20}, meaning=spec.meaning)


def test_means_are_found_by_what_releases_are_and_never_by_their_names():
    named = [release("foo", SUMS), release("bar", COUNTS)]
    assert last_means(named, 2).means.shape == (2, 3)
    pretenders = [release("sums", Meaning(tells="x", quantity=Quantity.LENGTH)), release("counts", Meaning(tells="y"))]
    assert last_means(pretenders, 2) is None
    assert released_as([*named, *pretenders], Role.CLUSTER_COUNTS).path == "p/bar"
    assert released_as(named, Role.NORMS) is None


def test_a_plan_of_a_release_that_says_nothing_is_refused():
    from dapple_dp.pipelines.kmeans.plan.public_fit import check_meanings

    plan = accounting.calibrate(
        PrivacyUnit.RECORD,
        [RoundSpec(path="p/r", releases=(spec_of(release("a", COUNTS).plan.spec),))],
        1,
        1e-6,
        "tuned",
    )
    check_meanings(plan)
    unsaid = accounting.calibrate(
        PrivacyUnit.RECORD,
        [RoundSpec(path="p/r", releases=(ReleaseSpec(**plan.rounds[0].releases[0].spec.law),))],
        1.0,
        1e-6,
        "tuned",
    )
    with pytest.raises(PrivacyFlowError, match="p/r/a must say what it means"):
        check_meanings(unsaid)
