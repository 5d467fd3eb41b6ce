"""Table of the algorithms that run in rounds; a new one is a folder and a line here."""

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

if TYPE_CHECKING:
    from dapple_dp.schemas.kmeans.recurring.remembered import Memory

PROTOCOLS = {
    Algorithm.FEDDP_KMEANS: "feddp_kmeans.rounds:PROTOCOL",
    Algorithm.CENTRAL_TREE: "central_tree.rounds:PROTOCOL",
    Algorithm.DP_LLOYD: "lloyd_starts:PROTOCOL",
    Algorithm.DP_MEDIANS: "median_starts:PROTOCOL",
    Algorithm.SPHERICAL: "spherical.rounds:PROTOCOL",
    Algorithm.K_PROTOTYPES: "k_prototypes.rounds:PROTOCOL",
    "windows": "windows.rounds:PROTOCOL",
}
"""Place of each protocol, relative to this package. Its module is imported only for a job that needs it."""
_WARM = {
    Algorithm.DP_LLOYD: "lloyd_starts:warm",
    Algorithm.DP_MEDIANS: "median_starts:warm",
    "windows": "windows.rounds:warm",
}
"""Starts from the centers of an earlier run; other algorithms use that of `warm_start`."""


def protocol_of(algorithm: str) -> RoundsProtocol:
    """Returns the protocol of an algorithm."""
    result: RoundsProtocol = _at(PROTOCOLS[algorithm])
    return result


def warm_protocol(config: FitConfig, centers: NDArray[np.float64], memory: "Memory | None" = None) -> RoundsProtocol:
    """Returns the Lloyd rounds of a job from the centers that an earlier run released.

    Args:
      config: the job.
      centers: shape (k, d), feature units.
      memory: of the earlier run, if it has one; a window reads that of the windows before it.
    """
    result: RoundsProtocol = _at(_WARM.get(config.algorithm, "warm_start:protocol"))(centers, memory)
    return result


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"dapple_dp.transforms.kmeans.{module}"), name)
