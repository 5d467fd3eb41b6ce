"""Plans that tests calibrate are cached for the session; examples are the same in every run, however long it takes.

Every test is in one tier: quick if it has no marker, `slow`, or `nightly`.

Files that take long come first, so that no core waits for the last one: those of runners, then those with most tests
that are marked as slow or nightly. A core takes a file at a time, and power cuts, which take minutes, one by one.

Keys that runs make follow from the name of the test or of the fixture. Keys that tests write draw as they are in the
files of `tests/scenes/written_keys.py`; tests of the derivation take that back by `lake.keys_of_runs`.
"""

import collections
import contextlib
import gc
import os
import pathlib
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.scenes import in_process, installed, lake, repeatable_bytes, written_keys

if TYPE_CHECKING:
    from deploy.local.kafka_broker import KafkaBroker
    from tests.scenes.graphs import World

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")
os.environ["DAPPLE_LOG_FORMAT"] = "plain"
repeatable_bytes.stand_in()


def pytest_configure(config: pytest.Config) -> None:
    """Workers get files in the order below; on its own the plugin puts files of few tests last, which take longest."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    # Who runs the suite in the background may have switched these off, and what is started here would inherit that.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file at a time on each core, as `--dist loadfile`, but tests in `ALONE` one by one."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file in ALONE else file

    return Scheduling(config, log)


ALONE = {"tests/power_cuts/test_power_cut_sample.py"}
"""Files of few tests that share nothing and take minutes each."""
TIERS = {"slow", "nightly"}
"""Markers of tests that are not quick; a test has one of them or none."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tiers, and the order of files; tests stay as they are within a file."""
    if torn := [each.nodeid for each in items if {mark.name for mark in each.iter_markers()} >= TIERS]:
        raise pytest.UsageError(f"a test must be in one tier, got slow and nightly on {', '.join(torn)}.")
    marked: collections.Counter[tuple[pathlib.Path, str]] = collections.Counter()
    for each in items:
        marked.update((each.path, name) for name in {mark.name for mark in each.iter_markers()})
    ranks = {each.path: rank for rank, each in reversed(list(enumerate(items)))}
    long = {path: sum(marked[path, tier] for tier in TIERS) for path in ranks}
    items.sort(key=lambda it: (not marked[it.path, "runner"], -long[it.path], ranks[it.path]))


def pytest_collection_finish() -> None:
    """The collector of cycles is left to what tests make: all that was collected stays, and is no garbage."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    with repeatable_bytes.bytes_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """A fixture that tests share draws the same, whichever of them is the first to ask for it."""
    name = f"{request.node.nodeid}::{fixturedef.argname}[{request.param_index}]"
    with repeatable_bytes.bytes_of(name):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _written_keys_draw(request: pytest.FixtureRequest) -> Iterator[None]:
    with lake.written_keys_draw() if request.path.stem in written_keys.FILES else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module", autouse=True)
def _without_beam(request: pytest.FixtureRequest) -> Iterator[None]:
    with lake.without_beam() if request.path.stem in in_process.FILES else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> "World":
    """A small lake whose graphs are built and checked, for tests of the checker."""
    from tests.scenes.graphs import World

    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of the sources as they are now."""
    return installed.dapple_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: pathlib.Path) -> installed.Environment:
    """An environment with the wheel, as a user has it; tests leave it as it is."""
    found = installed.new_environment(tmp_path_factory.mktemp("user") / "venv")
    found.install(wheel)
    return found


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[KafkaBroker]":
    """A Kafka broker; tests have topics of their own."""
    from tests.scenes import brokers

    found = brokers.started(tmp_path_factory.mktemp("kafka"))
    yield found
    found.kill()
