"""Parts of FedDP-KMeans that no job has: diameter reduction, thinning of the server data, and the rule of a third.

They are rounds and steps beside those of `fit`, for rows as units and the method as printed. Server points that no
longer take part are left out of the state; histograms keep a coordinate for each.

Source: Scott, Lampert, Saulpic (2025), Lemma 16, Algorithms 4 and 5; Awasthi, Sheffet (2012), Part 2, for the last.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from benchmarks.papers import in_memory
from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import PrivacyPlan, RoundPlan, RoundSpec
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp
from dapple_dp.transforms.kmeans.feddp_kmeans import server as feddp_server
from dapple_dp.transforms.kmeans.feddp_kmeans.state import FedDPState
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.specs import counting_mechanism, histogram_of, vector_spec
from dapple_dp.transforms.kmeans.lloyd.state import ClippingBounds

SPACING = 100.0
"""Distance of moved components, in units of their largest diameter."""
_LARGEST = float(np.finfo(np.float64).max)
_GROUPS = histogram_of("which public points have rows near them")
_THINNED = histogram_of("which public points may be dropped")
Rows = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Parts(NamedTuple):
    """Additions to FedDP-KMeans as printed.

    Attributes:
      w_min: the smallest share of a cluster.
      sigma_max: the largest stddev of a cluster in any direction.
      diameter_share: of the budget, for the histogram of Lemma 16.
      thinning: histograms of Algorithm 4; 0 leaves the server data whole.
      thinning_share: of the budget, for all of these.
      third: whether only rows count for the first means that are at most a third as far from their center as from
        every other.
    """

    w_min: float
    sigma_max: float
    diameter_share: float = 0.1
    thinning: int = 0
    thinning_share: float = 0.0
    third: bool = False


def centers(config: FitConfig, parts: Parts, server: Rows, block: ClientBlock, seed: int) -> Rows:
    """Centers of one run, shape (k, d), feature units; `config` has preset published, the rest as of `in_memory`."""
    protocol = feddp.PROTOCOL._replace(
        initial_state=_initial_state,
        round_specs=functools.partial(round_specs, parts=parts),
        rounds=functools.partial(_rounds, parts=parts),
    )
    final = in_memory.last_state(PublicFit.of(config, server, protocol), [block], seed)
    found = np.asarray(final.model().centers, dtype=np.float64)
    return final.frame.restored(found) if isinstance(final.frame, MovedFrame) else found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _State(FedDPState):
    """`FedDPState` with all server points, those that take part (q,), and those that thinning has frozen (q,)."""

    everything: Rows
    active: Mask
    frozen: Mask

    def kept(self, active: Mask, releases: Releases, **changes: Any) -> Self:
        """The state after some histograms, with the server points that are left."""
        return dataclasses.replace(
            self, server=self.everything[active], active=active, releases=(*self.releases, *releases), **changes
        )

    def scattered(self, values: Rows) -> Rows:
        """Released bins of active server points, zero elsewhere, shape (q,)."""
        spread = np.zeros(len(self.everything))
        spread[self.active] = values[: len(self.server)]
        return spread


class MovedFrame(Frame):
    """A frame of rows whose groups were moved closer to each other by public translations."""

    before: Lattice
    anchors: Rows
    shifts: Rows

    @classmethod
    def of(cls, frame: Frame, before: Lattice, anchors: Rows, shifts: Rows) -> Self:
        """The frame.

        Args:
          frame: after the moves.
          before: of the rows before they are moved.
          anchors: integers of that lattice at SUM_BITS, shape (n_anchors, n_features).
          shifts: feature units, shape (n_anchors, n_features): subtracted from rows whose nearest anchor it is.
        """
        found = cls(*frame)
        found.before, found.anchors, found.shifts = before, anchors, shifts
        return found

    def quantize(self, points: NDArray[np.floating], bits: int) -> Rows:
        """Integers of moved rows."""
        rows = lattice.quantize(points, self.before, lattice.SUM_BITS)
        with np.errstate(over="ignore"):
            moved = points - self.shifts[Assigner(self.anchors).labels(rows)]
        return super().quantize(np.clip(moved, -_LARGEST, _LARGEST), bits)

    def integers(self, points: NDArray[np.floating], bits: int) -> NDArray[np.int32]:
        """The same as int32."""
        return self.quantize(points, bits).astype(np.int32, order="C")

    def restored(self, found: Rows) -> Rows:
        """Centers, shape (n, n_features), back where the data were: each with the component of the nearest anchor."""
        moved = self.anchors * self.before.unit(lattice.SUM_BITS) + self.before.center - self.shifts
        squared = ((found[:, None, :] - moved[None, :, :]) ** 2).sum(axis=2)
        return found + self.shifts[squared.argmin(axis=1)]


class ClearRows(NamedTuple):
    """Assigns a row if its distance to its center is at most a third of that to every other."""

    centers: Rows
    projection: Projection | None

    @property
    def size(self) -> int:
        """Number of centers."""
        return len(self.centers)

    def labels(self, rows: Rows) -> NDArray[np.int64]:
        """Center of each row (integers, shape (n_rows, n_features), at SUM_BITS); -1 for one that is left out."""
        labels = Assigner(self.centers, self.projection).labels(rows)
        if len(self.centers) == 1:
            return labels
        # Scores are exact, and so are squared distances.
        compared = Assigner(self.centers, self.projection).compared(rows)
        squared = lattice.squared_norms(compared)[:, None] - (
            2.0 * (compared @ self.centers.T) - lattice.squared_norms(self.centers)
        )
        index = np.arange(len(rows))
        best = squared[index, labels]
        squared[index, labels] = np.inf
        return np.where(9.0 * best <= squared.min(axis=1), labels, -1)


def thinning_rounds(n_points: int, epsilon: float, w_min: float) -> int:
    """Histogram rounds of Algorithm 4: 10 log(4 log|Q| / (epsilon w_min)), at least one.

    Example:
      >>> thinning_rounds(300, 1.0, 0.1)
      55
    """
    return max(1, math.ceil(10.0 * math.log(max(4.0 * math.log(n_points) / (epsilon * w_min), 1.0))))


def _initial_state(config: FitConfig, server: Rows, n_features: int) -> _State:
    start = feddp_server.initial_state(config, server, n_features)
    known = {field.name: getattr(start, field.name) for field in dataclasses.fields(start)}
    whole = np.ones(len(server), dtype=np.bool_)
    assigner = Assigner(start.server_integers())
    return _State(**known | {"assigner": assigner}, everything=server, active=whole, frozen=~whole)


def round_specs(config: FitConfig, n_features: int, n_bins: int, *, parts: Parts) -> tuple[RoundSpec, ...]:
    """Every release, with the shares of the start scaled to what the other parts leave."""
    shares, steps = lloyd.shares_of(config), config.lloyd.share if config.lloyd.steps else 0.0
    scale = (1.0 - sum((steps, parts.thinning_share, parts.diameter_share))) / sum(shares)
    law = counting_mechanism(config)
    groups = vector_spec("histogram", (n_bins,), parts.diameter_share, law, meaning=_GROUPS)
    thinned = vector_spec("histogram", (n_bins,), parts.thinning_share / max(parts.thinning, 1), law, meaning=_THINNED)
    printed = {each.path.rpartition("/")[2]: each for each in feddp.round_specs(config, n_features, n_bins)}
    weights = dataclasses.replace(printed["weights"].releases[0], share=shares.weights * scale)
    releases = [("diameter", (groups,)), ("outer_product", feddp.outer_specs(config, n_features, shares[0] * scale))]
    releases += [(f"simplify_{step:02d}", (thinned,)) for step in range(parts.thinning)]
    releases += [("weights", (weights,)), ("centers", lloyd.means_specs(config, n_features, scale))]
    start = [RoundSpec(path=f"{feddp.NAME}/{name}", releases=each) for name, each in releases]
    return (*start, *lloyd.lloyd_specs(config, n_features, steps))


def _rounds(config: FitConfig, plan: PrivacyPlan, *, parts: Parts) -> tuple[Round, ...]:
    """The rounds of FedDP-KMeans, but for histograms, which have steps of their own here."""
    return tuple(_bound(each, own, parts) for each, own in zip(plan.rounds, feddp.rounds(config, plan), strict=True))


def _bound(plan: RoundPlan, own: Round, parts: Parts) -> Round:
    step = _step(plan.path.rpartition("/")[2], parts)
    return own if step is None else Round(plan, functools.partial(_histogram, size=plan.size), step, lattice.SUM_BITS)


def _step(name: str, parts: Parts) -> Any:
    if name == "diameter":
        return functools.partial(_diameter_step, parts=parts)
    if name.startswith("simplify_"):
        return functools.partial(_thinning_step, parts=parts, step=int(name.rpartition("_")[2]))
    return functools.partial(_weights_step, third=parts.third) if name == "weights" else None


def _histogram(block: ClientBlock, state: _State, *, size: int) -> NDArray[np.int64]:
    """Rows per server point that takes part, then zeros."""
    found = feddp.histogram_statistic(block, state, l1=True)
    return np.concatenate([found, np.zeros(size - len(found), dtype=np.int64)])


def _diameter_step(state: _State, releases: Releases, *, parts: Parts) -> _State:
    """Drops server points without mass and moves the components together (Lemma 16)."""
    release = releases[0].with_unit(1.0 / lattice.SUM_UNITS)
    rows, n_clusters = release.decoded, state.settings.n_clusters
    n_rows = max(float(state.settings.public_rows or rows.sum()), 2.0)
    distance = 4.0 * math.log(n_rows) * math.sqrt(state.server.shape[1]) * parts.sigma_max
    epsilon = state.settings.epsilon * parts.diameter_share
    kept = at_least(massive_points(state.server, rows, distance, n_rows, parts.w_min, epsilon), rows, n_clusters)
    frame = reduce_diameter(state.server, kept, distance, state.frame)
    return state.kept(kept, (release,), frame=frame, bounds=ClippingBounds.of_row(frame.lattice.clipping_norm))


def halve(candidates: NDArray[np.bool_], seed: int, step: int) -> NDArray[np.bool_]:
    """Keeps each candidate with probability 1/2; shape (n_points,)."""
    coins = np.random.default_rng([seed, 2, step]).random(len(candidates)) < 0.5
    return candidates & coins


def _thinning_step(state: _State, releases: Releases, *, parts: Parts, step: int) -> _State:
    """Freezes heavy server points, and keeps each of the light ones with probability 1/2 (Algorithm 4)."""
    release, settings = releases[0].with_unit(1.0 / lattice.SUM_UNITS), state.settings
    weights = state.scattered(release.decoded)
    n_rows = max(float(settings.public_rows or weights.sum()), 2.0)
    threshold = 2.0 * math.log(n_rows) / (settings.epsilon * parts.thinning_share)
    frozen = state.frozen | (state.active & (weights > threshold))
    halved = frozen | halve(state.active & ~frozen, settings.seed, step)
    active = at_least(frozen if step == parts.thinning - 1 else halved, weights, settings.n_clusters)
    return feddp_server.await_histogram(state.kept(active, (release,), frozen=frozen))


def _weights_step(state: _State, releases: Releases, *, third: bool) -> FedDPState:
    """The step of FedDP-KMeans on the server points that are left."""
    own = dataclasses.replace(releases[0], values=releases[0].values[: len(state.server)])
    found = feddp_server.weights_step(state, (own,))
    clear = ClearRows(found.known_assigner.centers, found.known_assigner.projection)
    return dataclasses.replace(found, assigner=clear) if third else found


def at_least(active: Mask, weights: Rows, n_points: int) -> Mask:
    """`active`, topped up with the heaviest other points to `n_points` where it holds fewer."""
    missing = n_points - int(active.sum())
    if missing <= 0:
        return active
    order = np.argsort(-np.where(active, -np.inf, weights), kind="stable")
    filled = active.copy()
    filled[order[:missing]] = True
    return filled


def massive_points(points: Rows, weights: Rows, distance: float, n_rows: float, w_min: float, epsilon: float) -> Mask:
    """Points, shape (q,), whose ball of radius `distance` holds many server points or much noisy mass; all if none is.

    Args:
      points: shape (q, d), feature units.
      weights: shape (q,), noisy rows per point.
      distance: D of Lemma 16, feature units.
      n_rows: public or noisy number of rows.
      w_min: smallest share of a cluster.
      epsilon: of the histogram round.
    """
    near = cdist(points, points) <= distance
    crowded = near.sum(axis=1) >= epsilon * n_rows * w_min / (200.0 * math.log(max(len(points), 2)))
    kept = crowded | (near @ weights >= n_rows * w_min / 3.0)
    return kept if kept.any() else np.ones(len(points), dtype=np.bool_)


def reduce_diameter(points: Rows, kept: Mask, distance: float, frame: Frame) -> Frame:
    """Moves the connected components of the kept points close to each other, if that makes the clipping norm smaller.

    Component i is translated so that its representative lies at (100 D' i, 0, ..., 0), D' the largest diameter of one.

    Args:
      points: shape (q, d), feature units.
      kept: shape (q,): points with enough mass.
      distance: D of Lemma 16: points nearer than this are connected.
      frame: the present frame, around the origin.
    """
    anchors = points[kept]
    distances = cdist(anchors, anchors)
    n_components, labels = connected_components(csr_array(distances < distance), directed=False)
    if n_components < 2:
        return frame
    diameter = float(np.where(labels[:, None] == labels[None, :], distances, 0.0).max())
    representative = anchors[np.unique(labels, return_index=True)[1]]
    targets = np.zeros_like(representative)
    targets[:, 0] = SPACING * max(diameter, distance / SPACING) * np.arange(n_components)
    shifts = (representative - targets)[labels]
    norm = float(np.linalg.norm(anchors - shifts, axis=1).max())
    if not norm < frame.lattice.clipping_norm:
        return frame
    integers = lattice.quantize(anchors, frame.lattice, lattice.SUM_BITS)
    return MovedFrame.of(Frame(Lattice(np.zeros(points.shape[1]), norm)), frame.lattice, integers, shifts)
