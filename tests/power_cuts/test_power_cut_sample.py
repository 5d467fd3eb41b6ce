"""Jobs whose machine loses power: a sample of the states on every submission, and all of them at night."""

import pathlib

import pytest

from deploy.local.downloads import UnavailableError
from tests.power_cuts.outputs import JOBS
from tests.power_cuts.replay import tried
from tests.power_cuts.sites import sites
from tests.power_cuts.trace import needs_strace
from tests.scenes.conformance import needed

SEED = 20
STATES = {
    "chunks": 2,
    "clustered_fl": 4,
    "enroll": 2,
    "fit": 6,
    "free": 3,
    "given_back": 2,
    "ledger": 2,
    "masked": 1,
    "stream": 5,
    "taken_up": 2,
}
"""How many states of each step are tried; writes that no other state cuts come first."""
TOPIC = pytest.mark.kafka


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STATES))
def test_a_charged_run_is_released_and_drawn_once(name: str, tmp_path: pathlib.Path) -> None:
    check(name, tmp_path, STATES[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", [pytest.param(name, marks=TOPIC if name == "topic" else ()) for name in JOBS])
def test_power_is_cut_at_every_call(name: str, tmp_path: pathlib.Path) -> None:
    check(name, tmp_path, None)


def check(name: str, folder: pathlib.Path, most: int | None) -> None:
    """Tries at most so many states of each step of a job, or all."""
    with needed("strace"):
        needs_strace()
    result = tried(name, JOBS[name], pathlib.Path(folder.resolve()), most=most, seed=SEED)
    assert not result.faults, result.faults
    assert result.cut
    assert result.reached <= set(sites())


def test_without_strace_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="install it"):
        needs_strace()
