"""What the noise stage drew."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.privacy import noise, noise_layers


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


@contextlib.contextmanager
def recorded_layers(drawn: list[tuple]) -> Iterator[None]:
    """What senders draw whose shares have layers: round, name, counts, share with all layers, key of the first one."""
    draw = noise_layers.draw_layered

    def record(key, sender, plan, statistic, counts):
        share, first = draw(key, sender, plan, statistic, counts)
        drawn.append((plan, sender, counts, share, first))
        return share, first

    with mock.patch.object(noise_layers, "draw_layered", record):
        yield
