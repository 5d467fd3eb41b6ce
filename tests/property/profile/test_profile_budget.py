"""All mechanisms of a profile together, composed by another accountant, stay within any budget."""

import pytest

from dapple_dp.transforms.profile.accounting import calibrate
from tests.scenes.profiles import composed, config


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_all_mechanisms_together_spend_at_most_the_budget(unit, epsilon):
    plan = calibrate(config(unit, epsilon), 5)
    assert 0.97 * epsilon < composed(plan) <= epsilon


@pytest.mark.parametrize(("epsilon", "law"), [(0.05, "laplace"), (1.0, "gaussian"), (900.0, "laplace")])
def test_trees_get_a_noise_that_pipeline_dp_can_draw(epsilon, law):
    event = calibrate(config(epsilon=epsilon), 5).event("profile/percentiles/age")
    assert str(event.law) == f"pipeline_dp_{law}"
    assert event.sensitivity == (4.0 if law == "laplace" else 2.0)
