"""Requests to the accountant, and exact figures of what plans spend."""

import itertools
import math

import mpmath

from dapple_dp.schemas.core.plan import (
    Allocation,
    Geometry,
    Mechanism,
    PrivacyUnit,
    ReleasePlan,
    ReleaseSpec,
    RoundPlan,
    RoundSpec,
)
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.privacy import plan_cache

GAUSSIAN, LAPLACE = Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE
TUNED, PAPER = Allocation.TUNED, Allocation.PAPER
SHARES = {TUNED: (0.35, 0.10, 0.45, 0.10), PAPER: (0.20, 0.20, 0.45, 0.15)}


def spec(name="sums", shape=(10, 100), mechanism=GAUSSIAN, share=1.0, sensitivity=1 << 20, geometry=Geometry.VECTOR):
    return ReleaseSpec(
        name=name, shape=shape, mechanism=mechanism, sensitivity=sensitivity, share=share, geometry=geometry
    )


def init_specs(allocation, shares=None, lloyd_steps=0) -> tuple[RoundSpec, ...]:
    """The releases of FedDP-Init, d = 100, k = 10."""
    outer, weights, sums, counts = shares or SHARES[allocation]
    noise = GAUSSIAN if allocation is TUNED else LAPLACE
    means = (spec("sums", (10, 100), GAUSSIAN, sums), spec("counts", (10,), noise, counts))
    scatter = spec("scatter", (5050,), GAUSSIAN, outer, 1 << 32, Geometry.SYMMETRIC)
    rounds = [
        RoundSpec(path="init/outer", releases=(scatter,)),
        RoundSpec(path="init/weights", releases=(spec("histogram", (300,), noise, weights),)),
        RoundSpec(path="init/centers", releases=means),
    ]
    return (*rounds, *(RoundSpec(path=f"lloyd/{step}", releases=means) for step in range(lloyd_steps)))


def one_round(spec: ReleaseSpec, path="round") -> tuple[RoundSpec, ...]:
    return (RoundSpec(path=path, releases=(spec,)),)


def planned(multiplier: float, path="round", **kwargs) -> tuple[RoundPlan, ...]:
    return (RoundPlan(path=path, releases=(ReleasePlan(spec=spec(**kwargs), noise_multiplier=multiplier),)),)


def calibrate(rounds, epsilon=1.0, delta=1e-6, allocation=TUNED):
    return accounting.calibrate(PrivacyUnit.RECORD, rounds, epsilon, delta, allocation, plan_cache)


def multipliers(plan) -> list[float]:
    return [release.noise_multiplier for each in plan.rounds for release in each.releases]


def gaussian_delta(multiplier: float, epsilon):
    """Delta of a continuous Gaussian mechanism (Balle, Wang 2018, Theorem 8)."""
    shift = mpmath.mpf(1) / (2 * multiplier)
    return mpmath.ncdf(shift - epsilon * multiplier) - mpmath.exp(epsilon) * mpmath.ncdf(-shift - epsilon * multiplier)


def exact_delta(rounds, epsilon):
    """Delta of Gaussian releases and randomized responses, by cases of the responses."""
    plans = [release for each in rounds for release in each.releases]
    pure = [1.0 / each.noise_multiplier for each in plans if each.spec.mechanism is LAPLACE]
    merged = 1.0 / math.sqrt(sum(each.noise_multiplier**-2 for each in plans if each.spec.mechanism is GAUSSIAN))
    total = mpmath.mpf(0)
    for signs in itertools.product((1, -1), repeat=len(pure)):
        losses = [sign * mpmath.mpf(each) for sign, each in zip(signs, pure, strict=True)]
        weight = mpmath.fprod(1 / (1 + mpmath.exp(-loss)) for loss in losses)
        total += weight * gaussian_delta(merged, epsilon - mpmath.fsum(losses))
    return total
