"""Registration of types that a third party has audited: the one way to run code that Dapple doesn't list.

Every `privacy.json` that the process writes names them.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.core import known_objects
from dapple_dp.transforms.core.audited_types import AUDITED_TYPES
from dapple_dp.transforms.core.known_objects import name_of

NEIGHBOR_TESTS = 200
"""Runs of a neighbor test, each with a separate random stream."""

NeighborTest = Callable[[np.random.Generator], tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A registered type.

    Attributes:
      kind: the type itself.
      name: "module:Name" of the type.
      neighbor_test: "module:name" of the test that was run.
      largest: the largest part of its bound by which one privacy unit moved the statistic in any run.
    """

    kind: type
    name: str
    neighbor_test: str
    largest: float

    def to_json(self) -> dict[str, object]:
        """Returns its entry in `privacy.json`."""
        return {
            "type": self.name,
            "neighbor_test": self.neighbor_test,
            "runs": NEIGHBOR_TESTS,
            "largest_part_of_bound": self.largest,
        }


def register_audited(kind: type, *, neighbor_test: NeighborTest) -> Extension:
    """Makes a type known to the privacy-flow checker, and marks every run of this process as extended.

    By registering a type you vouch for it: its methods may run on private rows. The neighbor test runs
    `NEIGHBOR_TESTS` times; it can't prove the bound.

    Args:
      kind: a class at the top level of a module; its objects may have the fields of a dataclass only.
      neighbor_test: draws a data set and a neighbor of it from the generator, computes the statistic of both with an
        object of the type, and returns their distance and the stated sensitivity, in one unit.

    Raises:
      PrivacyFlowError: if the type has no name or is listed already, or if the neighbor test finds a larger move than
        the stated sensitivity, or no move at all.
    """
    name, test = name_of(kind), name_of(neighbor_test)
    if name is None or test is None or not isinstance(kind, type):
        raise PrivacyFlowError(
            "a registered type and its neighbor test must be defined at the top of a module; move them there."
        )
    if name in AUDITED_TYPES:
        raise PrivacyFlowError(f"{name} is already audited and needs no registration; leave it as it is.")
    extension = Extension(kind=kind, name=name, neighbor_test=test, largest=_largest_move(name, neighbor_test))
    known_objects.REGISTERED[kind] = extension.to_json()
    return extension


def _largest_move(name: str, neighbor_test: NeighborTest) -> float:
    """Returns the largest part of the stated sensitivity that one unit moved; raises PrivacyFlowError."""
    largest = 0.0
    for seed in range(NEIGHBOR_TESTS):
        moved, stated = neighbor_test(np.random.default_rng(seed))
        if not (0.0 <= moved <= stated and 0.0 < stated < math.inf):
            raise PrivacyFlowError(
                f"one privacy unit must move the statistics of {name} by at most their sensitivity, {stated}, got "
                f"{moved}; bound its rows."
            )
        largest = max(largest, float(moved / stated))
    if largest == 0.0:
        raise PrivacyFlowError(
            f"the neighbor test of {name} must move its statistic at least once; make it draw neighbors that differ."
        )
    return largest
