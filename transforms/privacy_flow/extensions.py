"""Types that a third party audited: the one way to have a graph run with code that Dapple does not list.

A registered type is known to the checker from then on, in this process. Every `privacy.json` that the process writes
names it, so anyone who reads the guarantee sees that it also rests on that code.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from schemas.errors import PrivacyFlowError
from transforms.privacy_flow.audited_code import name_of
from transforms.privacy_flow.audited_types import AUDITED_TYPES

NEIGHBOR_TESTS = 200
"""How often a neighbor test is run, with a random stream of its own each time."""

NeighborTest = Callable[[np.random.Generator], tuple[float, float]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A registered type.

    Attributes:
      kind: the type itself.
      name: "module:Name" of the type.
      neighbor_test: "module:name" of the test that was run.
      largest: of all runs, the largest part of its bound that one privacy unit moved the statistic.
    """

    kind: type
    name: str
    neighbor_test: str
    largest: float

    def to_json(self) -> dict[str, object]:
        """What `privacy.json` says of it."""
        return {
            "type": self.name,
            "neighbor_test": self.neighbor_test,
            "runs": NEIGHBOR_TESTS,
            "largest_part_of_bound": self.largest,
        }


_REGISTERED: dict[type, Extension] = {}


def register_audited(kind: type, *, neighbor_test: NeighborTest) -> Extension:
    """Makes a type known to the privacy-flow checker, and marks every run of this process as extended.

    Registering a type vouches for it: its methods may run on private rows. The neighbor test is run
    `NEIGHBOR_TESTS` times here; it cannot prove the bound.

    Args:
      kind: a class of a module, not a local one; its objects may have the fields of a dataclass only.
      neighbor_test: draws a data set and a neighbor of it from the generator, forms the statistic of both with an
        object of the type, and returns how far they are apart and the stated sensitivity, in one unit.

    Returns:
      What `privacy.json` says of it.

    Raises:
      PrivacyFlowError: if the type has no name, is listed already, or the neighbor test finds a larger move than the
        stated sensitivity, or no move at all.
    """
    name, test = name_of(kind), name_of(neighbor_test)
    if name is None or test is None or not isinstance(kind, type):
        raise PrivacyFlowError(
            "a registered type and its neighbor test must stand in a module under their names, got others; define "
            "them at the top of a module."
        )
    if name in AUDITED_TYPES:
        raise PrivacyFlowError(f"a registered type must not be audited already, got {name}; leave it as it is.")
    found = Extension(kind=kind, name=name, neighbor_test=test, largest=_largest_move(name, neighbor_test))
    _REGISTERED[kind] = found
    return found


def is_registered(kind: type) -> bool:
    """Whether a type is known by `register_audited`."""
    return kind in _REGISTERED


def registered() -> tuple[type, ...]:
    """All types that `register_audited` knows."""
    return tuple(_REGISTERED)


def marks() -> list[dict[str, object]]:
    """What `privacy.json` says of all registered types, by name; empty if there are none."""
    return [each.to_json() for each in sorted(_REGISTERED.values(), key=lambda each: each.name)]


def _largest_move(name: str, neighbor_test: NeighborTest) -> float:
    """The largest part of the stated sensitivity that one unit moved; raises PrivacyFlowError."""
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
            f"the neighbor test of {name} must move its statistic at least once, got no move; draw neighbors that "
            "differ."
        )
    return largest
