"""k-FED: every client clusters its own rows, and the server clusters the clients' centers. Not private.

Source: Dennis, Li, Smith (2021), "Heterogeneity for the win: one-shot federated clustering", Algorithms 1 and 2;
Awasthi, Sheffet (2012) for the local algorithm.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.numerics.tables.row_sampling import order_of_rows

RESTARTS = 10
"""Of k-means on the rows of one client."""
_SERVER_RESTARTS = 20


class LocalCenters(NamedTuple):
    """Message of one client: `centers` (k', d) and the number of its rows nearest to each, `sizes` (k',)."""

    centers: NDArray[np.float64]
    sizes: NDArray[np.int64]


def local_centers(points: NDArray[np.floating], n_clusters: int, restarts: int, seed: int) -> LocalCenters:
    """Clusters one client's rows: k-means in their principal subspace, cores by the one-third rule, then Lloyd.

    Args:
      points: shape (n_rows, n_features), n_rows >= 1, in any order.
      n_clusters: k'; fewer if the client has fewer distinct rows.
      restarts: of k-means.
      seed: public.

    Returns:
      Centers without empty clusters.
    """
    rows = np.asarray(points, dtype=np.float64)
    rows = rows[order_of_rows(rows)]
    n_found = min(n_clusters, len(np.unique(rows, axis=0)))
    with one_thread():
        centered = rows - rows.mean(axis=0)
        basis = np.linalg.svd(centered, full_matrices=False)[2][:n_found]
        projected = centered @ basis.T
        rough = seeding.weighted_kmeans(projected, np.ones(len(rows)), n_found, restarts, seed)
        start = _core_means(rows, projected, rough)
        fitted = KMeans(len(start), init=start, n_init=1).fit(rows)
    sizes = np.bincount(fitted.labels_, minlength=len(start))
    return LocalCenters(fitted.cluster_centers_[sizes > 0], sizes[sizes > 0])


def _core_means(
    rows: NDArray[np.float64], projected: NDArray[np.float64], rough: seeding.Clustering
) -> NDArray[np.float64]:
    """Returns means of rows clearly nearest to each center with rows: at most a third of the distance to any other.

    If these are a minority, clusters overlap, and all rows of a center locate it better.
    """
    squared = np.stack([((projected - center) ** 2).sum(axis=1) for center in rough.centers], axis=1)
    own = squared[np.arange(len(rows)), rough.labels]
    squared[np.arange(len(rows)), rough.labels] = np.inf
    clear = 9.0 * own <= squared.min(axis=1)
    means = []
    for cluster in np.unique(rough.labels):
        members = rough.labels == cluster
        core = members & clear
        means.append(rows[core if 2 * core.sum() > members.sum() else members].mean(axis=0))
    return np.array(means)


def merged_centers(clients: list[LocalCenters], n_clusters: int, seed: int) -> NDArray[np.float64]:
    """Clusters the clients' centers, weighted by rows.

    The paper's start, farthest-first from one client's centers, is as bad as that client's local minimum. So the
    cheapest of it and of k-means++ starts is returned.

    Args:
      clients: at least one, with at least `n_clusters` centers together, in any order.
      n_clusters: >= 1.
      seed: public.

    Returns:
      Shape (n_clusters, n_features).
    """
    ordered = sorted(clients, key=lambda sent: (-len(sent.centers), sent.centers.tobytes(), sent.sizes.tobytes()))
    points = np.concatenate([sent.centers for sent in ordered])
    weights = np.concatenate([sent.sizes for sent in ordered]).astype(np.float64)
    start = _farthest_first(points, min(len(ordered[0].centers), n_clusters), n_clusters)
    with one_thread():
        fits = [
            KMeans(n_clusters, init=start, n_init=1).fit(points, sample_weight=weights),
            KMeans(n_clusters, n_init=_SERVER_RESTARTS, random_state=seed % 2**32).fit(points, sample_weight=weights),
        ]
    return np.asarray(min(fits, key=lambda fit: float(fit.inertia_)).cluster_centers_, dtype=np.float64)


def _farthest_first(points: NDArray[np.float64], n_first: int, n_clusters: int) -> NDArray[np.float64]:
    """Chooses the first `n_first` points, then repeatedly the point farthest from those chosen."""
    chosen = list(range(n_first))
    distances = np.min([((points - points[index]) ** 2).sum(axis=1) for index in chosen], axis=0)
    while len(chosen) < n_clusters:
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]
