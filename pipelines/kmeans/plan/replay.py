"""Replays the server steps of a run from its releases, as anyone could."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.numerics.one_thread import one_thread
from dapple_dp.transforms.rounds.protocol import ProtocolState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Movement:
    """Distances by which one sums-and-counts round moved the centers.

    Attributes:
      name: name of the round, the last component of its path.
      distances: shape (k,), feature units: distance from the position before the round.
      noise: shape (k,), feature units: expected move of each noisy mean by the noise of the round alone.
    """

    name: str
    distances: NDArray[np.float64]
    noise: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """Results of the server steps on a run's releases.

    Attributes:
      state: state after the last round; its frame has the clipping norm that was used.
      movements: one for each round that moved centers, if it had as many centers as the end result.
    """

    state: ProtocolState
    movements: tuple[Movement, ...]

    @classmethod
    def of(cls, rounds: Sequence[Round], states: Sequence[ProtocolState]) -> "Replay":
        """Builds a replay from the state before the first round and the states after each round."""
        names = [each.plan.path.rpartition("/")[2] for each in rounds]
        movements = [_movement(name, *pair) for name, pair in zip(names, itertools.pairwise(states), strict=True)]
        n_centers = 0 if states[-1].centers is None else len(states[-1].centers)
        moved = (movement for movement in movements if movement is not None and len(movement.distances) == n_centers)
        return cls(state=states[-1], movements=tuple(moved))

    def reordered(self, rows: Sequence[int]) -> "Replay":
        """Returns a copy with the clusters of every movement in another order."""
        order = list(rows)
        movements = tuple(
            dataclasses.replace(movement, distances=movement.distances[order], noise=movement.noise[order])
            for movement in self.movements
        )
        return dataclasses.replace(self, movements=movements)


def replay(initial: ProtocolState, rounds: Sequence[Round], releases: Sequence[Release]) -> Replay:
    """Repeats the server steps of a run.

    Args:
      initial: public state before the first round.
      rounds: rounds of the run, in order.
      releases: releases of the run, in order, with or without their lattice units.
    """
    with one_thread():
        return Replay.of(rounds, list(replayed(initial, rounds, releases)))


def replayed(initial: Any, rounds: Sequence[Round], releases: Sequence[Release]) -> Iterator[Any]:
    """Yields the state before the first round and after each round, computed from releases."""
    by_path = {release.path: release for release in releases}
    state = initial
    yield state
    for round_ in rounds:
        paths = [f"{round_.plan.path}/{release.spec.name}" for release in round_.plan.releases]
        state = round_.step(state, tuple(by_path[path] for path in paths))
        yield state


def _movement(name: str, before: ProtocolState, after: ProtocolState) -> Movement | None:
    """Movement of the centers in a round; None if they did not move, or had no positions before."""
    if after.centers is None or after.centers is before.centers:
        return None
    start, end, stddevs = before.positions, after.positions, after.move_stddevs
    if start is None or end is None or start.shape != end.shape or np.array_equal(start, end):
        return None
    return Movement(
        name=name,
        distances=np.linalg.norm(end - start, axis=1),
        noise=np.full(len(end), np.nan) if stddevs is None else np.linalg.norm(stddevs, axis=1),
    )
