"""The budget of a profile: PipelineDP's accountant composes all mechanisms by privacy loss distributions.

It turns public settings into a `ProfilePlan` and reads no data. PipelineDP passes noise of trees and thresholds to its
library as (epsilon, delta); `_AIM` covers the digits that this loses.
"""

import collections
import dataclasses
import functools

from pipeline_dp.aggregate_params import MechanismType
from pipeline_dp.budget_accounting import MechanismSpec, PLDBudgetAccountant

from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.statement import NEIGHBORING_RELATION, PrivacyStatement
from dapple_dp.schemas.profile.config import ProfileConfig
from dapple_dp.schemas.profile.plan import ProfileEvent, ProfileLaw, ProfilePlan, uncalibrated
from dapple_dp.transforms.core.accounting import MIN_DELTA

MOST_EPSILON = 1000.0
_AIM = 1.0 - 1e-3
_GAUSSIAN_TREES = (0.25, 30.0)
"""Noise multipliers for which PipelineDP can describe Gaussian trees to its library; for others, delta is 0 or 1."""
_TYPES = {
    ProfileLaw.GAUSSIAN: MechanismType.GAUSSIAN,
    ProfileLaw.LAPLACE: MechanismType.LAPLACE,
    ProfileLaw.GAUSSIAN_THRESHOLD: MechanismType.GAUSSIAN_THRESHOLDING,
}


def calibrate(config: ProfileConfig, n_clusters: int) -> ProfilePlan:
    """Returns the plan with the least noise that keeps all mechanisms together within (epsilon, delta).

    Noise multipliers are in the ratio 1 / sqrt(share). Percentiles get Gaussian noise if PipelineDP can draw it
    and Laplace noise otherwise. Sampling at the public rate isn't counted: it can only lower the spending.

    Args:
      config: the job.
      n_clusters: of the model.

    Raises:
      ConfigError: if epsilon or delta is out of the accountant's range.
    """
    epsilon, delta = config.privacy.epsilon, config.privacy.delta
    if delta < MIN_DELTA:
        raise ConfigError(
            f"privacy.delta must be at least {MIN_DELTA:g}, got {delta}; use about 1 / the squared number of units."
        )
    if epsilon > MOST_EPSILON:
        raise ConfigError(f"privacy.epsilon must be at most {MOST_EPSILON:g}, got {epsilon:g}; lower it.")
    plan = _calibrated(uncalibrated(config, n_clusters, ProfileLaw.GAUSSIAN))
    trees = [event.noise_multiplier for event in plan.events if event.path.startswith("profile/percentiles/")]
    lowest, highest = _GAUSSIAN_TREES
    if all(lowest <= multiplier <= highest for multiplier in trees):
        return plan
    return _calibrated(uncalibrated(config, n_clusters, ProfileLaw.LAPLACE))


def _calibrated(plan: ProfilePlan) -> ProfilePlan:
    """Returns the plan with the noise of each event."""
    total = sum(event.share for event in plan.events)
    keys = tuple((event.law, (event.share / total) ** 0.5) for event in plan.events)
    return dataclasses.replace(
        plan,
        events=tuple(map(_with_noise, plan.events, _normalized_stddevs(keys, plan.epsilon, plan.delta))),
    )


def _with_noise(event: ProfileEvent, noise: tuple[float, float]) -> ProfileEvent:
    """Returns the event with stddev / sensitivity and the delta of its threshold."""
    per_multiplier = dataclasses.replace(event, noise_multiplier=1.0).normalized_stddev
    return dataclasses.replace(event, noise_multiplier=noise[0] / per_multiplier, threshold_delta=noise[1])


@functools.lru_cache(maxsize=64)
def _normalized_stddevs(
    keys: tuple[tuple[ProfileLaw, float], ...], epsilon: float, delta: float
) -> list[tuple[float, float]]:
    """Returns stddev / sensitivity and threshold delta, for each law and weight; equal ones are composed at once."""
    interval = max(min(1e-3, epsilon / 1000.0), epsilon / 20_000.0)
    accountant = PLDBudgetAccountant(_AIM * epsilon, delta, pld_discretization=interval)
    thresholds = [accountant.request_budget(_TYPES[law], weight=weight) for law, weight in keys if _is_threshold(law)]
    counts = collections.Counter(key for key in keys if not _is_threshold(key[0]))
    specs = {
        (law, weight): accountant.request_budget(_TYPES[law], weight=weight, count=count)
        for (law, weight), count in counts.items()
    }
    accountant.compute_budgets()
    chosen = iter(thresholds)
    found = (next(chosen) if _is_threshold(key[0]) else specs[key] for key in keys)
    return [(float(each.noise_standard_deviation), float(each.thresholding_delta or 0.0)) for each in found]


def _is_threshold(law: ProfileLaw) -> bool:
    """Returns whether a law has a threshold; the accountant splits delta among these, so each is requested alone."""
    return law is ProfileLaw.GAUSSIAN_THRESHOLD


def mechanism_spec(event: ProfileEvent) -> MechanismSpec:
    """Returns a calibrated event as a mechanism of PipelineDP."""
    spec = MechanismSpec(mechanism_type=_TYPES[event.law], name=event.path)
    spec.set_noise_standard_deviation(event.normalized_stddev)
    spec.set_thresholding_delta(event.threshold_delta)
    return spec


def statement(plan: ProfilePlan) -> PrivacyStatement:
    """Returns the guarantee of a profile."""
    return PrivacyStatement(
        unit=plan.unit,
        neighboring_relation=NEIGHBORING_RELATION,
        epsilon=plan.epsilon,
        delta=plan.delta,
        events=tuple(event.to_json() for event in plan.events),
        trust=Trust.CENTRAL,
    )
