"""What a report shows of released centers: which features tell them apart, how they lie, which nearly coincide."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

COINCIDENT = 0.1
"""Centers nearer to each other than this share of the typical distance nearly coincide."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CenterSummary:
    """Post-processing of released centers, so as private as they are.

    Attributes:
      centers: shape (k, d), feature units, finite.
      sizes: shape (k,), noisy.
      names: d names.
      spread: shape (d,): stddev across clusters, feature units.
      numbers: k numbers of the clusters.
    """

    centers: NDArray[np.float64]
    sizes: NDArray[np.float64]
    names: tuple[str, ...]
    spread: NDArray[np.float64]
    numbers: tuple[int, ...]

    @classmethod
    def of(
        cls,
        centers: NDArray[np.float64],
        sizes: NDArray[np.float64],
        names: Sequence[str],
        numbers: tuple[int, ...] = (),
    ) -> "CenterSummary":
        """Summary of k centers; features without a name get their number, clusters without numbers 0, 1, ..."""
        known = [str(name) for name in names[: centers.shape[1]]]
        known += [f"feature {index}" for index in range(len(known), centers.shape[1])]
        finite = np.nan_to_num(np.asarray(centers, dtype=np.float64))
        return cls(
            centers=finite,
            sizes=np.nan_to_num(sizes),
            names=tuple(known),
            spread=scaled_stddev(finite),
            numbers=numbers or tuple(range(len(finite))),
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
        """Centers minus their mean over clusters, over `spread`, shape (k, d); zero where centers do not differ."""
        offsets = self.centers - self.centers.mean(axis=0)
        return offsets / np.where(self.spread > 0.0, self.spread, 1.0)

    def top_features(self, most: int) -> NDArray[np.int64]:
        """The features with the largest spread, largest first."""
        return np.argsort(-self.spread, kind="stable")[:most]

    def largest_clusters(self, most: int) -> NDArray[np.int64]:
        """The clusters with the largest noisy sizes, in the order of their numbers."""
        return np.sort(np.argsort(-self.sizes, kind="stable")[:most])

    def plane(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates of the centers along their two widest directions, and the shares of the spread these hold.

        Returns:
          shape (k, 2), feature units, and shape (2,); missing directions are zero. Signs are fixed: the largest
          entry of a direction is positive.
        """
        offsets = self.centers - self.centers.mean(axis=0)
        scale = float(np.abs(offsets).max(initial=0.0))
        if not scale > 0.0:
            return np.zeros((self.n_clusters, 2)), np.zeros(2)
        left, singular, right = np.linalg.svd(offsets / scale, full_matrices=False)
        signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
        coordinates = left * singular * signs * scale
        shares = singular**2 / (singular**2).sum()
        pad = max(0, 2 - coordinates.shape[1])
        return np.pad(coordinates, ((0, 0), (0, pad)))[:, :2], np.pad(shares, (0, pad))[:2]

    def coincident(self) -> list[tuple[int, int]]:
        """Pairs of centers whose distance is below `COINCIDENT` of the root mean square distance."""
        distances = self._distances()
        pairs = np.triu_indices(self.n_clusters, 1)
        typical = float(np.sqrt(np.mean(distances[pairs] ** 2))) if len(pairs[0]) else 0.0
        near = np.flatnonzero(distances[pairs] <= COINCIDENT * typical)
        return [(int(pairs[0][index]), int(pairs[1][index])) for index in near]

    def _distances(self) -> NDArray[np.float64]:
        """Distances between centers, shape (k, k), in units of the largest coordinate."""
        scaled = self.centers / max(float(np.abs(self.centers).max(initial=0.0)), 1e-300)
        return np.stack([np.linalg.norm(scaled - center, axis=1) for center in scaled])


def scaled_stddev(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stddev of every column, shape (d,); columns of any magnitude do not overflow."""
    scale = np.maximum(np.abs(rows).max(axis=0, initial=0.0), 1e-300)
    return (rows / scale).std(axis=0) * scale
