"""Runs in which something is killed half-way: a run ends right or leaves nothing, and noise is drawn once.

A run is a process of its own. Workers come from a pool, so that a run is known to be under way when the pool has
started one. The key is given and lasts: a run that is done again publishes the same bytes.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import yaml

from deploy.local.processes import Process
from tests.scenes import lake

N_ROWS, LLOYD_STEPS = 400_000, 8
UNDER_WAY_SECONDS, TIMEOUT, PATIENCE = 2.5, 900.0, 90.0


class FaultBench:
    """A lake that takes a while, and runs of one job on it."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        points = lake.mixture(N_ROWS)
        data = lake.write_files(folder / "lake", [lake.table_of(points)], row_group_size=20_000)
        settings = lake.job(data, lake.write_server(folder / "server.parquet"), lloyd={"steps": LLOYD_STEPS})
        settings["key_uri"] = lake.write_key(folder / "key")
        (folder / "job.yaml").write_text(yaml.safe_dump(settings))
        self._runs = 0
        self.reference = self.finish(self.start("--runner=FnApiRunner"))

    def start(self, *flags: str) -> "Run":
        """A run in a process group of its own."""
        self._runs += 1
        return Run(self.folder / "job.yaml", self.folder / f"run-{self._runs}" / "out", flags)

    def finish(self, run: "Run") -> dict[str, bytes]:
        """Returns what a run published that must have succeeded."""
        assert run.wait() == 0, run.err
        return lake.released(run.output)

    def check(self, run: "Run") -> bool:
        """Returns whether a run ended right, by its reference's bytes; if not, it must have left nothing at all."""
        if run.wait() == 0:
            assert lake.released(run.output) == self.reference
            return True
        assert list(run.output.parent.iterdir()) == []
        assert "dapple: " in run.err
        return False

    def check_without_an_end(self, run: "Run") -> None:
        """A run that cannot end right, under a runner that may wait forever: it is killed then, as a user would.

        It has published nothing, and leaves nothing that others can read.
        """
        try:
            run.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            run.check_killed()
        else:
            assert not self.check(run)


_COMMAND = """
import sys
from dapple_dp.pipelines.command.main import main
from tests.scenes import lake
with lake.written_keys_draw():
    sys.exit(main(sys.argv[1:]))
"""
"""The command, under the key that the test has written, so that runs can be compared."""


class Run:
    """A `dapple fit` that may be killed."""

    def __init__(self, job: pathlib.Path, output: pathlib.Path, flags: Sequence[str]):
        self.output = output
        self._log = output.parent.with_suffix(".err")
        output.parent.mkdir()
        words = [sys.executable, "-c", _COMMAND, "fit", "--config", str(job), "--output", str(output), *flags]
        with self._log.open("w") as log:
            self._child = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, cwd=pathlib.Path.cwd()
            )

    @property
    def err(self) -> str:
        return self._log.read_text()

    def wait(self, seconds: float = TIMEOUT) -> int:
        """Exit code; a run that hangs is ended and fails the test."""
        try:
            return self._child.wait(seconds)
        finally:
            if self._child.poll() is None:
                self.kill()

    def check_killed(self) -> None:
        """Only private folders are left: of staging, and of the listing beside it."""
        assert not self.output.exists()
        left = list(self.output.parent.iterdir())
        assert left
        assert all(each.name.startswith("out.partial-") for each in left)
        assert all(each.stat().st_mode & 0o077 == 0 for each in left)

    def kill(self) -> None:
        """Ends it and what it has started, by force."""
        os.killpg(self._child.pid, 9)
        self._child.wait()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Waits until something holds, while the run goes on."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert self._child.poll() is None, self.err or "the run was over before it could be disturbed"
            assert time.monotonic() < end, "the run did not get so far"
            time.sleep(0.1)

    def wait_until_under_way(self, pool: Process) -> None:
        """Waits until workers of the pool are at work."""
        self.wait_until(lambda: workers(pool))
        time.sleep(UNDER_WAY_SECONDS)
        assert self._child.poll() is None, "the run was over before it could be disturbed"


def workers(pool: Process) -> list[int]:
    """Processes of a pool that work: those that its server has forked."""
    return [worker for server in children(pool.pid) for worker in children(server)]


def children(pid: int, name: str = "") -> list[int]:
    """Processes that a process has started and that run; of one command only, if it is named."""
    words = ["ps", "-ww", "-o", "pid=,stat=,comm=", "--ppid", str(pid)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    return [int(child) for child, state, command in found if not state.startswith("Z") and name in ("", command)]
