"""Noise that senders split: discrete Gaussian shares, and the distance of their sum from one discrete Gaussian.

Each sender adds a share of stddev s = sigma / sqrt(n), so that n of them have the variance of the plan. Sums of
discrete Gaussians aren't discrete Gaussians, but nearly. Let X have stddev s and Y stddev t. Then the log-ratio of
the law of X + Y and of the discrete Gaussian of variance s^2 + t^2 is at most 5 exp(-2 pi^2 / (1 / s^2 + 1 / t^2)) at
every point. So it is paid from epsilon: twice, once for each of two neighbors, for every coordinate, and for every
addition. With shares of `LEAST_STDDEV` or more this is below 1e-57 for a coordinate, for any number of shares.

Retry safety: the same key, sender, path, law and statistic give the same share. Another statistic, by one unit in one
coordinate of the round, has a share that is independent of it.

Source: Kairouz, Liu, Steinke (2021), "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation", arXiv 2102.06387, Theorem 1 and Corollary 1 (of the full version: Theorem 9).
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.core.keystream import KeyStream, encode_label

LEAST_STDDEV = 4.0
"""Smallest stddev of a share's coordinate, lattice units."""
MOST_SHARES = 1 << 31
"""Most shares and layers in a sum: as many as rows."""
_LABEL = "dapple: a share of noise"


def closeness(stddev: float, other: float) -> float:
    """Returns a bound on the log-ratio of the sum of two discrete Gaussians and one discrete Gaussian of its variance.

    Args:
      stddev: of the one, lattice units, at least 1/2.
      other: of the other, likewise.

    Source: the module docstring.
    """
    return 5.0 * math.exp(-2.0 * math.pi**2 / (stddev**-2 + other**-2))


def closeness_epsilon(rounds: Sequence[RoundPlan]) -> float:
    """Returns the cost in epsilon of sums of shares over single discrete Gaussians, for any number of shares.

    Every addition of a share of `LEAST_STDDEV` or more to a sum of such shares costs the most if there are two.
    """
    return 2.0 * sum(each.size for each in rounds) * MOST_SHARES * closeness(LEAST_STDDEV, LEAST_STDDEV)


def with_shares(epsilon: float, rounds: Sequence[RoundPlan]) -> float:
    """Returns the epsilon of rounds whose noise is a sum of shares, from that of single discrete Gaussians."""
    return math.nextafter(epsilon + closeness_epsilon(rounds), math.inf)


def check_divisible(rounds: Sequence[RoundPlan]) -> None:
    """Refuses rounds whose noise senders can't split.

    Raises:
      ConfigError: if a release has Laplace noise.
    """
    for each in rounds:
        for release in each.releases:
            if release.spec.mechanism is not Mechanism.DISCRETE_GAUSSIAN:
                raise ConfigError(
                    f"masked.noise_by clients needs Gaussian noise in every release, got {release.spec.mechanism} for "
                    f"{release.spec.name}; set privacy.allocation: tuned."
                )


def _share_of(plan: ReleasePlan, counted: int) -> ReleasePlan:
    """Returns the law of one share: `counted` of them have at least the variance of the release.

    Raises:
      ProtocolError: if a coordinate's stddev would be below `LEAST_STDDEV`.
    """
    multiplier = math.nextafter(plan.noise_multiplier / math.sqrt(counted), math.inf)
    share = dataclasses.replace(plan, noise_multiplier=multiplier)
    _check_stddev(share, f"{plan.spec.name} among {counted} senders", "lower privacy.epsilon or have fewer senders")
    return share


def _check_stddev(share: ReleasePlan, what: str, remedy: str) -> None:
    """Refuses a law of shares whose sums would be farther from one discrete Gaussian than is paid for."""
    if share.noise_scale * (math.sqrt(0.5) if share.spec.geometry is Geometry.SYMMETRIC else 1.0) < LEAST_STDDEV:
        raise ProtocolError(
            f"a share of noise must have a stddev of at least {LEAST_STDDEV:g} lattice units, got less for {what}; "
            f"{remedy}."
        )


def draw_share(
    key: bytes, sender: bytes, round_plan: RoundPlan, statistic: NDArray[np.int64], counted: int
) -> NDArray[np.int64]:
    """Draws one sender's share of a round's noise: int64, shape (round_plan.size,), lattice units.

    Args:
      key: 32 bytes of the sender's party alone.
      sender: its name.
      round_plan: the planned noise of all shares that count.
      statistic: int64, shape (round_plan.size,), to which the share is added.
      counted: number of shares that have the planned variance together.

    Raises:
      ProtocolError: if shares would be too small.
      ValueError: if the noise stage would refuse the round or the statistic.
    """
    noise.check_sum(round_plan, statistic)
    digest = hashlib.sha256(statistic.astype("<i8").tobytes()).digest()
    shares = []
    for plan in round_plan.releases:
        noise.check_release_noise(plan)
        share = _share_of(plan, counted)
        law = (plan.spec.name, str(plan.spec.geometry), float(share.noise_scale), encode_label(*plan.spec.shape))
        stream = KeyStream(key, encode_label(_LABEL, sender, round_plan.path, *law, digest))
        shares.append(noise.planned_noise(stream, share))
    return np.concatenate(shares)


def stated(releases: Sequence[Release], counted: int, n_present: int) -> tuple[Release, ...]:
    """Returns releases whose plans state the noise of all shares in them, of which the accountant counts `counted`."""
    factor = math.sqrt(n_present / counted)
    plans = (dataclasses.replace(each.plan, noise_multiplier=each.plan.noise_multiplier * factor) for each in releases)
    return tuple(dataclasses.replace(release, plan=plan) for release, plan in zip(releases, plans, strict=True))
