"""What noise stages spend against what was planned, by hand; and what a graph may start from."""

import dataclasses
import math
import types

import apache_beam as beam
import numpy as np
import pytest

from schemas.errors import PrivacyFlowError
from schemas.privacy.flow import Promise, PromisedPlan, Zone
from schemas.privacy.noise_shares import ShareLaw
from schemas.privacy.plan import Geometry, Mechanism, PrivacyUnit
from schemas.tables.contract import TableContract
from tests.scenes.plans import PAPER, TUNED, calibrate, init_specs, planned
from transforms.privacy import accounting
from transforms.privacy_flow.checker import _Walk
from transforms.privacy_flow.declared_mechanism import DeclaredMechanism
from transforms.privacy_flow.graph_spending import check_chunk, check_spent, check_values, composed, paths
from transforms.privacy_flow.rules import Level, Rule
from transforms.privacy_flow.starting_points import StartingPoints
from transforms.privacy_flow.step import Step
from transforms.tables.source import Source

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
            _Walk(given).check_promise()
    _Walk(promise(sound, stages=(A,))).check_promise()


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


def test_shares_are_paid_for(monkeypatch):
    """An epsilon that is all of the plan's leaves nothing for what sums of shares cost."""
    monkeypatch.setattr(accounting, "spent_epsilon", lambda *_: 0.5)
    shared = PromisedPlan(rounds=(A,), epsilon=1.0, delta=1e-6, shares=ShareLaw(threshold=2))
    assert composed((A,), promise(shared)) == (accounting.with_shares(0.5, [A]), 1e-6)
    with pytest.raises(PrivacyFlowError, match="must spend at most epsilon"):
        composed((A,), promise(dataclasses.replace(shared, epsilon=0.5)))
    assert composed((A,), promise(dataclasses.replace(shared, epsilon=0.5, shares=None))) == (0.5, 1e-6)


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
        {"mechanism": "discrete_gaussian"},
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


def step(transform):
    node = types.SimpleNamespace(full_label="Step", transform=transform)
    return Step(node=node, rule=Rule(takes=Level.PRIVATE), mains=(), sides=())


def test_files_are_listed_once_and_clients_are_those_of_one_column():
    starts = StartingPoints()
    for listed, holds in [(None, True), (("a", "b"), True), (("a", "b", "a"), False)]:
        found = Source(path="lake", files=listed)
        if holds:
            starts.add(step(types.SimpleNamespace(source=found)))
        else:
            with pytest.raises(PrivacyFlowError, match="list every file once"):
                starts.add(step(types.SimpleNamespace(source=found)))
    contracts = [
        TableContract(features=("x",), n_features=1, client_id=name, by_client=True) for name in ("user", "patient")
    ]
    starts.add(step(types.SimpleNamespace(contract=contracts[0])))
    starts.add(step(types.SimpleNamespace(contract=contracts[0])))
    rows = TableContract(features=("x",), n_features=1, client_id="other")
    starts.add(step(types.SimpleNamespace(contract=rows)))
    with pytest.raises(PrivacyFlowError, match="read the clients of one column, got several columns"):
        starts.add(step(types.SimpleNamespace(contract=contracts[1])))


def test_rows_are_not_created():
    starts = StartingPoints()
    starts.add(step(beam.Create([1, "a"])))
    with pytest.raises(PrivacyFlowError, match="create public values, got references to rows"):
        starts.add(step(beam.Create([(1, Source(path="lake"))])))


def test_rounds_start_from_a_state_of_their_unit():
    def starts(*states, unit=PrivacyUnit.CLIENT, key=None):
        found = StartingPoints()
        found._states = [(key, types.SimpleNamespace(privacy_unit=types.SimpleNamespace(kind=each))) for each in states]
        found.measure(None, step(types.SimpleNamespace()), PromisedPlan(rounds=(), unit=unit))
        found.check_states()

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


def test_plans_of_the_paper_are_composed_too():
    plan = calibrate(init_specs(PAPER), 1.0, 1e-6, PAPER)
    whole = PromisedPlan(rounds=plan.rounds, epsilon=1.0, delta=1e-6)
    assert composed(plan.rounds, promise(whole)) == (pytest.approx(plan.epsilon, rel=1e-9), 1e-6)
