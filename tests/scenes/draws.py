"""Draws of the noise stage."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core import noise


@contextlib.contextmanager
def recorded_draws(draws: list[NDArray[np.int64]]) -> Iterator[None]:
    """Every noise that is drawn meanwhile goes to the list, of all releases of a round in one vector."""
    draw = noise.draw_release

    def record(key, plan, exact_sum):
        releases = draw(key, plan, exact_sum)
        draws.append(np.concatenate([release.values.ravel() for release in releases]) - exact_sum)
        return releases

    with mock.patch.object(noise, "draw_release", record):
        yield
