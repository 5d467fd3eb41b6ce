"""Whether the theorem on FedDP-KMeans speaks for a run, by its own assumptions; from releases and public data only."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.report.fit_view import FitView
from pipelines.page.page import Badge, Level, Notice
from schemas.choices import Algorithm


class Assumptions(NamedTuple):
    """What Theorem 2 of Scott et al. (2025) asks for, with all its constants taken as 1.

    Attributes:
      largest_norm: of a row, feature units (assumption 1).
      most_server_rows: assumption 2, for the clipping norm of the run.
    """

    largest_norm: float
    most_server_rows: float

    @classmethod
    def of(
        cls, n_rows: float, shape: tuple[int, int], norm: float, spread: float, w_min: float, epsilon: float
    ) -> "Assumptions":
        """Of a run.

        Args:
          n_rows: public or noisy, > 1.
          shape: of the centers, (k, d).
          norm: the clipping norm, feature units.
          spread: largest stddev of a cluster in any direction, feature units.
          w_min: share of the smallest cluster, in (0, 1].
          epsilon: of the run.
        """
        k, d = shape
        largest = k * math.log(n_rows) ** 2 * math.sqrt(d) * spread / (epsilon * w_min)
        return cls(largest, epsilon * n_rows * k * spread**2 / norm**2)


def of_theorem(view: FitView) -> list[Notice] | None:
    """Data that the theorem does not speak for."""
    assumed, norm = assumptions(view), view.lattice.clipping_norm
    if assumed is None:
        return None
    n_server = len(view.planned.initial.server)
    broken = []
    if norm > assumed.largest_norm:
        broken.append(f"a clipping norm of at most {assumed.largest_norm:,.3g} (it is {norm:,.3g})")
    if n_server > assumed.most_server_rows:
        broken.append(f"at most {assumed.most_server_rows:,.3g} server rows (there are {n_server:,})")
    if not broken:
        return []
    text = (
        f"The theorem that FedDP-KMeans finds well-separated clusters assumes {' and '.join(broken)}, up to constants. "
        "So it does not speak for this run. Privacy does not depend on it."
    )
    return [Notice(level=Level.NOTE, text=text, badge=Badge.RELEASED)]


def assumptions(view: FitView) -> Assumptions | None:
    """Those of a run at record level with server data; None for any other run, or where too little was released."""
    config, sizes = view.planned.config, view.result.model.noisy_sizes
    if config.algorithm is not Algorithm.FEDDP_KMEANS or view.by_client or not view.representative:
        return None
    n_rows = view.noisy_total or float(sizes.sum())
    spread = largest_spread(view.planned.initial.server, view.result.model.centers)
    if not (n_rows > math.e and spread > 0.0 and sizes.min() > 0.0):
        return None
    w_min = min(float(sizes.min()) / n_rows, 1.0)
    shape = view.result.model.centers.shape
    epsilon = config.privacy.epsilon
    return Assumptions.of(n_rows, (shape[0], shape[1]), view.lattice.clipping_norm, spread, w_min, epsilon)


def largest_spread(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Largest stddev of a cluster of public rows in any direction; 0 if no cluster has two rows.

    Args:
      rows: shape (q, d).
      centers: shape (k, d); each row belongs to the nearest.
    """
    nearest = ((centers**2).sum(axis=1) - 2.0 * rows @ centers.T).argmin(axis=1)
    found = 0.0
    for index in range(len(centers)):
        own = rows[nearest == index]
        if len(own) > 1:
            found = max(found, float(np.linalg.norm(own - own.mean(axis=0), ord=2)) / math.sqrt(len(own) - 1))
    return found
