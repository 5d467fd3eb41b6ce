"""Checks of a run's assumptions on releases and public data: whether there are clusters, and whether a theorem holds.

Centers show clusters if they explain more of the spread of the rows than centers of a single cloud would. The theorem
on FedDP-KMeans applies to a run that meets its assumptions.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.report.fit_view import FitView
from dapple_dp.pipelines.page.page import Badge, Level, Notice
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.privacy.meaning import Role
from dapple_dp.transforms.numerics.kmeans import structure
from dapple_dp.transforms.numerics.kmeans.centers import released_as
from dapple_dp.transforms.numerics.kmeans.scatter import unpack_symmetric
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

_MOST_NAMED = 8
"""Largest number of pairs that a warning names."""


class Assumptions(NamedTuple):
    """Assumptions of Theorem 2 of Scott et al. (2025), with all its constants taken as 1.

    Attributes:
      largest_norm: largest norm of a row, feature units (assumption 1).
      most_server_rows: largest number of server rows (assumption 2), for the clipping norm of the run.
    """

    largest_norm: float
    most_server_rows: float

    @classmethod
    def of(
        cls, n_rows: float, shape: tuple[int, int], norm: float, spread: float, w_min: float, epsilon: float
    ) -> "Assumptions":
        """Computes the assumptions for a run.

        Args:
          n_rows: public or noisy number of rows, > 1.
          shape: shape of the centers, (k, d).
          norm: clipping norm, feature units.
          spread: largest stddev of a cluster in any direction, feature units.
          w_min: share of the smallest cluster, in (0, 1].
          epsilon: epsilon of the run.
        """
        k, d = shape
        largest = k * math.log(n_rows) ** 2 * math.sqrt(d) * spread / (epsilon * w_min)
        return cls(largest, epsilon * n_rows * k * spread**2 / norm**2)


def of_theorem(view: FitView) -> list[Notice] | None:
    """Notes if the theorem doesn't apply to the data; None if its assumptions are unknown."""
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
        f"The theorem that FedDP-KMeans finds well-separated clusters assumes {' and '.join(broken)}, up to constants, "
        "so it doesn't apply to this run. The privacy guarantee doesn't depend on it."
    )
    return [Notice(level=Level.NOTE, text=text, badge=Badge.RELEASED)]


def assumptions(view: FitView) -> Assumptions | None:
    """Assumptions for a run at record level with server data; None for other runs, or if too little was released."""
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
      centers: shape (k, d); each row belongs to the nearest one.
    """
    nearest = NearestCenters.of(centers).labels(rows)
    result = 0.0
    for index in range(len(centers)):
        own = rows[nearest == index]
        if len(own) > 1:
            result = max(result, float(np.linalg.norm(own - own.mean(axis=0), ord=2)) / math.sqrt(len(own) - 1))
    return result


def of_clouds(view: FitView) -> list[Notice] | None:
    """Warns if the data show fewer clusters than there are centers; None if no release tells the spread.

    Also None if the noise of the centers is unknown, since noise spreads centers as clusters do.
    """
    covariance, n_clusters = covariance_of(view), view.summary.n_clusters
    if covariance is None or n_clusters < 2 or view.unknown_noise:
        return None
    sizes, noise = np.maximum(view.summary.sizes, 0.0), view.result.model.center_stddevs
    if not sizes.any() or not np.trace(covariance) > 0.0:
        return None
    found = structure.n_found(view.plain_centers, sizes, noise, covariance, view.planned.config.seed or 0)
    if found == n_clusters:
        return _of_cuts(view, structure.cut_pairs(view.plain_centers, sizes, noise, covariance))
    groups = "there may be none" if found == 1 else f"there seem to be fewer, about {found}"
    return [
        _warning(
            f"Nothing in this run shows {n_clusters} clusters: the centers explain no more of the spread of the rows "
            f"than {n_clusters} centers of one cloud without clusters would. Either {groups}, or the start missed "
            "some. The clusters below may only be parts of larger ones."
        )
    ]


def of_unknown_spread(view: FitView) -> list[Notice]:
    """Notes that clusters can't be confirmed: windows and warm starts release no spread, or the noise is unknown.

    At client level, noise and the width of cells hide the spread: in our measurements, one cloud in three passed for
    clusters, or one page in five denied clusters that exist.
    """
    n_clusters = view.summary.n_clusters
    if n_clusters < 2 or (covariance_of(view) is not None and not view.unknown_noise):
        return []
    why = "the noise of its centers is unknown" if view.unknown_noise else "it did not release the spread of the rows"
    text = (
        f"This run can't tell you whether the data has clusters, because {why}. "
        f"{n_clusters} centers cut any rows into {n_clusters} parts."
    )
    return [Notice(level=Level.NOTE, text=text, badge=Badge.RELEASED)]


def _of_cuts(view: FitView, pairs: list[tuple[int, int]]) -> list[Notice]:
    """Warns of centers that seem to share a cluster."""
    if not pairs:
        return []
    numbers = view.summary.numbers
    named = ", ".join(f"{numbers[first]} and {numbers[second]}" for first, second in pairs[:_MOST_NAMED])
    return [
        _warning(
            f"Centers {named} are as close to each other, relative to the spread of their rows, as parts of one "
            "cluster would be. One cluster may be split, and another one missed by the start: use fewer clusters or a "
            "larger epsilon."
        )
    ]


def _warning(text: str) -> Notice:
    return Notice(level=Level.WARNING, text=text, badge=Badge.RELEASED)


def covariance_of(view: FitView) -> NDArray[np.float64] | None:
    """Noisy covariance of the rows, shape (d, d), feature units squared; None if not released or mostly noise.

    None at client level, where sizes are weights.
    """
    total = view.noisy_total or float(np.maximum(view.summary.sizes, 0.0).sum())
    if view.by_client or not total >= 1.0:
        return None
    around, lengths = released_as(view.releases, Role.SCATTER), released_as(view.releases, Role.SQUARED_LENGTHS)
    release = around or lengths
    if release is None:
        return _of_cells(view)
    found = unpack_symmetric(release.decoded) / total
    if not np.trace(found) > 2.0 * math.sqrt(len(found)) * release.stddev / total:
        return None
    return found if around is not None else found - _squared(view, view.plain_centers - view.lattice.center)


def _squared(view: FitView, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Outer product of the mean of all rows, weighted by cluster sizes."""
    sizes = np.maximum(view.summary.sizes, 0.0)
    mean = sizes @ centers / max(float(sizes.sum()), 1.0)
    return np.outer(mean, mean)


def _of_cells(view: FitView) -> NDArray[np.float64] | None:
    """Estimates the covariance from a histogram over the cells of a grid in full space."""
    release, places = released_as(view.releases, Role.CELLS), view.replay.state.cells
    if release is None or places is None:
        return None
    counts = release.decoded[: len(places)]
    shares = np.where(counts > 2.0 * release.stddev, counts, 0.0)
    if not shares.any():
        return None
    shares = shares / shares.sum()
    offsets = places - shares @ places
    return np.asarray((offsets * shares[:, None]).T @ offsets)
