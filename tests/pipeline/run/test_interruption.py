"""Runs that Ctrl-C or SIGTERM stops after noise may have been drawn: reported so, nothing half-written, resumable."""

import json
import signal
import subprocess
import sys

import pytest

from dapple_dp.pipelines.command.interruption import SENTENCE
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.privacy.ledger_entry import run_states
from tests.scenes import lake

pytestmark = pytest.mark.slow
NAME, RUN = "toy", "nightly"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return lake.write_lake(tmp_path_factory.mktemp("lake"), lake.mixture(300))


@pytest.fixture
def command(data, tmp_path):
    """The words of a job of several rounds with a ledger."""
    ledger = str(tmp_path / "ledger.sqlite")
    Ledger(ledger).set_limit(NAME, Limit(epsilon=3.0, delta=1e-5))
    job = lake.job(data, None, algorithm="dp_lloyd", data__name=NAME, ledger=ledger, dp_lloyd__domain=[-10.0, 10.0])
    job["clipping"] = {}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    flags = {"--config": tmp_path / "job.yaml", "--output": tmp_path / "out", "--run_id": RUN}
    return ["fit", *(str(part) for pair in flags.items() for part in pair)]


_STOPPED = """
import os, sys, time
from dapple_dp.command import main
from dapple_dp.transforms.core import noise
draw, number = noise.draw_release, int(sys.argv.pop(1))
def draw_release(*given):
    drawn = draw(*given)
    os.kill(os.getpid(), number)
    time.sleep(900)
    return drawn
noise.draw_release = draw_release
sys.exit(main())
"""
"""The command, which is sent a signal when it has drawn its first noise and goes no further then."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on_without_a_further_charge(command, tmp_path, number):
    book = Ledger(str(tmp_path / "ledger.sqlite"))
    words = [sys.executable, "-c", _STOPPED, str(int(number)), *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert run_states(book.entries())[RUN].started is not None
    assert done.stderr.endswith(f"dapple: {SENTENCE}\n")
    assert f"run {RUN} stays reserved: give --run_id {RUN} to resume for free" in done.stderr
    assert not (tmp_path / "out").exists()
    words = [sys.executable, "-m", "dapple_dp", *command]
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"run {RUN} is reserved: resuming without a further charge" in again.stderr
    assert [status.state for status in run_states(book.entries()).values()] == ["committed"]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "job.yaml", "ledger.sqlite"}


_WHILE_ADDING = """
import os, signal, sys
from dapple_dp.command import main
from dapple_dp.transforms.rounds.shard_sums import ShardReader
works, number = ShardReader.works, int(sys.argv.pop(1))
def stopped(reader, shard):
    os.kill(os.getpid(), number)
    return works(reader, shard)
ShardReader.works = stopped
sys.exit(main())
"""
"""The command, which is sent a signal while threads add up rows."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_whose_threads_add_up_can_be_stopped(command, tmp_path, number):
    words = [sys.executable, "-c", _WHILE_ADDING, str(int(number)), *command, "--cores", "3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith(f"dapple: {SENTENCE}\n")
    words = [sys.executable, "-m", "dapple_dp", *command]
    assert subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"out", "job.yaml", "ledger.sqlite"}
