"""Clients of a collection by split and mix: from parameters to a plan, and from points to messages."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.parameters import ReportGuarantee
from dapple_dp.schemas.reports.split_parameters import SplitParameters
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports.encoder import lattice_points
from dapple_dp.transforms.numerics.reports.split_and_mix import (
    VECTOR_BITS,
    VECTOR_UNITS,
    Messages,
    MessageTotals,
    SplitPlan,
    encode_client,
    leaf_centers,
    plan_sums,
)
from dapple_dp.transforms.numerics.reports.sums import DecodedCenters

_MORE_LEVELS = 3
_CLEAR_STDDEVS = 3.0
"""A leaf counts if its noisy count is this many of its noise stddevs."""


def design_split(
    config: EncodeConfig, features: tuple[str, ...], key: bytes, encoding: str | None = None
) -> SplitParameters:
    """Public parameters of a new collection.

    Args:
      config: the job; its mode is shuffle, its delta given.
      features: names, in the order of the coordinates.
      key: 16 public random bytes.
      encoding: how columns become features, or None.

    Raises:
      ConfigError: if a client would send too many messages; the sentence has the number.
    """
    n_clusters, privacy, n_clients = config.n_clusters, config.privacy, config.reports.min_batch
    needed = math.ceil(math.log2(n_clusters)) if n_clusters > 1 else 1
    depth = config.tree.depth if isinstance(config.tree.depth, int) else needed + _MORE_LEVELS
    if depth < needed:
        raise ConfigError(f"tree.depth must be at least {needed} for {n_clusters} clusters, got {depth}; raise it.")
    delta = float(privacy.delta or 0.0)
    plan = plan_sums(n_clients, 1 << depth, len(features), privacy.epsilon, delta)
    guarantee = ReportGuarantee(
        mode=config.reports.mode, local_epsilon=math.inf, epsilon=privacy.epsilon, delta=delta, min_batch=n_clients
    )
    return SplitParameters(
        n_clusters=n_clusters,
        features=features,
        radius=config.tree.radius,
        depth=depth,
        key=key,
        guarantee=guarantee,
        client_stddev=plan.client_stddev,
        modulus=plan.modulus,
        n_messages=plan.n_messages,
        encoding=encoding,
    )


def plan_of(parameters: SplitParameters) -> SplitPlan:
    """What clients and decoder agree on."""
    return SplitPlan(
        n_clients=parameters.guarantee.min_batch,
        n_leaves=1 << parameters.depth,
        n_dims=parameters.n_features + 1,
        client_stddev=parameters.client_stddev,
        modulus=parameters.modulus,
        n_messages=parameters.n_messages,
    )


def check_split(parameters: SplitParameters) -> None:
    """Refuses parameters whose noise or shares do not keep the promise, so that nobody need trust who wrote them.

    Raises:
      ConfigError: if a plan made from the promise has more noise, more shares or another modulus.
    """
    promise = parameters.guarantee
    wanted = plan_sums(promise.min_batch, 1 << parameters.depth, parameters.n_features, promise.epsilon, promise.delta)
    found = plan_of(parameters)
    same = math.isclose(found.client_stddev, wanted.client_stddev, rel_tol=1e-9)
    if not same or dataclasses.replace(found, client_stddev=wanted.client_stddev) != wanted:
        raise ConfigError(
            "parameters of split_and_mix must have the noise, shares and modulus that keep their epsilon and delta, "
            "got others; use an unchanged parameters file."
        )


def encode_clients(
    points: NDArray[np.floating], clients: list[bytes], parameters: SplitParameters, key: bytes
) -> Messages:
    """Messages of some clients, one point each; coins follow from a key, the collection, the client and its point.

    Args:
      points: shape (n, n_features), feature units, any values: clipped to the radius, NaN counts as 0.
      clients: ids, distinct.
      parameters: public.
      key: 32 secret bytes.

    Raises:
      ConfigError: if the parameters do not keep their promise.
    """
    check_split(parameters)
    plan = plan_of(parameters)
    exact = np.ascontiguousarray(points, dtype="<f8")
    lattice = lattice_points(points, parameters.radius, VECTOR_BITS)
    leaves = codebook.sides(lattice, codebook.planes(parameters.key, parameters.depth, parameters.n_features))
    parts = [Messages(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for client, row, vector, leaf in zip(clients, exact, lattice.astype(np.int64), leaves.tolist(), strict=True):
        label = encode_label("split and mix", parameters.key, client, row.tobytes())
        parts.append(encode_client(vector, leaf, plan, KeyStream(key, label)))
    return Messages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def n_clients_of(totals: MessageTotals, parameters: SplitParameters) -> int | None:
    """Clients behind the messages; None if they are not whole clients, so that their sum is a random number."""
    counts = totals.counts
    whole = bool((counts == counts[0]).all()) and counts[0] % parameters.n_messages == 0
    return int(counts[0]) // parameters.n_messages if whole else None


def decode_totals(totals: MessageTotals, parameters: SplitParameters, seed: int) -> DecodedCenters:
    """Centers in units of the radius; `seed` is public."""
    n_clients = int(totals.counts[0]) // parameters.n_messages
    stddev = parameters.client_stddev * math.sqrt(n_clients) / VECTOR_UNITS
    sums = totals.sums(plan_of(parameters))
    return leaf_centers(sums, parameters.n_clusters, seed, _CLEAR_STDDEVS * stddev)
