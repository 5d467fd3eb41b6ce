"""Profile jobs, and what their mechanisms spend by another accountant."""

from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import ProfileLaw

NUMERIC = {"age": {"lower": 0, "upper": 100, "percentiles": [50]}, "pay": {"lower": 0, "upper": 9}}
CATEGORICAL = {"job": {}, "sex": {"values": ["f", "m"]}}


def config(unit="record", epsilon=1.0, delta=1e-6, **profile):
    rows = {"max_rows_per_client": 4} if unit == "client" else {}
    return ProfileConfig.model_validate(
        {
            "model": "fit",
            "data": {"path": "lake", "features": "x", "client_id": "owner"},
            "privacy": {"unit": unit, "epsilon": epsilon, "delta": delta},
            "profile": {"numeric": NUMERIC, "categorical": CATEGORICAL} | rows | profile,
        }
    )


def composed(plan):
    """Epsilon of all events, and of their thresholds, at the plan's delta."""
    accountant = PLDAccountant(value_discretization_interval=min(1e-3, plan.epsilon / 1000))
    for event in plan.events:
        if event.law is ProfileLaw.LAPLACE:
            accountant.compose(dp_event.LaplaceDpEvent(event.noise_multiplier))
        else:
            accountant.compose(dp_event.GaussianDpEvent(event.noise_multiplier))
    return accountant.get_epsilon(plan.delta - sum(event.threshold_delta for event in plan.events))
