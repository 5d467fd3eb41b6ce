"""The process that workers are forked from: it starts them, ends those of no runner, and never forks old code."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

NURSERY = pathlib.Path(__file__).resolve().parents[3] / "examples" / "runners" / "worker_nursery.py"
SERVE = """
import os, pathlib, random, sys, time
import numpy
numpy.random.random()
sys.path.insert(0, sys.argv[1])
import worker_nursery
def work(request):
    drawn = f"{numpy.random.random()}/{random.random()}"
    pathlib.Path(request["worker"]).write_text(f"{os.getpid()} {drawn} {os.read(0, 1)}")
    print("said by a worker", flush=True)
    if request["control"] == "fails":
        raise ValueError("a worker failed")
    time.sleep(900)
worker_nursery.main(["imported_first", "not_there"], work)
"""


class Serving:
    """A nursery whose workers write their number into a file and sleep."""

    def __init__(self, folder):
        self.module = folder / "imported_first.py"
        self.module.write_text("ANSWER = 1\n")
        words = [sys.executable, "-c", SERVE, str(NURSERY.parent)]
        environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
        )
        self.folder = folder

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def number(self, worker):
        """Waits for a worker; returns its process number."""
        return int(self.said(worker).split()[0])

    def said(self, worker):
        place = self.folder / worker
        wait_until(lambda: place.exists() and place.read_text().count(" ") == 2)
        return place.read_text()


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(pid):
    """Whether a process is there and has not ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return False


@pytest.fixture
def nursery(tmp_path):
    found = Serving(tmp_path)
    yield found
    found.process.communicate(timeout=60)


@pytest.fixture
def runner():
    """Somebody who listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address(runner):
    return f"127.0.0.1:{runner.getsockname()[1]}"


pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="tells processes by /proc")


def test_two_workers_of_one_name_go_on_side_by_side(nursery, runner):
    """TaskManagers give their workers the same names, and each stops its own."""
    assert nursery.ask(worker="1-1", control=address(runner)) == "done"
    first = nursery.number("1-1")
    (nursery.folder / "1-1").unlink()
    assert nursery.ask(worker="1-1", control=address(runner)) == "done"
    second = nursery.number("1-1")
    assert nursery.ask() == "done"
    assert first != second
    assert runs(first)
    assert runs(second)


def test_workers_end_with_their_runner_and_with_the_pool(nursery, runner):
    with socket.create_server(("127.0.0.1", 0)) as other:
        nursery.ask(worker="gone", control=address(other))
        nursery.ask(worker="stays", control=address(runner))
        gone, stays = nursery.number("gone"), nursery.number("stays")
    assert nursery.ask() == "done"
    assert not runs(gone)
    assert runs(stays)
    nursery.process.communicate(timeout=60)
    assert not runs(stays)


def test_workers_share_no_randomness_and_read_no_requests(nursery, runner):
    for worker in ("a", "b"):
        nursery.ask(worker=worker, control=address(runner))
    (_, one, read), (_, other, _) = nursery.said("a").split(), nursery.said("b").split()
    assert not set(one.split("/")) & set(other.split("/"))
    assert read == "b''"


def test_a_worker_that_fails_leaves_the_others(nursery, runner):
    assert nursery.ask(worker="bad", control="fails") == "done"
    bad = nursery.number("bad")
    wait_until(lambda: not runs(bad))
    assert nursery.ask(worker="good", control=address(runner)) == "done"
    assert runs(nursery.number("good"))


def test_old_code_is_never_forked(nursery, runner):
    """A pool outlives a change of the sources; a worker that starts from nothing takes the new ones."""
    assert nursery.ask(worker="before", control=address(runner)) == "done"
    nursery.module.write_text("ANSWER = 22\n")
    assert nursery.ask(worker="after", control=address(runner)) == "no"
    nursery.module.unlink()
    assert nursery.ask(worker="after", control=address(runner)) == "no"
    assert runs(nursery.number("before"))
    assert not (nursery.folder / "after").exists()
