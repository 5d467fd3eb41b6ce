"""Server steps of the central tree: pure functions of releases and public data, one per kind of round."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ClippingCenter
from dapple_dp.schemas.core.plan import ReleasePlan
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.tree_config import CentralTreeFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.central_tree.state import TreeSettings, TreeState
from dapple_dp.transforms.kmeans.lloyd.server import await_means
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans import bounds, scatter, tree
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans, Prior
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.kmeans.tree import Hyperplanes, Rule, Tree

KEEP_NOISE = 10.0
"""A leaf is kept if its mean is known, in the subspace, to within the radius divided by this number."""

FIRST_PARTS = 4
"""Equal parts over which a client's rows are assumed to spread at first; a wrong guess costs no privacy."""


def initial_state(config: CentralTreeFit, server: NDArray[np.float64], n_features: int) -> TreeState:
    """Returns the state before the first round, from public data only.

    Args:
      config: the job, with a `tree` section.
      server: shape (q, d), feature units: public points, for the center if the job asks for that.
      n_features: d.

    Raises:
      ConfigError: if the job's center has another width.
    """
    return start_state(
        TreeSettings.from_config(config), Frame(Lattice(_center(config, server, n_features), config.tree.radius))
    )


def _center(config: CentralTreeFit, server: NDArray[np.float64], n_features: int) -> NDArray[np.float64]:
    """Returns the public center of the ball, shape (d,)."""
    if config.clipping.center is ClippingCenter.SERVER_MEAN:
        return np.asarray(server.mean(axis=0))
    given = config.tree.center or (0.0,) * n_features
    if len(given) != n_features:
        raise ConfigError(
            f"tree.center must have {n_features} numbers, one per feature, got {len(given)}; list them in the order "
            "of the features."
        )
    return np.array(given, dtype=np.float64)


def start_state(settings: TreeSettings, frame: Frame) -> TreeState:
    """Returns the state before the first round in any public frame, for protocols that start with this tree.

    Raises:
      ConfigError: if the tree has fewer leaves than centers are asked for.
    """
    n_clusters = settings.means.n_clusters
    if n_clusters > settings.n_leaves:
        raise ConfigError(
            f"n_clusters must be at most {settings.n_leaves}, the number of leaves of a tree of depth "
            f"{settings.depth}, got {n_clusters}; ask for fewer clusters, or choose a start without a tree."
        )
    n_features = len(frame.lattice.center)
    lattice.check_features(n_features, lattice.SUM_BITS)
    no_server = np.zeros((0, n_features))
    return TreeState(settings=settings, frame=frame, server=no_server, basis=np.eye(n_features))


def _with_hyperplanes(state: TreeState, normals: NDArray[np.float64], offsets: NDArray[np.float64]) -> TreeState:
    """Returns the state with a tree that consists of its root.

    Args:
      state: so far.
      normals: shape (d, depth), unit vectors.
      offsets: shape (depth,), centered feature units.
    """
    hyperplanes = Hyperplanes(Projection.from_basis(normals), np.rint(offsets / state.unit))
    root = Tree(hyperplanes, (), state.settings.n_cells(0))
    return dataclasses.replace(state, tree=root, bound=_unit_bound(state, np.ones(FIRST_PARTS)))


def shape_step(state: TreeState, releases: Releases) -> TreeState:
    """Handles the scatter: lays half-spaces through or near the middle of the data, inside the principal subspace."""
    settings, norm = state.settings, state.frame.lattice.clipping_norm
    units = (norm**2 * 2.0 ** (-2 * lattice.OUTER_BITS), state.unit, 1.0 / lattice.SUM_UNITS)
    done = tuple(release.with_unit(unit) for release, unit in zip(releases, units, strict=False))
    n_rows = float(settings.means.public_rows or 0)
    if len(done) > 2:
        n_rows = max(float(done[2].decoded[0]), done[2].stddev)
    mean = done[1].decoded[0] / n_rows
    covariance = scatter.unpack_symmetric(done[0].decoded) / n_rows - np.outer(mean, mean)
    n_dims = min(settings.means.n_clusters, len(mean))
    basis = scatter.top_eigenvectors(covariance, n_dims)
    normals = basis @ tree.spread_directions(n_dims, settings.depth, settings.means.seed)
    variances = np.einsum("dl,de,el->l", normals, covariance, normals)
    stddevs = np.minimum(np.sqrt(np.maximum(variances, 0.0)), norm)
    offsets = mean @ normals + tree.spread_offsets(stddevs, settings.means.seed)
    state = dataclasses.replace(state, n_rows=n_rows, basis=basis, releases=(*state.releases, *done))
    return _with_hyperplanes(state, normals, offsets)


def split_step(state: TreeState, releases: Releases, of_leaves: ReleasePlan) -> TreeState:
    """Handles a histogram of cells: divides the open nodes and decides which parts stay open.

    Args:
      state: with a tree.
      releases: the histogram.
      of_leaves: plan of the leaves' sums, whose noise sets how many rows a leaf needs.
    """
    release = releases[0].with_unit(state.bound / lattice.SUM_UNITS)
    divided, settings = state.partition, state.settings
    step = len(divided.tables)
    n_open, width = len(state.open_counts), tree.widths(settings.depth)[step]
    cells = release.decoded[: n_open << width].reshape(n_open, 1 << width)
    n_rows = state.n_rows or float(settings.means.public_rows or max(cells.sum(), release.stddev))
    state = dataclasses.replace(state, n_rows=n_rows, releases=(*state.releases, release))
    rule = _rule(state, release.stddev, of_leaves)
    fringe = tree.settle(tree.divide(cells, rule), rule, len(state.leaf_counts), settings.n_open(step + 1))
    leaf_counts = np.concatenate([state.leaf_counts, fringe.leaf_counts])
    grown = divided._replace(tables=(*divided.tables, fringe.table))
    if step + 1 == len(tree.widths(settings.depth)):
        grown = tree.complete(grown, leaf_counts, settings.n_leaves)
    else:
        grown = grown._replace(size=settings.n_cells(step + 1))
    bound = _unit_bound(state, np.concatenate([fringe.open_counts, leaf_counts]))
    return dataclasses.replace(state, tree=grown, open_counts=fringe.open_counts, leaf_counts=leaf_counts, bound=bound)


def _rule(state: TreeState, cell_stddev: float, of_leaves: ReleasePlan) -> Rule:
    """Returns the rule for keeping a node: its mean would be known well enough or it is half a cluster, not noise."""
    n_dims = state.basis.shape[1]
    sums_stddev = of_leaves.noise_stddev / lattice.SUM_UNITS * state.bound
    known = KEEP_NOISE * math.sqrt(n_dims) * sums_stddev
    half_cluster = (state.n_rows or 0.0) / (2 * state.settings.means.n_clusters)
    return Rule(max(min(known, half_cluster), tree.KEEP_STDDEVS * cell_stddev), cell_stddev)


def _unit_bound(state: TreeState, counts: NDArray[np.float64]) -> float:
    """Returns the norm of the relative histogram of a unit with rows from all of the data; never more than before."""
    unit, weights = state.privacy_unit, counts / counts.sum()
    collision = float((weights**2).sum())
    return min(state.bound, unit.share(math.sqrt(collision + (1.0 - collision) / unit.rows)))


class ClusteredLeaves(NamedTuple):
    """Leaves as points, with the cluster of each.

    Attributes:
      points: shape (n, d), centered feature units; leaves first, then stand-ins if leaves are too few.
      weights: shape (n,).
      proxy_costs: costs by which the number of clusters was chosen; empty if it was given.
      clustering: of the points, in the subspace.
    """

    points: NDArray[np.float64]
    weights: NDArray[np.float64]
    proxy_costs: NDArray[np.float64]
    clustering: seeding.Clustering


def noisy_leaves(state: TreeState, releases: Releases) -> NoisyMeans:
    """Returns the sums and counts of the leaves, feature units, from releases with their units."""
    sums, counts = releases
    n_leaves = min(len(state.leaf_counts), state.settings.n_leaves)
    return NoisyMeans(sums.decoded[:n_leaves], counts.decoded[:n_leaves], sums.stddev, counts.stddev)


def clustered_leaves(state: TreeState, leaves: NoisyMeans) -> ClusteredLeaves:
    """Clusters the means of the leaves by k-means."""
    settings = state.settings.means
    points, weights = _points(state, leaves)
    n_clusters, proxy_costs = settings.n_clusters, np.zeros(0)
    if settings.chooses:
        proxy_costs = seeding.clustering_costs(
            points @ state.basis, weights, n_clusters, settings.restarts, settings.seed
        )
        n_clusters = seeding.elbow(proxy_costs)
    projected = points @ state.basis
    clustering = seeding.weighted_kmeans(projected, weights, n_clusters, settings.restarts, settings.seed)
    return ClusteredLeaves(points, weights, proxy_costs, clustering)


def leaves_step(state: TreeState, releases: Releases) -> MeansState:
    """Handles the sums of the leaves: runs k-means on their means, and returns a state for Lloyd rounds."""
    settings = state.settings.means
    sums, counts = (
        releases[0].with_unit(state.unit * state.bound),
        releases[1].with_unit(state.bound / lattice.SUM_UNITS),
    )
    leaves = noisy_leaves(state, (sums, counts))
    points, weights, proxy_costs, clustering = clustered_leaves(state, leaves)
    prior, n_clusters, n_leaves = _prior(state, leaves, clustering), len(clustering.centers), len(leaves.counts)
    centered = state.frame.lattice._replace(center=np.zeros(points.shape[1]))
    integers = lattice.quantize(prior.means, centered, lattice.SUM_BITS)
    members = np.bincount(clustering.labels[:n_leaves], minlength=n_clusters)
    found = MeansState(
        settings=settings,
        server=points + state.frame.lattice.center,
        frame=state.frame,
        samples=_pseudo_clients(state, weights),
        n_rows=state.n_rows,
        assigner=Assigner(integers),
        prior=prior,
        centers=integers * state.unit,
        sizes=np.bincount(clustering.labels[:n_leaves], leaves.counts, n_clusters).astype(np.float64),
        size_stddevs=counts.stddev * np.sqrt(np.maximum(members, 1)),
        counted="in the leaves of the tree that belong to each cluster",
        proxy_costs=proxy_costs,
        releases=(*state.releases, sums, counts),
    )
    return await_means(found, absolute=True)


def _points(state: TreeState, leaves: NoisyMeans) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the means of the leaves inside the clipping ball, centered feature units, and their weights.

    If there are fewer leaves than clusters, public points without weight stand in for the missing ones.
    """
    settings, norm = state.settings.means, state.frame.lattice.clipping_norm
    centered = state.frame.lattice._replace(center=np.zeros(leaves.sums.shape[1]))
    means = lattice.quantize(leaves.means, centered, lattice.SUM_BITS) * state.unit
    n_missing = max(settings.n_clusters - len(means), 0)
    stand_ins = seeding.points_in_ball(n_missing, means.shape[1], norm, settings.seed)
    return np.concatenate([means, stand_ins]), np.concatenate([leaves.safe_counts, np.zeros(n_missing)])


def _prior(state: TreeState, leaves: NoisyMeans, clustering: seeding.Clustering) -> Prior:
    """Returns the mean of the leaves of each cluster, and its expected squared error by noise alone."""
    n_leaves, n_clusters = len(leaves.counts), len(clustering.centers)
    members = (clustering.labels[:n_leaves, None] == np.arange(n_clusters)).astype(np.float64)
    n_members = members.sum(axis=0)
    pooled = NoisyMeans(
        members.T @ leaves.sums, members.T @ leaves.safe_counts, leaves.sums_stddev, leaves.counts_stddev
    )
    known = n_members > 0
    means = np.where(known[:, None], pooled.means, clustering.centers @ state.basis.T)
    variances = np.where(known, n_members * pooled.variances, state.frame.lattice.clipping_norm**2)
    return Prior(means, variances)


def _pseudo_clients(state: TreeState, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns pseudo-clients whose rows are leaves drawn by weight; none at record level."""
    unit, seed = state.privacy_unit, state.settings.means.seed
    return seeding.weighted_clients(weights, unit.rows, unit.simulated(bounds.PSEUDO_CLIENTS), seed)
