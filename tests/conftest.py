"""Plans that tests calibrate are cached for the session; examples are the same in every run, however long it takes.

Keys that tests write draw as they are; tests of the derivation take that back by `lake.keys_of_runs`.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.scenes import lake

if TYPE_CHECKING:
    from tests.scenes.graphs import World

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _written_keys_draw() -> Iterator[None]:
    with lake.written_keys_draw():
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> "World":
    """A small lake whose graphs are built and checked, for tests of the checker."""
    from tests.scenes.graphs import World

    return World(tmp_path_factory.mktemp("world"))
