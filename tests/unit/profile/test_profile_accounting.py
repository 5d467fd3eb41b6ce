"""The budget of a profile: all mechanisms together, composed by another accountant, stay within what is claimed."""

import math

import apache_beam as beam
import pipeline_dp
import pytest
from pipeline_dp.aggregate_params import MechanismType

from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, UnsupportedEventError
from dapple_dp.schemas.profile.plan import UNITS_PER_HALF_RANGE
from dapple_dp.transforms.profile.accounting import calibrate, statement
from dapple_dp.transforms.profile.pipeline_dp_noise import AddPipelineDPNoise, PlannedBudget
from tests.scenes.profiles import composed, config


def test_every_threshold_has_its_part_of_delta():
    plan = calibrate(config(categorical={"a": {}, "b": {}, "c": {"values": [1]}}), 5)
    thresholds = {event.path: event.threshold_delta for event in plan.events if event.threshold_delta}
    assert thresholds == pytest.approx({"profile/selections/a": 1.25e-7, "profile/selections/b": 1.25e-7})


def test_sensitivities_of_rows():
    plan = calibrate(config(), 5)
    assert {event.path: (event.shape, event.sensitivity) for event in plan.events} == {
        "profile/sizes/count": ((5,), 1.0),
        "profile/means/age": ((5,), UNITS_PER_HALF_RANGE),
        "profile/means/pay": ((5,), UNITS_PER_HALF_RANGE),
        "profile/percentiles/age": ((5,), 2.0),
        "profile/selections/job": (None, 1.0),
        "profile/histograms/job": (None, 1.0),
        "profile/histograms/sex": ((5, 2), 1.0),
    }


def test_sensitivities_of_clients_with_four_rows():
    plan = calibrate(config("client"), 3)
    assert {event.path: event.sensitivity for event in plan.events} == {
        "profile/sizes/count": 4.0,
        "profile/sizes/clients": math.sqrt(3),
        "profile/means/age": 4.0 * UNITS_PER_HALF_RANGE,
        "profile/means/pay": 4.0 * UNITS_PER_HALF_RANGE,
        "profile/percentiles/age": 8.0,
        "profile/selections/job": 2.0,
        "profile/histograms/job": 2.0,
        "profile/histograms/sex": 2.0,
    }


def test_shares_are_of_the_budget():
    events = {event.path: event for event in calibrate(config(shares={"sizes": 4.0}), 5).events}
    size, mean = (events[f"profile/{name}"].noise_multiplier for name in ("sizes/count", "means/age"))
    assert mean == pytest.approx(size * math.sqrt(8.0))


def test_sampling_is_not_counted_on():
    assert calibrate(config(sampling_rate=0.01), 5).events == calibrate(config(), 5).events


def test_a_single_mechanism_spends_it_all():
    plan = calibrate(config(numeric={}, categorical={}), 5)
    assert [event.path for event in plan.events] == ["profile/sizes/count"]
    assert 0.99 < composed(plan) <= 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 1e-15}, r"privacy\.delta must be at least 1e-12, got 1e-15"),
        ({"epsilon": 2000.0}, r"privacy\.epsilon must be at most 1000, got 2000"),
    ],
)
def test_a_budget_out_of_range_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(config(**settings), 5)


def test_the_statement_lists_what_is_spent():
    plan = calibrate(config(), 5)
    found = statement(plan).to_json()
    assert (found["unit"], found["neighboring_relation"], found["trust"]) == ("record", "add_or_remove_one", "central")
    assert (found["epsilon"], found["delta"]) == (1.0, 1e-6)
    assert [event["path"] for event in found["events"]] == [event.path for event in plan.events]
    first = found["events"][0]
    assert first["noise_stddev"] == first["noise_multiplier"] * first["sensitivity"]
    assert plan.unit is PrivacyUnit.RECORD


def test_a_mechanism_is_handed_out_once():
    event = calibrate(config(), 5).event("profile/sizes/count")
    budget = PlannedBudget(calibrate(config(), 5), event)
    with pytest.raises(UnsupportedEventError, match="must be the one that was accounted for, got Other"):
        budget.request_budget(MechanismType.LAPLACE, name="Other")
    assert budget.request_budget(MechanismType.GAUSSIAN).noise_standard_deviation == event.noise_multiplier
    with pytest.raises(UnsupportedEventError, match="must be the one that was accounted for"):
        budget.request_budget(MechanismType.GAUSSIAN)
    assert isinstance(budget, pipeline_dp.BudgetAccountant)


@pytest.mark.parametrize(("unit", "n_rows"), [("record", 1), ("client", 4)])
@pytest.mark.parametrize(("epsilon", "law"), [(4.0, "GAUSSIAN"), (0.05, "LAPLACE")])
def test_trees_have_the_bounds_and_the_law_that_were_accounted_for(unit, n_rows, epsilon, law, monkeypatch):
    asked, aggregate = [], pipeline_dp.DPEngine.aggregate

    def watched(engine, rows, params, *rest):
        asked.append(params)
        return aggregate(engine, rows, params, *rest)

    monkeypatch.setattr(pipeline_dp.DPEngine, "aggregate", watched)
    plan, rows = calibrate(config(unit, epsilon=epsilon), 3), beam.Pipeline() | beam.Create([])
    assert len(list(AddPipelineDPNoise(plan=plan)._percentiles({"profile/percentiles/age": rows}))) == 1
    (params,) = asked
    assert (params.max_partitions_contributed, params.max_contributions_per_partition) == (1, n_rows)
    assert params.noise_kind.name == plan.event("profile/percentiles/age").law.name == law
