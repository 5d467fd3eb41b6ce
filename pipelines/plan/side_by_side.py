"""What a plan sets side by side: noise and the public bounds of each column, and one job at several epsilons."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.planned_fit import feature_names
from dapple_dp.pipelines.ledger.remaining import Budget
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.statement import odds
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.core.statistics.frame import Box

if TYPE_CHECKING:
    from dapple_dp.pipelines.plan.expected import Expected

_Ends = NDArray[np.float64]
_FOUND = 4.0
"""A cluster of so many noise stddevs is above two of them in 19 of 20 runs; a report takes a smaller one for empty."""


def against_bounds(expected: "Expected") -> list[dict[str, Any]]:
    """Noise in a coordinate of a center of an average cluster beside the bounds of its column, in the column's unit.

    Returns:
      A record per feature that has bounds, of column, noise, lower and upper; none where no noise is known before.
    """
    noise, frame, encoder = expected.center_noise, expected.fit.initial.frame, expected.encoder
    if noise is None or frame.components is not None:
        return []
    n_features = len(frame.lattice.center)
    names = feature_names(expected.config.data.features, encoder, n_features)
    low, high, scale = _ends(encoder, frame.box, n_features)
    return [
        {"column": name, "noise": noise * step, "lower": lower, "upper": upper}
        for name, step, lower, upper in zip(names, scale.tolist(), low.tolist(), high.tolist(), strict=True)
        if math.isfinite(upper - lower)
    ]


def _ends(encoder: Encoder | None, box: Box | None, n_features: int) -> tuple[_Ends, _Ends, _Ends]:
    """Ends of each feature in the unit of its column, and how long a step of the feature is there."""
    ends = np.array([[-np.inf], [np.inf]]) * np.ones(n_features)
    if box is not None:
        ends = np.array([[box.low], [box.high]]) * np.ones(n_features)
    if encoder is None:
        return ends[0], ends[1], np.ones(n_features)
    own = np.stack(encoder.bounds)
    known = np.isfinite(own).all(axis=0) & ~encoder.in_percent
    finite = np.where(known, own, np.array([[0.0], [1.0]]))
    shown = encoder.decoded(finite)
    scale = (shown[1] - shown[0]) / (finite[1] - finite[0])
    return np.where(known, shown[0], -np.inf), np.where(known, shown[1], np.inf), scale


def at_epsilons(expected: "Expected", epsilons: Sequence[float], *, in_stream: bool) -> list[dict[str, Any]]:
    """The same job at other epsilons, ascending: what it would spend, cost and say, and whether the ledger has room.

    Args:
      expected: the job, simulated.
      epsilons: each > 0.
      in_stream: whether it is the next window of a stream.

    Returns:
      A record for each; with `refused`, a sentence, where no noise has its law on the lattice. `odds`: at most so
      probably somebody who gives even odds to whether a unit is there, and knows all others, guesses right.
    """
    return [_at(expected, epsilon, in_stream=in_stream) for epsilon in sorted(set(epsilons))]


def _at(expected: "Expected", epsilon: float, *, in_stream: bool) -> dict[str, Any]:
    try:
        other = expected.at(epsilon)
    except ConfigError as error:
        return {"epsilon": epsilon, "refused": str(error)}
    ledger = other.config.ledger
    budget = None if ledger is None else Budget.of(ledger, other.charge(in_stream=in_stream))
    columns = against_bounds(other)
    shares = [each["noise"] / (each["upper"] - each["lower"]) for each in columns]
    return {
        "epsilon": epsilon,
        "cost": other.simulated.mean,
        "excess": other.excess if math.isfinite(other.excess) else None,
        "size_noise": other.size_noise,
        "smallest_cluster": None if other.size_noise is None else _FOUND * other.size_noise,
        "odds": odds(other.fit.plan.epsilon, other.fit.plan.delta),
        "center_noise": other.center_noise,
        "columns": columns,
        "share_of_bounds": max(shares, default=None),
        "fits": None if budget is None else not budget.refused,
    }


def words(found: Sequence[dict[str, Any]], unit: str) -> list[str]:
    """A line for each, under one of heads."""
    heads = ("epsilon", "cost per row", "over no noise", f"noise of a size, {unit}", "noise of a center", "ledger")
    rows = [heads, *(_cells(each) for each in found)]
    return [
        "",
        "The same job at other epsilons:",
        *(f"  {line}" for line in in_columns(rows)),
        *(f"  at {each['epsilon']:g}: {each['refused']}" for each in found if "refused" in each),
    ]


def in_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A line for each row, with its cells below those of the others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in rows]


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    if "refused" in found:
        return (f"{found['epsilon']:g}", *("-",) * 4, "refused")
    share, noise = found["share_of_bounds"], found["center_noise"]
    center = "unknown"
    if noise is not None:
        center = f"{noise:.3g} feature units" if share is None else f"{share:.2%} of the bounds"
    return (
        f"{found['epsilon']:g}",
        f"{found['cost']:.5g}",
        "-" if found["excess"] is None else f"{found['excess']:+.1%}",
        "-" if found["size_noise"] is None else f"{found['size_noise']:.4g}",
        center,
        {None: "none", True: "fits", False: "refused"}[found["fits"]],
    )
