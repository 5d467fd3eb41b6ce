"""Summary of released centers for a report: distinguishing features, noise, and centers that nearly coincide."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

COINCIDENT = 0.1
"""Centers nearly coincide if their distance is below this share of the typical distance."""

ON_A_LINE = 0.01
"""Centers are drawn on a line if their second direction has less than this share of the spread."""

_FALSE = 0.05
"""Largest share of runs in which a statement on the clusters is due to noise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CenterSummary:
    """Summary of released centers; post-processing, so it is as private as they are.

    Attributes:
      centers: shape (k, d), feature units, finite.
      sizes: shape (k,), noisy.
      names: names of the d features.
      spread: shape (d,): stddev across clusters that may not be empty, feature units.
      numbers: numbers of the k clusters.
      found: shape (k,): whether a cluster is large enough to be distinguished from an empty one.
      noise: shape (k, d): noise stddev of each coordinate, feature units; infinite if unknown.
    """

    centers: NDArray[np.float64]
    sizes: NDArray[np.float64]
    names: tuple[str, ...]
    spread: NDArray[np.float64]
    numbers: tuple[int, ...]
    found: NDArray[np.bool_]
    noise: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        centers: NDArray[np.float64],
        sizes: NDArray[np.float64],
        names: Sequence[str],
        numbers: tuple[int, ...] = (),
        least: NDArray[np.float64] | float = -math.inf,
        noise: NDArray[np.float64] | None = None,
    ) -> "CenterSummary":
        """Summarizes k centers; missing names become feature numbers, missing cluster numbers 0, 1, ...

        A cluster whose noisy size is below `least` (a number or shape (k,)) may be empty; features are then judged by
        the other clusters, if there are two. Unknown `noise` is NaN or None.
        """
        known = [str(name) for name in names[: centers.shape[1]]]
        known += [f"feature {index}" for index in range(len(known), centers.shape[1])]
        finite, counted = np.nan_to_num(np.asarray(centers, dtype=np.float64)), np.nan_to_num(sizes)
        found = counted >= least
        return cls(
            centers=finite,
            sizes=counted,
            names=tuple(known),
            spread=scaled_stddev(_judges(finite, found)),
            numbers=numbers or tuple(range(len(finite))),
            found=found,
            noise=np.full_like(finite, np.inf) if noise is None else np.nan_to_num(noise, nan=np.inf),
        )

    @property
    def n_clusters(self) -> int:
        """Number of centers."""
        return len(self.centers)

    @property
    def n_features(self) -> int:
        """Number of coordinates."""
        return self.centers.shape[1]

    @property
    def standardized(self) -> NDArray[np.float64]:
        """Centers minus the mean of nonempty clusters, over `spread`, shape (k, d); zero where centers don't differ."""
        offsets = self.centers - _judges(self.centers, self.found).mean(axis=0)
        return offsets / np.where(self.spread > 0.0, self.spread, 1.0)

    def outstanding(self, index: int, most: int) -> list[tuple[int, int]]:
        """Features in which a center is a stddev or more from the mean of nonempty clusters, and beyond noise.

        Across all clusters together, any of these is false in at most `_FALSE` of runs, if centers err by noise alone.

        Args:
          index: index of the cluster.
          most: largest number of features; those with the largest distances are kept.

        Returns:
          Pairs of a feature and 1 (above the mean) or -1 (below it), strongest first.
        """
        judges = self.found if self.found.sum() > 1 else np.ones_like(self.found)
        parts = judges / judges.sum()
        mixed = np.where(np.arange(self.n_clusters) == index, 1.0, 0.0) - parts
        known = mixed != 0.0  # Drop zero weights, since 0 times infinite (unknown) noise would be NaN.
        noise = np.sqrt(mixed[known] ** 2 @ self.noise[known] ** 2)
        sure = statistics.NormalDist().inv_cdf(1.0 - _FALSE / (2.0 * self.centers.size))
        values = self.standardized[index]
        offsets = self.centers[index] - parts @ self.centers
        clear = (np.abs(values) >= 1.0) & (np.abs(offsets) > sure * noise)
        order = np.argsort(-np.abs(values), kind="stable")
        return [(int(each), int(np.sign(values[each]))) for each in order if clear[each]][:most]

    def largest_of(self, index: int, part: slice) -> list[int]:
        """The largest of some features of a center, and those that may be larger without noise.

        Across all clusters and parts together, the truly largest one is missing in at most `_FALSE` of runs.
        """
        values, noise = self.centers[index, part], self.noise[index, part]
        order = np.argsort(-values, kind="stable")
        sure = statistics.NormalDist().inv_cdf(1.0 - _FALSE / (2.0 * self.centers.size))
        near = values[order[0]] - values <= sure * np.hypot(noise[order[0]], noise)
        return [part.start + int(each) for each in order if each == order[0] or near[each]]

    @property
    def knows_noise(self) -> bool:
        """True if the noise of every center is known."""
        return bool(np.isfinite(self.noise).all())

    def top_features(self, most: int) -> NDArray[np.int64]:
        """Indices of the features with the largest spread, largest first."""
        return np.argsort(-self.spread, kind="stable")[:most]

    def largest_clusters(self, most: int) -> NDArray[np.int64]:
        """Indices of the clusters with the largest noisy sizes, ascending."""
        return np.sort(np.argsort(-self.sizes, kind="stable")[:most])

    def plane(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Projects centers on the two widest directions of nonempty clusters; also returns their shares of the spread.

        Returns:
          shape (k, 2), feature units, and shape (2,); missing directions are zero. Signs are fixed: the largest
          entry of a direction is positive.
        """
        judges = _judges(self.centers, self.found)
        offsets = self.centers - judges.mean(axis=0)
        scale = float(np.abs(judges - judges.mean(axis=0)).max(initial=0.0))
        if not scale > 0.0:
            return np.zeros((self.n_clusters, 2)), np.zeros(2)
        _, singular, right = np.linalg.svd((judges - judges.mean(axis=0)) / scale, full_matrices=False)
        signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
        coordinates = offsets / scale @ (right * signs[:, None]).T * scale
        shares = singular**2 / (singular**2).sum()
        pad = max(0, 2 - coordinates.shape[1])
        return np.pad(coordinates, ((0, 0), (0, pad)))[:, :2], np.pad(shares, (0, pad))[:2]

    @property
    def on_a_line(self) -> bool:
        """True if the widest direction has nearly all of the spread, so that a second one would show only noise."""
        return not self.plane()[1][1] >= ON_A_LINE

    def coincident(self) -> list[tuple[int, int]]:
        """Pairs of centers whose distance is below `COINCIDENT` times the root mean square distance."""
        distances = self._distances()
        pairs = np.triu_indices(self.n_clusters, 1)
        typical = float(np.sqrt(np.mean(distances[pairs] ** 2))) if len(pairs[0]) else 0.0
        near = np.flatnonzero(distances[pairs] <= COINCIDENT * typical)
        return [(int(pairs[0][index]), int(pairs[1][index])) for index in near]

    def _distances(self) -> NDArray[np.float64]:
        """Distances between centers, shape (k, k), in units of the largest coordinate."""
        scaled = self.centers / max(float(np.abs(self.centers).max(initial=0.0)), 1e-300)
        return np.stack([np.linalg.norm(scaled - center, axis=1) for center in scaled])


def _judges(centers: NDArray[np.float64], found: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Centers that define the mean and the spread: those of nonempty clusters, or all if fewer than two are."""
    return centers[found] if found.sum() > 1 else centers


def scaled_stddev(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stddev of every column, shape (d,), without overflow for large values."""
    scale = np.maximum(np.abs(rows).max(axis=0, initial=0.0), 1e-300)
    return (rows / scale).std(axis=0) * scale
