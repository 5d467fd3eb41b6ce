"""Spending of noise stages against the plan, by hand; and values that a graph may start from."""

import dataclasses
import functools
import math
import types

import numpy as np
import pytest

from dapple_dp.pipelines.masked.aggregate import check_chunk
from dapple_dp.schemas.core.plan import Geometry, Mechanism, PrivacyUnit, Promise, PromisedPlan, Zone
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.audit import Audit, check_round, check_spent, check_values, composed, paths
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.kmeans.lloyd.rounds import means_statistic
from dapple_dp.transforms.kmeans.lloyd.server import means_step
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.masked.noise_shares import with_shares
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.tables.source import Source
from tests.scenes.gaussian_rounds import round_of
from tests.scenes.plans import PAPER, TUNED, calibrate, init_specs, planned

MEANS = object.__new__(MeansState)
"""A state of nothing yet."""
A, B, C = (planned(2.0 + place, path)[0] for place, path in enumerate("abc"))


def test_chunks_are_the_next_rounds_of_the_plan():
    assert check_chunk([A], (A, B, C), 0) == 1
    assert check_chunk(iter([B, C]), (A, B, C), 1) == 3
    assert check_chunk([], (A, B, C), 2) == 2
    for drawn, first in [([A], 1), ([B], 0), ([C, A], 2), ([A, A], 0), ([B, A], 0)]:
        with pytest.raises(PrivacyFlowError, match=f"from number {first} on, got {paths(drawn)};"):
            check_chunk(drawn, (A, B, C), first)


def promise(*plans, **more):
    return Promise(zone=Zone.PUBLIC, plans=plans, **more)


def test_a_promise_of_nan_is_refused_before_any_step():
    broken = dataclasses.replace(A, releases=(dataclasses.replace(A.releases[0], noise_multiplier=math.nan),))
    sound, other = PromisedPlan(rounds=(A, B)), PromisedPlan(rounds=(C, broken))
    for given in (promise(other), promise(sound, other), promise(other, chunk=(A,)), promise(sound, stages=(broken,))):
        with pytest.raises(PrivacyFlowError, match="a finite noise multiplier above 0"):
            Audit(given).check_promise()
    Audit(promise(sound, stages=(A,))).check_promise()


def test_rounds_are_composed_where_the_job_composes_them():
    plan = calibrate(init_specs(TUNED), 1.0)
    whole = PromisedPlan(rounds=plan.rounds, epsilon=1.0, delta=1e-6)
    assert composed(plan.rounds, promise(whole)) == (pytest.approx(plan.epsilon), 1e-6)
    assert composed((), promise(whole)) == (None, None)
    assert composed(plan.rounds, promise(whole, whole)) == (None, None)
    assert composed(plan.rounds, promise(whole, chunk=plan.rounds)) == (None, None)
    for less in ({"epsilon": None}, {"delta": None}):
        assert composed(plan.rounds, promise(dataclasses.replace(whole, **less))) == (None, None)
    assert composed((), promise()) == (None, None)


def test_what_spends_more_than_its_plan_says_is_refused_wherever_it_stands():
    plan = calibrate(init_specs(TUNED), 1.0)
    whole = PromisedPlan(rounds=plan.rounds, epsilon=1.0, delta=1e-6)
    less = dataclasses.replace(whole, epsilon=0.9)
    for given in (promise(less), promise(whole, less), promise(less, chunk=())):
        with pytest.raises(PrivacyFlowError, match=r"must spend at most epsilon 0\.9, got 0\.99"):
            composed(plan.rounds, given)
    # Rounds that the plan does not have are composed with the others.
    with pytest.raises(PrivacyFlowError, match="must spend at most epsilon 1, got"):
        composed((*plan.rounds, *planned(5.0, "more")), promise(whole))


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_a_delta_is_between_0_and_1(delta):
    given = promise(PromisedPlan(rounds=(A,), epsilon=1.0, delta=delta))
    with pytest.raises(PrivacyFlowError, match="must have a delta between 0 and 1"):
        composed((A,), given)


def test_shares_are_paid_for(monkeypatch):
    """An epsilon that is all of the plan's leaves nothing for what sums of shares cost."""
    monkeypatch.setattr(accounting, "spent_epsilon", lambda *_: 0.5)
    shared = PromisedPlan(rounds=(A,), epsilon=1.0, delta=1e-6, shares=ShareLaw(threshold=2))
    assert composed((A,), promise(shared)) == (with_shares(0.5, [A]), 1e-6)
    with pytest.raises(PrivacyFlowError, match="must spend at most epsilon"):
        composed((A,), promise(dataclasses.replace(shared, epsilon=0.5)))
    assert composed((A,), promise(dataclasses.replace(shared, epsilon=0.5, shares=None))) == (0.5, 1e-6)
    costs = [composed((A,), promise(dataclasses.replace(shared, shares_cost=each)))[0] for each in (-0.25, 0.25)]
    assert costs == [math.nextafter(each, 1.0) for each in (0.5, 0.75)]
    with pytest.raises(PrivacyFlowError, match="must spend at most epsilon"):
        composed((A,), promise(dataclasses.replace(shared, shares_cost=math.nan)))


def altered(**changes):
    (release,) = planned(2.0)[0].releases
    noise = changes.pop("noise_multiplier", release.noise_multiplier)
    release = dataclasses.replace(release, spec=dataclasses.replace(release.spec, **changes), noise_multiplier=noise)
    return [dataclasses.replace(planned(2.0)[0], releases=(*planned(3.0)[0].releases, release))]


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"sensitivity": 1}, {"shape": ()}, {"shape": (0,)}, {"noise_multiplier": 1e-300},
        {"noise_multiplier": np.float64(2.0)}, {"geometry": Geometry.SYMMETRIC},
        {"mechanism": Mechanism.DISCRETE_LAPLACE},
    ],
)  # fmt: skip
def test_plain_values_pass(changes):
    check_values(altered(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"sensitivity": 0}, {"sensitivity": True}, {"sensitivity": 2.0}, {"sensitivity": np.int64(4)}, {"shape": (-1,)},
        {"shape": [3]}, {"shape": (3, 4.0)}, {"shape": (3, True)}, {"noise_multiplier": 0.0},
        {"noise_multiplier": math.inf}, {"noise_multiplier": math.nan}, {"noise_multiplier": 2}, {"geometry": "vector"},
        {"mechanism": "discrete_gaussian"}, {"windows": 0}, {"windows": True}, {"windows": 1.0}, {"name": "a/b"},
        {"name": b"a"},
    ],
)  # fmt: skip
def test_values_that_only_equal_plain_ones_are_refused(changes):
    with pytest.raises(PrivacyFlowError, match="the plan of round must have a mechanism"):
        check_values(altered(**changes))


def test_a_graph_draws_what_was_planned_once_each():
    check_spent((A, B), (1, 2), promise(PromisedPlan(rounds=(B, A)), declared=(1, 2)))
    given = promise(PromisedPlan(rounds=(A, B)))
    for rounds, extra, missing in [
        ((A,), "none", "b"),
        ((A, A, B), "a", "none"),
        ((A, C), "c", "b"),
        ((), "none", "a, b"),
    ]:
        with pytest.raises(PrivacyFlowError, match=f"got {extra} besides and {missing} left out"):
            check_spent(rounds, (), given)
    for declared in [(), (2, 1), (1,), (1, 2, 2)]:
        with pytest.raises(PrivacyFlowError, match=f"got {len(declared)} where it has 2, or others"):
            check_spent((), declared, promise(declared=(1, 2)))
    assert paths([A, C]) == "a, c"


def test_a_mechanism_declares_nothing_on_its_own():
    found = DeclaredMechanism()
    assert (found.measured(), found.understatement()) == (None, None)
    with pytest.raises(NotImplementedError, match="must declare what it spends"):
        found.declared()


# Starting points.


def refused(must, remedy):
    return PrivacyFlowError(f"Step must {must}; {remedy}.")


def test_files_are_listed_once_and_clients_are_those_of_one_column():
    audit = Audit(promise())
    for listed, holds in [(None, True), (("a", "b"), True), (("a", "b", "a"), False)]:
        found = Source(path="lake", files=listed)
        if holds:
            audit.read([found], refused)
        else:
            with pytest.raises(PrivacyFlowError, match="list every file once"):
                audit.read([found], refused)
    contracts = [
        TableContract(features=("x",), n_features=1, client_id=name, by_client=True) for name in ("user", "patient")
    ]
    audit.read([contracts[0]], refused)
    audit.read([contracts[0]], refused)
    rows = TableContract(features=("x",), n_features=1, client_id="other")
    audit.read([rows], refused)
    with pytest.raises(PrivacyFlowError, match="read the clients of one column, got several columns"):
        audit.read([contracts[1]], refused)


def test_rows_are_not_created():
    audit = Audit(promise())
    audit.start([1, "a"], refused)
    for rows in (Source(path="lake"), ShardRef(path="lake", row_group=0, n_rows=1)):
        with pytest.raises(PrivacyFlowError, match="create public values, got references to rows"):
            audit.start([(1, rows)], refused)


def test_a_run_starts_from_audited_objects():
    sentinel = object()
    with pytest.raises(PrivacyFlowError, match="be handed objects of audited types, got one of builtins:object"):
        Audit(promise()).start([sentinel], refused)
    Audit(promise(), also=[sentinel]).start([sentinel], refused)


@pytest.mark.parametrize(
    ("created", "key"),
    [
        ((3, MEANS), 3),
        (MEANS, None),
        ([3, MEANS], None),
        ((3, MEANS, 4), None),
        (("3", MEANS), None),
        ((True, MEANS), None),
    ],
)
def test_a_state_is_that_of_the_run_by_whose_number_it_stands(created, key):
    audit = Audit(promise())
    audit.start([created], refused)
    assert audit._states == [(key, MEANS)]


def test_rounds_start_from_a_state_of_their_unit():
    def starts(*states, unit=PrivacyUnit.CLIENT, key=None, n_features=5):
        audit = Audit(promise())
        audit._states = [(key, types.SimpleNamespace(privacy_unit=types.SimpleNamespace(kind=each))) for each in states]
        for each in audit._states:
            each[1].frame = types.SimpleNamespace(lattice=types.SimpleNamespace(center=np.zeros(n_features)))
            each[1].settings = None
        audit._measured = [(None, shaped(), PromisedPlan(rounds=(), unit=unit), refused)]
        audit.finish()

    starts(PrivacyUnit.CLIENT)
    starts(unit=None)
    for states, more, said in [
        ((), {}, "no state of its graph"),
        ((PrivacyUnit.RECORD,), {}, "a state of the other unit"),
        ((PrivacyUnit.CLIENT, PrivacyUnit.RECORD), {}, "a state of the other unit"),
        ((PrivacyUnit.CLIENT,), {"key": 3}, "no state of its graph"),
    ]:
        with pytest.raises(PrivacyFlowError, match=f"whose privacy unit is client, got {said}"):
            starts(*states, **more)
    with pytest.raises(PrivacyFlowError, match="as many columns as its state, got sums of shape"):
        starts(PrivacyUnit.CLIENT, n_features=7)


@pytest.mark.parametrize(
    ("key", "states", "passes"),
    [
        (None, {None: "client", 0: "record"}, False),
        (0, {0: "client", None: "record"}, False),
        (0, {0: "client", 1: "record"}, True),
        (0, {None: "client"}, False),
        (None, {None: "client", 0: "client"}, True),
    ],
)
def test_a_state_of_the_unit_hides_no_other_that_the_round_could_start_from(key, states, passes):
    audit = Audit(promise())
    frame = types.SimpleNamespace(lattice=types.SimpleNamespace(center=np.zeros(5)))
    for number, unit in states.items():
        of_unit = types.SimpleNamespace(kind=PrivacyUnit(unit))
        audit._states.append((number, types.SimpleNamespace(privacy_unit=of_unit, frame=frame, settings=None)))
    audit._measured = [(key, shaped(), PromisedPlan(rounds=(), unit=PrivacyUnit.CLIENT), refused)]
    if passes:
        audit.finish()
        return
    with pytest.raises(PrivacyFlowError, match="whose privacy unit is client, got"):
        audit.finish()


def shaped():
    """The round with sums of ten clusters, of rows of five columns."""
    sums, counts = PLAN.releases
    sums = dataclasses.replace(sums, spec=dataclasses.replace(sums.spec, shape=(10, 5)))
    return ROUND._replace(plan=dataclasses.replace(PLAN, releases=(sums, counts)))


# Rounds, whatever runs them.

PLAN = round_of(sums=1 << 20, counts=1 << 20)
ROUND = Round(plan=PLAN, statistic=means_statistic, step=means_step)
ROWS = TableContract(features=("x",), n_features=1)
CLIENTS = TableContract(features=("x",), n_features=1, client_id="user", by_client=True)


def shadowed():
    found = functools.partial(means_statistic)
    found.extra = 1
    return found


@pytest.mark.parametrize(
    ("changes", "plan", "contract", "said"),
    [
        ({}, {}, ROWS, None),
        ({"statistic": functools.partial(means_statistic)}, {}, ROWS, None),
        ({}, {"unit": PrivacyUnit.CLIENT}, CLIENTS, None),
        ({"plan": round_of(sums=1 << 21, counts=1 << 20)}, {}, ROWS, "belong to a round of the plan, got test"),
        ({"plan": dataclasses.replace(PLAN, path="other")}, {}, ROWS, "belong to a round of the plan, got other"),
        ({"statistic": functools.partial(means_statistic, weights=(2, 1))}, {}, ROWS, "which one unit moves by"),
        ({"statistic": functools.partial(means_statistic, weights=(2, 1))}, {"unit": PrivacyUnit.CLIENT}, CLIENTS,
         "read windows by the client list of their epoch"),
        ({}, {"replaces": True}, ROWS, "state the sensitivity of its statistic, got 1048576 lattice units for sums"),
        ({}, {"unit": PrivacyUnit.CLIENT}, ROWS, "read rows by client, got single rows"),
        ({"statistic": shadowed()}, {}, ROWS, "got a partial application with an attribute of its own"),
        ({"statistic": lambda block, state: block}, {}, ROWS, "which is not audited"),
        ({"statistic": means_step}, {}, ROWS, "got a statistic that states no sensitivity"),
        ({"step": print}, {}, ROWS, "be handed objects of audited types"),
        ({}, {}, types.SimpleNamespace(by_client=True, participation=None), "be handed objects of audited types"),
    ],
)  # fmt: skip
def test_a_round_is_checked_without_a_graph(changes, plan, contract, said):
    audit = Audit(promise(PromisedPlan(rounds=(PLAN,), **plan)))
    if said is None:
        audit.measure(None, ROUND._replace(**changes), [contract], refused)
    else:
        with pytest.raises(PrivacyFlowError, match=said):
            audit.measure(None, ROUND._replace(**changes), [contract], refused)


def test_a_round_is_drawn_once():
    audit = Audit(promise(PromisedPlan(rounds=(A, B))))
    audit.draw(A, refused)
    for plan in (A, C):
        with pytest.raises(PrivacyFlowError, match=f"drawn before, got {plan.path}"):
            audit.draw(plan, refused)
    with pytest.raises(PrivacyFlowError, match="got none besides and b left out"):
        audit.finish()
    audit.draw(B, refused)
    assert audit.finish().rounds == (A, B)


def test_plans_of_the_paper_are_composed_too():
    plan = calibrate(init_specs(PAPER), 1.0, 1e-6, PAPER)
    whole = PromisedPlan(rounds=plan.rounds, epsilon=1.0, delta=1e-6)
    assert composed(plan.rounds, promise(whole)) == (pytest.approx(plan.epsilon, rel=1e-9), 1e-6)


def test_a_text_in_place_of_a_mechanism_is_seen_in_the_plan_of_a_round_itself():
    """It equals the planned one, and the weaker rule would apply to it."""
    first = PLAN.releases[0]
    text = dataclasses.replace(first, spec=dataclasses.replace(first.spec, mechanism=str(first.spec.mechanism)))
    forged = dataclasses.replace(PLAN, releases=(text, *PLAN.releases[1:]))
    assert forged == PLAN
    with pytest.raises(PrivacyFlowError, match="must have a mechanism, a geometry"):
        check_round(ROUND._replace(plan=forged), PromisedPlan(rounds=(PLAN,)), [ROWS], refused)
