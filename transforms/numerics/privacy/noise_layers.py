"""Shares of noise as a base and layers, of which those in excess can be drawn again by others and taken away.

With counts c_0 > c_1 > ... > c_L the base has 1 / c_0 of the planned variance, and layer k has 1 / c_k - 1 / c_{k-1} of
it. So a share with its first j layers has 1 / c_j. All are discrete Gaussians of `LEAST_STDDEV` or more, so a sum of
kept ones is paid for as a sum of shares is.

Every layer is drawn under a key of its own. The first key follows from the key of the sender's party, as the base does;
each further one follows from the one before, and none leads back. So whoever is given the key of the first layer in
excess draws that layer and all later ones again, and learns nothing of the base or of the layers that are kept.

Source: Jiang, Wang, Chen (2024), arXiv 2209.12528, Section 3; the chain of keys is our own.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from schemas.privacy.plan import ReleasePlan, RoundPlan
from transforms.numerics.privacy import noise, noise_shares
from transforms.numerics.privacy.keystream import KeyStream, encode_label

_ROUNDING = 1.0 + 2.0**-50
"""Multipliers are rounded up, so that kept layers have at least their part of the variance."""
_LAYER, _FIRST, _NEXT = (f"dapple: {what}" for what in ("a layer of noise", "the first layer", "the next layer"))


def layer_of(plan: ReleasePlan, counts: Sequence[int], number: int) -> ReleasePlan:
    """The law of one layer.

    Args:
      plan: of the release, with all of its noise.
      counts: of `ShareLaw.counts`.
      number: of the layer, from 1 to len(counts) - 1.

    Raises:
      ProtocolError: if a coordinate's stddev would be below `LEAST_STDDEV`.
    """
    part = math.sqrt(Fraction(1, counts[number]) - Fraction(1, counts[number - 1]))
    layer = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * part * _ROUNDING)
    remedy = "set masked.excess_noise: kept, lower privacy.epsilon or have fewer senders"
    noise_shares.check_stddev(layer, f"layer {number} of {plan.spec.name} among {counts[0]} senders", remedy)
    return layer


def draw_layered(
    key: bytes, sender: bytes, round_plan: RoundPlan, statistic: NDArray[np.int64], counts: Sequence[int]
) -> tuple[NDArray[np.int64], bytes]:
    """One sender's share with all of its layers, and the key of the first layer.

    Args:
      key: 32 bytes of the sender's party alone.
      sender: its name.
      round_plan: the planned noise.
      statistic: int64, shape (round_plan.size,), what the share is added to.
      counts: of `ShareLaw.counts`.

    Returns:
      int64, shape (round_plan.size,), lattice units; and 32 octets.

    Raises:
      ProtocolError, ValueError: as `draw_share`.
    """
    share = noise_shares.draw_share(key, sender, round_plan, statistic, counts[0])
    digest = hashlib.sha256(statistic.astype("<i8").tobytes()).digest()
    laws = encode_label(*(_law(plan, plan.noise_scale) for plan in round_plan.releases))
    label = encode_label(_FIRST, sender, round_plan.path, laws, encode_label(*counts), digest)
    first = KeyStream(key, label).uint64(4).tobytes()
    return share + layers_from(first, 1, round_plan, counts), first


def layer_keys(first: bytes, n_layers: int) -> tuple[bytes, ...]:
    """Keys of layers 1, ..., `n_layers`, and what follows from the last one, by which they can be told to be right."""
    keys = [first]
    for _ in range(n_layers):
        keys.append(KeyStream(keys[-1], encode_label(_NEXT)).uint64(4).tobytes())
    return tuple(keys)


def layers_from(key: bytes, number: int, round_plan: RoundPlan, counts: Sequence[int]) -> NDArray[np.int64]:
    """What one sender's layers `number`, ..., len(counts) - 1 add to its share: int64, shape (round_plan.size,).

    Args:
      key: of layer `number`; never read for a layer that is not there.
      number: >= 1.
      round_plan: the planned noise.
      counts: of `ShareLaw.counts`.

    Raises:
      ProtocolError: if a layer would be too small.
    """
    total = np.zeros(round_plan.size, dtype=np.int64)
    numbers = range(number, len(counts))
    for each, layer_key in zip(numbers, layer_keys(key, len(numbers)), strict=False):
        total += np.concatenate(
            [_drawn(layer_key, round_plan.path, plan, counts, each) for plan in round_plan.releases]
        )
    return total


def _drawn(key: bytes, path: str, plan: ReleasePlan, counts: Sequence[int], number: int) -> NDArray[np.int64]:
    """One layer of one release."""
    layer = layer_of(plan, counts, number)
    return noise.planned_noise(KeyStream(key, encode_label(_LAYER, path, _law(plan, layer.noise_scale))), layer)


def _law(plan: ReleasePlan, scale: float) -> bytes:
    """What tells the noise of one release from another."""
    return encode_label(plan.spec.name, str(plan.spec.geometry), float(scale), encode_label(*plan.spec.shape))
