"""Records of privacy by hand: plans and released tables, charges, statements, promises and shares."""

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.choices import ReportMode, Trust
from dapple_dp.schemas.core import unit
from dapple_dp.schemas.core.plan import (
    TRUSTED_ZONE,
    Geometry,
    GraphPrivacy,
    LatticeNoise,
    Mechanism,
    PrivacyPlan,
    PrivacyUnit,
    Promise,
    PromisedPlan,
    ReleasePlan,
    ReleaseSpec,
    RoundPlan,
    Zone,
)
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.privacy import charge as charges
from dapple_dp.schemas.privacy.charge import Charge, Limit, canonical
from dapple_dp.schemas.privacy.noise_shares import ShareLaw, n_corrupt, n_gone
from dapple_dp.schemas.privacy.release_table import RELEASE_SCHEMA, releases_from_table, releases_to_table
from dapple_dp.schemas.privacy.statement import PrivacyStatement, statement_from_json
from dapple_dp.schemas.privacy.wrong_statements import wrong_statements
from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE, NOT_PRIVATE_METADATA
from tests.scenes.ledgers import charge, gaussian

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE


def plan_of(multiplier=2.5, shape=(2, 3), mechanism=GAUSSIAN, name="sums"):
    spec = ReleaseSpec(name=name, shape=shape, mechanism=mechanism, sensitivity=3, share=1.0)
    return ReleasePlan(spec=spec, noise_multiplier=multiplier)


MASKED = {"noise_by": "aggregator", "scheme": "shared_secret"}


def statement_of(**more):
    usual = {"unit": PrivacyUnit.RECORD, "neighboring_relation": "add_or_remove_one", "epsilon": 1.0, "delta": 1e-6}
    return PrivacyStatement(**usual | {"events": ({"path": "a"},), "trust": Trust.CENTRAL} | more)


# Plans and releases.


def test_scales_and_sizes_of_plans():
    assert (plan_of().noise_scale, plan_of().noise_stddev, plan_of().spec.size) == (7.5, 7.5, 6)
    laplace = plan_of(mechanism=LAPLACE)
    assert (laplace.noise_scale, laplace.noise_stddev) == (8.0, 8.0 * math.sqrt(2.0))
    assert plan_of(mechanism=LAPLACE, multiplier=2.0).noise_scale == 6.0
    assert (laplace.spec.windows, laplace.spec.geometry) == (1, Geometry.VECTOR)
    rounds = RoundPlan(path="run/first", releases=(plan_of(), plan_of(shape=(4,))))
    assert rounds.size == 10


def test_a_round_is_found_by_its_whole_name():
    rounds = tuple(RoundPlan(path=path, releases=()) for path in ("run/a-first", "run/first", "first/other"))
    plan = PrivacyPlan(unit=PrivacyUnit.RECORD, epsilon=1.0, delta=1e-6, discretization_slack=0.0, rounds=rounds)
    assert plan.round("first") is rounds[1]
    assert plan.round("run/a-first") is rounds[0]
    with pytest.raises(KeyError):
        plan.round("irst")


def test_a_table_of_releases_holds_all_that_is_promised_and_nothing_may_be_missing():
    assert all(not each.nullable for each in RELEASE_SCHEMA)
    release = Release(path="run/first/sums", plan=plan_of(), values=np.arange(6).reshape(2, 3), lattice_unit=0.25)
    table = releases_to_table([release])
    assert table.schema == RELEASE_SCHEMA
    assert table.to_pylist() == [
        {
            "path": "run/first/sums",
            "tells": "",
            "role": "other",
            "quantity": "rows or clients",
            "settles": False,
            "shape": [2, 3],
            "mechanism": "discrete_gaussian",
            "geometry": "vector",
            "noise_multiplier": 2.5,
            "sensitivity": 0.75,
            "sensitivity_lattice": 3,
            "noise_stddev_lattice": 7.5,
            "lattice_unit": 0.25,
            "values_lattice": [0, 1, 2, 3, 4, 5],
        }
    ]
    (back,) = releases_from_table(table)
    assert dataclasses.replace(back.plan.spec, share=1.0) == release.plan.spec
    assert (back.path, back.plan.noise_multiplier, back.lattice_unit) == ("run/first/sums", 2.5, 0.25)
    assert back.values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (release.decoded.tolist(), release.stddev) == ([[0, 0.25, 0.5], [0.75, 1.0, 1.25]], 1.875)
    assert math.isnan(Release(path="x", plan=plan_of(), values=release.values).lattice_unit)
    assert release.with_unit(0.5).lattice_unit == 0.5
    assert isinstance(table, pa.Table)


# Charges.


@pytest.mark.parametrize(
    ("events", "is_gaussian"),
    [
        ((), False),
        (({"mechanism": "discrete_gaussian", "noise_multiplier": 1e-9},), True),
        (({"mechanism": "discrete_gaussian", "noise_multiplier": 0.0},), False),
        (({"mechanism": "discrete_gaussian"},), False),
        (({"mechanism": "discrete_laplace", "noise_multiplier": 2.0},), False),
        (
            (
                {"mechanism": "discrete_gaussian", "noise_multiplier": 2.0},
                {"mechanism": "discrete_laplace", "noise_multiplier": 2.0},
            ),
            False,
        ),
    ],
)
def test_a_charge_is_gaussian_if_all_of_it_is_known_gaussian_noise(events, is_gaussian):
    assert charge(events=events).is_gaussian is is_gaussian


def test_charges_have_no_lattice_noise_and_no_limit_a_basic_part_unless_said():
    assert charge().noise == LatticeNoise(0.0, 0.0, 0.0, 0.0)
    limit = Limit(epsilon=1.0, delta=1e-6)
    assert (limit.basic_epsilon, limit.basic_delta, limit.unit) == (0.0, 0.0, None)


def _relative(features, path="run/round/sums", sensitivity=1 << 26, mechanism="discrete_gaussian", **more):
    event = {"path": path, "mechanism": mechanism, "shape": [4, features], "sensitivity_lattice": sensitivity}
    return charge(events=(event | {"noise_multiplier": 1.0},), **{"corrections": 0} | more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (_relative(1025), "thousands of others"),
        (_relative(1024), "could lie far outside"),
        (_relative(1025, corrections=1), None),
        (_relative(4097, "run/mean/sums"), "thousands of others"),
        (_relative(4096, "run/mean/sums"), "could lie far outside"),
        (_relative(8192, "run/mean/sums"), "thousands of others"),
        (_relative(1025, sensitivity=(1 << 26) - 1), None),
        (_relative(1025, sensitivity=1 << 27), "thousands of others"),
        (_relative(1025, path="run/round/counts"), None),
        (_relative(1025, mechanism="discrete_laplace"), None),
        (charge(), None),
    ],
)
def test_too_small_charges_of_earlier_versions_are_reported(found, said):
    assert (found.correction is None) is (said is None)
    assert said is None or said in found.correction


def test_a_charge_is_the_same_by_all_but_its_corrections():
    held = gaussian(2.0, noise=LatticeNoise(0.1, 0.2, 0.3, 0.4))
    content = held.to_json()
    assert content["noise"] == {"lower": 0.1, "mean": 0.2, "square": 0.3, "largest": 0.4}
    assert content["corrections"] == charges._KNOWN_CORRECTIONS == 2
    assert held.equals(content)
    assert held.equals({name: value for name, value in content.items() if name != "corrections"})
    assert not held.equals(content | {"epsilon": 2.0})
    older = Charge.from_json({name: value for name, value in content.items() if name != "corrections"})
    assert older.corrections == 0
    assert Charge.from_json(content) == held
    assert not held.is_drawn_once
    assert charge(epoch={"name": "a"}).is_drawn_once


def test_a_charge_repeats_the_statement():
    statement = statement_of(epoch={"name": "week"}, unit=PrivacyUnit.CLIENT)
    found = Charge.of(statement, dataset="census", job="fit", scope="s", reason="r")
    assert (found.dataset, found.job, found.unit, found.epoch) == (
        "census",
        "fit",
        PrivacyUnit.CLIENT,
        {"name": "week"},
    )
    assert (found.epsilon, found.delta, found.events) == (1.0, 1e-6, statement.events)
    assert (found.neighboring_relation, found.scope, found.reason) == ("add_or_remove_one", "s", "r")


def test_canonical_json_is_one_text():
    assert canonical({"b": 1, "a": [1.5, None]}) == '{"a":[1.5,null],"b":1}'
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON"):
            canonical({"a": value})


# Statements and promises.


def test_a_statement_says_what_it_covers_and_whom_to_trust():
    assert statement_of().covers is None
    epoch = {"name": "week", "windows": 1200}
    assert statement_of(epoch=epoch).covers == "all 1,200 windows of epoch week together"
    assert statement_of().actors == "the pipeline is the trusted aggregator"
    masked = statement_of(trust=Trust.MASKED, masked={"roles": "of one job"} | MASKED)
    assert masked.actors.endswith("senders hold the masks; roles of one job")
    parties = masked.with_roles("of several")
    assert parties.masked == MASKED | {"roles": "of several", "one_unit": "a row of one party"}
    assert parties.actors.endswith("; roles of several; one unit is a row of one party")
    assert statement_of(trust=ReportMode.LOCAL).actors == "nobody but a client's own device is trusted"


def test_a_statement_in_json_has_what_it_has_and_no_more():
    assert statement_of().to_json() == {
        "unit": "record",
        "neighboring_relation": "add_or_remove_one",
        "epsilon": 1.0,
        "delta": 1e-6,
        "events": [{"path": "a"}],
        "trust": "central",
    }
    whole = statement_of(
        epoch={"name": "week", "windows": 2}, chosen={"a": 1}, masked={"roles": "x"}, extended=({"type": "t"},)
    )
    content = whole.to_json()
    assert content["covers"] == "all 2 windows of epoch week together"
    assert (content["chosen"], content["extended"]) == ({"a": 1}, [{"type": "t"}])
    assert statement_from_json(json.loads(json.dumps(content))) == whole
    assert statement_from_json(content | {"further": 1}) == whole


@pytest.mark.parametrize(("name", "value"), [("epsilon", -1e-9), ("delta", -1e-9)])
def test_less_than_nothing_is_not_spent(name, value):
    content = statement_of().to_json()
    assert getattr(statement_from_json(content | {name: 0.0}), name) == 0.0
    with pytest.raises(MalformedError):
        statement_from_json(content | {name: value})


def test_a_statement_follows_from_its_plan():
    plan = PrivacyPlan(unit=PrivacyUnit.CLIENT, epsilon=0.5, delta=1e-7, discretization_slack=1e-9, rounds=())
    found = PrivacyStatement.from_plan(plan, [{"path": "a"}], chosen={"b": 1})
    assert found == statement_of(unit=PrivacyUnit.CLIENT, epsilon=0.5, delta=1e-7, chosen={"b": 1})


@pytest.mark.parametrize(
    ("epsilon", "delta", "holds"),
    [
        (1.0, 1e-6, True),
        (1.0 + 0.9e-9, 2e-6, True),
        (1.0 + 1.2e-9, 1e-6, False),
        (1.0 - 1.2e-9, 1e-6, False),
        (None, 1e-6, False),
        (1.0, None, False),
    ],
)
def test_a_graph_must_compose_to_the_plan(epsilon, delta, holds):
    found = GraphPrivacy(epsilon=epsilon, delta=delta, extended=({"type": "t"},))
    if not holds:
        with pytest.raises(PrivacyFlowError, match="must compose to the planned epsilon 1, got"):
            statement_of().of_graph(found)
        return
    stated = statement_of().of_graph(found)
    assert (stated.epsilon, stated.delta, stated.extended) == (epsilon, delta, ({"type": "t"},))


def test_a_promise_names_the_rounds_whose_noise_a_graph_draws():
    first, second = (RoundPlan(path=path, releases=()) for path in "ab")
    plans = (PromisedPlan(rounds=(first,)), PromisedPlan(rounds=(second,)))
    assert Promise(zone=Zone.PUBLIC, plans=plans).noised == (first, second)
    assert Promise(zone=Zone.PUBLIC, plans=plans, stages=(second,)).noised == (second,)
    assert Promise(zone=Zone.PUBLIC, plans=plans, chunk=(first,), stages=(second,)).noised == (first,)
    assert Promise(zone=Zone.PUBLIC, plans=plans, stages=()).noised == ()
    assert plans[0].replaces is False
    assert Promise(zone=Zone.TRUSTED) == TRUSTED_ZONE
    assert NOT_PRIVATE["private"] is False
    assert json.loads(NOT_PRIVATE_METADATA["dapple.private"]) is False


def test_units_as_values():
    row, client = unit.unit_of(PrivacyUnit.RECORD, 7), unit.unit_of(PrivacyUnit.CLIENT, 7)
    assert (row, client) == (unit.Rows(), unit.Clients(7))
    assert unit.unit_of(PrivacyUnit.CLIENT) == unit.Clients(1) == unit.Clients()
    assert (row.rows, row.share(0.25), row.simulated(9)) == (1, 1.0, 0)
    assert (client.share(0.25), client.simulated(9)) == (0.25, 9)
    assert unit.UNITS[PrivacyUnit.CLIENT] is unit.Clients


# Shares of noise.


def test_colluders_and_dropouts_are_counted_in_decimal_digits():
    assert [n_corrupt(0.07, n) for n in (99, 100, 101)] == [6, 7, 7]
    assert [n_gone(0.07, n) for n in (99, 100, 101)] == [7, 7, 8]
    assert (n_corrupt(0.29, 100), n_gone(0.29, 100)) == (29, 29)


def test_factors_are_those_of_ten_thousand_senders():
    assert ShareLaw(threshold=9000, corrupt=0.05, dropout=0.3).factors() == (10_000 / 6_500, 7_000 / 6_500)
    assert ShareLaw(threshold=9).factors() is None


@pytest.mark.parametrize(
    ("settings", "whole"),
    [({"threshold": 1}, True), ({"threshold": 2}, False), ({"threshold": 1, "dropout": 0.1}, False)],
)
def test_a_share_is_whole_if_one_sender_is_enough(settings, whole):
    assert ShareLaw(**settings).is_whole is whole


def test_colluders_count_only_where_clients_are_listed():
    law = ShareLaw(threshold=10, corrupt=0.5, dropout=0.25)
    assert (law.counted(None), law.fewest(None)) == (10, 10)
    assert law.counted(40) == 30 - 20
    assert ShareLaw(threshold=3, corrupt=0.5, dropout=0.0).counted(2) == 2
    assert ShareLaw(threshold=9, corrupt=0.25, dropout=0.0).quorum(8) == 6


@pytest.mark.parametrize(("corrections", "version", "is_wrong"), [
    (0, "0.2.0", True), (1, "0.2.0", True), (2, "0.2.0", False), (3, "0.2.0", False), (1, "0.1.0", False),
    (1, None, True), (2, None, False),
])  # fmt: skip
def test_what_a_version_said_wrongly_is_named_until_it_knows_the_corrections(corrections, version, is_wrong):
    """A run whose version nobody wrote down may be of any."""
    found = wrong_statements(
        gaussian(5.0, job="fit", corrections=corrections), {} if version is None else {"dapple-dp": version}
    )
    assert bool(found) == is_wrong
    assert all("clustered" not in each for each in found)
