"""From the cells of a sweep to its curves."""

import collections

import numpy as np
import pyarrow as pa

from schemas.trusted_zone.sweep_results import POINT_SCHEMA
from transforms.numerics.trusted_zone.curves import Band, area_under, confidence_band, on_front

Curve = tuple[str, str]
"""A method and its varied settings."""


def summary(results: pa.Table) -> pa.Table:
    """Points of all curves, `POINT_SCHEMA`; of a method without privacy one point, without epsilon.

    Args:
      results: rows of `CELL_SCHEMA`.
    """
    costs = _costs(results)
    bands = {curve: {eps: confidence_band(values) for eps, values in points.items()} for curve, points in costs.items()}
    fronts = _fronts(bands)
    rows = []
    for curve, points in bands.items():
        area = _area(costs[curve])
        for epsilon, band in points.items():
            rows.append(_row(curve, epsilon, len(costs[curve][epsilon]), band, (curve, epsilon) in fronts, area))
    return pa.Table.from_pylist(rows, schema=POINT_SCHEMA)


def _costs(results: pa.Table) -> dict[Curve, dict[float | None, np.ndarray]]:
    """Costs by curve and epsilon, in the order of the seeds."""
    found: dict[Curve, dict[float | None, dict[int, float]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict)
    )
    for row in results.to_pylist():
        found[row["method"], row["settings"]][row["epsilon"]][row["seed"]] = row["cost"]
    return {
        curve: {eps: np.array([seeds[seed] for seed in sorted(seeds)]) for eps, seeds in points.items()}
        for curve, points in found.items()
    }


def _fronts(bands: dict[Curve, dict[float | None, Band]]) -> set[tuple[Curve, float | None]]:
    """Points that no other setting of their method beats at a lower or equal epsilon."""
    by_method: dict[str, list[tuple[Curve, float | None, float]]] = collections.defaultdict(list)
    for curve, band_by_epsilon in bands.items():
        by_method[curve[0]] += [(curve, epsilon, band.mean) for epsilon, band in band_by_epsilon.items()]
    found = set()
    for points in by_method.values():
        epsilons = np.array([0.0 if epsilon is None else epsilon for _, epsilon, _ in points])
        kept = on_front(epsilons, np.array([mean for _, _, mean in points]))
        found |= {(curve, epsilon) for (curve, epsilon, _), keep in zip(points, kept, strict=True) if keep}
    return found


def _area(points: dict[float | None, np.ndarray]) -> Band | None:
    """Area under a curve, seed by seed; None for a single epsilon, or where epsilons have other numbers of seeds."""
    epsilons = sorted(epsilon for epsilon in points if epsilon is not None)
    if len(epsilons) < 2 or len({len(points[epsilon]) for epsilon in epsilons}) > 1:
        return None
    return confidence_band(area_under(np.array(epsilons), np.stack([points[epsilon] for epsilon in epsilons], axis=1)))


def _row(
    curve: Curve, epsilon: float | None, n_seeds: int, band: Band, front: bool, area: Band | None
) -> dict[str, object]:
    """A row of the summary."""
    auc, auc_low, auc_high = (None, None, None) if area is None else area
    return {
        "method": curve[0],
        "settings": curve[1],
        "epsilon": epsilon,
        "n_seeds": n_seeds,
        "cost": band.mean,
        "cost_low": band.low,
        "cost_high": band.high,
        "on_front": front,
        "auc": auc,
        "auc_low": auc_low,
        "auc_high": auc_high,
    }
