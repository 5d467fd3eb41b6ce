"""Baselines of FedDP-KMeans that no job has: starts that read no private row, and k-FED, on rows of memory or a lake.

Starts are `server_kmeanspp` and `server_lloyds` (k-means++ and k-means of the server data) and `sphere_packing` (points
spread in the clipping ball). FedDP-Lloyds follows each with the whole budget, as it follows a warm start.

Source: Scott, Lampert, Saulpic (2025), Section 5 and Appendix G.3.
"""

import dataclasses
import functools
import itertools
import tempfile
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers import in_memory, k_fed
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig, validated
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.kmeans import warm_start
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.server import await_means, public_state
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans import centers
from dapple_dp.transforms.numerics.kmeans.centers import Prior
from dapple_dp.transforms.numerics.kmeans.starts import seeding, sphere_packing
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.rounds.local_rows import LocalRows

Rows = NDArray[np.float64]


def planned(start: str, config: FitConfig, server: Rows) -> PublicFit:
    """The Lloyd rounds of a job of feddp_kmeans after a start, as named above; `server` has shape (q, d)."""
    protocol = warm_start.protocol(server[:0])._replace(
        initial_state=functools.partial(_initial_state, start), round_specs=functools.partial(_round_specs, start)
    )
    return PublicFit.of(config, server, protocol)


def _round_specs(start: str, config: FitConfig, n_features: int, _: int) -> tuple[RoundSpec, ...]:
    specs = lloyd.round_specs(config, n_features)
    return tuple(dataclasses.replace(each, path=f"{start}/{each.path.rpartition('/')[2]}") for each in specs)


def _initial_state(start: str, config: FitConfig, server: Rows, _: int) -> MeansState:
    state = public_state(config, server)
    integers = state.integers(_start(start, state))
    state = dataclasses.replace(state, assigner=Assigner(integers))
    prior = _prior(start, state, integers * state.sum_unit)
    return await_means(dataclasses.replace(state, prior=prior), absolute=True)


def _start(start: str, state: MeansState) -> Rows:
    """Centers in centered feature units, shape (n_clusters, n_features)."""
    settings, rows = state.settings, state.server_rows()
    if start == "sphere_packing":
        half_side = state.frame.lattice.clipping_norm
        return sphere_packing.pack(settings.n_clusters, rows.shape[1], half_side, settings.seed)
    if start == "server_kmeanspp":
        return _plus_plus(rows, settings.n_clusters, settings.seed)
    everywhere = np.ones(len(rows))
    return seeding.weighted_kmeans(rows, everywhere, settings.n_clusters, settings.restarts, settings.seed).centers


def _plus_plus(points: NDArray[np.float64], n_clusters: int, seed: int) -> NDArray[np.float64]:
    """Chooses points by k-means++, shape (n_clusters, n_dims).

    Source: Arthur, Vassilvitskii (2007).
    """
    from sklearn.cluster import kmeans_plusplus

    # scikit-learn's distances lose digits for rows far from zero.
    centered = points - points.mean(axis=0)
    with one_thread():
        chosen = kmeans_plusplus(centered, n_clusters, random_state=seed % 2**32)[1]
    return np.asarray(points[chosen], dtype=np.float64)


def _prior(start: str, state: MeansState, found: Rows) -> Prior:
    """The prior of the centers by server data: strong for a mean of many points, weak for a single point."""
    if start == "sphere_packing" or not state.settings.shrinks:
        return Prior(found, np.full(len(found), np.inf))
    rows = state.server_rows()
    known = centers.public_prior(rows, state.labels(), np.ones(len(rows)), found)
    if start == "server_lloyds":
        return known
    of_one_point = known.bias / centers.PRIOR_BIAS + known.bias
    return Prior(found, np.full(len(found), of_one_point), known.bias)


class Lake(NamedTuple):
    """Rows of a lake with whole clients in its `blocks`, and `server` points, shape (q, d)."""

    blocks: tuple[ClientBlock, ...]
    server: Rows

    @classmethod
    def of(cls, job: dict[str, Any]) -> Self:
        """Reads the files of a job of feddp_kmeans that names clients."""
        fit = plan_files(validated(job))
        rows = dataclasses.replace(fit.rows, contract=dataclasses.replace(fit.contract, by_client=True))
        with (
            tempfile.TemporaryDirectory() as folder,
            own_key(folder) as key_uri,
            staged_by_client(rows, beam_options([]), key_uri, folder) as staged,
        ):
            return cls(LocalRows(staged.source).blocks(staged.contract), fit.initial.server)

    def started(self, start: str, job: dict[str, Any], seed: int) -> Rows:
        """Centers of a job after a start; `seed` is that of the noise."""
        fit = planned(start, validated(job), self.server)
        return in_memory.last_state(fit, self.blocks, seed).model().centers

    def k_fed(self, n_clusters: int, seed: int) -> Rows:
        """Centers of k-FED, which is not private."""
        clients = [
            k_fed.local_centers(block.points[start:stop], n_clusters, k_fed.RESTARTS, seed)
            for block in self.blocks
            for start, stop in itertools.pairwise(block.client_offsets)
        ]
        return k_fed.merged_centers(clients, n_clusters, seed)

    def cost(self, found: Rows) -> float:
        """Mean squared distance of the rows to the nearest center."""
        model = NearestCenters.of(found)
        squared = [model.rows(block.points).squared for block in self.blocks]
        return float(np.concatenate(squared).mean())
