"""Processes that add up: each shard has one, errors come back as sentences, and none outlives who started it."""

import errno
import importlib
import os
import resource
import signal
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from schemas.errors import InputError, RunnerError
from schemas.tables.shard import ShardRef
from transforms.rounds import sum_processes
from transforms.rounds.own_process import STOPPING
from transforms.rounds.row_cache import WorkerLimits
from transforms.rounds.sum_processes import CREWS, Crew, SumProcess, limits_of_others

HERE = "tests.unit.rounds.test_sum_processes"
SHARDS = [ShardRef(f"part-{index}", 0, n_rows) for index, n_rows in enumerate((5, 1, 1, 3, 9, 2))]


def doubled(number):
    return 2 * number


def failing(kind):
    raise {
        "input": InputError("data must be right, got others; correct them."),
        "disk": OSError(errno.ENOSPC, "row 7 of 9"),
        "other": ValueError("row 7"),
        "memory": MemoryError("row 7"),
    }[kind]


class Refused:
    """Something that cannot be read from its pickle."""

    def __reduce__(self):
        return failing, ("other",)


def gone(how):
    if how == 3:
        os._exit(3)
    os.kill(os.getpid(), how)


def slow(number):
    """Stands still, or gives so many signs of life."""
    if number < 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    sum_processes._SIGN_SECONDS = 0.0
    for _ in range(number):
        sum_processes.alive()
    return np.array([number])


def limits(_):
    return resource.getrlimit(resource.RLIMIT_CORE)


def test_questions_are_answered_in_order(process):
    asked = process("doubled")
    assert [asked.answer(number) for number in (1, 2.5, np.int64(4))] == [2, 5.0, 8]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("input", InputError, "^data must be right, got others; correct them.$"),
        ("disk", OSError, os.strerror(errno.ENOSPC)),
        ("other", RuntimeError, "^unexpected ValueError in a process that adds up rows$"),
        ("memory", RunnerError, "must have memory enough, got one without; run it again with fewer --cores"),
    ],
)
def test_errors_come_back_without_values(process, kind, error, message):
    with pytest.raises(error, match=message) as found:
        process("failing").answer(kind)
    assert "7" not in str(found.value)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (3, "ended with exit code 3; run it again, with --cores 1"),
        (signal.SIGKILL, "was killed, as the system does if memory is short; run it again with fewer --cores"),
        (signal.SIGSEGV, "was ended by signal 11; run it again, with --cores 1"),
    ],
)
def test_a_process_that_ends_is_told_with_what_is_known_of_its_end(process, how, message):
    with pytest.raises(RunnerError, match=message):
        process("gone").answer(how)


def test_a_process_that_is_killed_between_questions_is_told(process):
    asked = process("doubled")
    asked.answer(1)
    os.kill(asked.pid, signal.SIGKILL)
    with pytest.raises(RunnerError, match="fewer --cores"):
        asked.answer(2)


def test_a_process_that_is_killed_while_it_starts_is_told(process):
    asked = process("doubled")
    os.kill(asked.pid, signal.SIGKILL)
    with pytest.raises(RunnerError, match="fewer --cores"):
        asked.answer(1)
    asked.expect(1)


def imported(number):
    """How often a question was asked, and the modules that were not there before."""
    sys.modules.setdefault("asked", []).append(number)
    return list(sys.modules["asked"]), "colorsys" in sys.modules


class Imports:
    """Something whose pickle imports a module."""

    def __reduce__(self):
        return importlib.import_module, ("colorsys",)


def test_what_is_expected_is_imported_and_not_answered(process):
    asked = process("imported")
    asked.expect(Imports())
    assert asked.answer(1) == ([1], True)


@pytest.mark.parametrize("part", [b"x" * (1 << 20), Refused()], ids=["long", "not to be read"])
def test_what_is_expected_does_no_harm(process, part):
    asked = process("doubled")
    asked.expect(part)
    assert asked.answer(2) == 4


def test_a_process_that_has_ended_is_nowhere():
    asked = SumProcess(f"{HERE}:doubled")
    asked.end()
    assert not os.path.exists(f"/proc/{asked.pid}")
    asked.end()


def test_a_crew_that_cannot_start_leaves_nobody(monkeypatch):
    ended = []

    class Scarce:
        def __init__(self):
            if len(started) == 2:
                raise OSError(errno.EAGAIN, "row 7")
            started.append(self)

        def end(self):
            ended.append(self)

    started = []
    monkeypatch.setattr(sum_processes, "SumProcess", Scarce)
    with pytest.raises(RunnerError, match="fewer --cores") as found:
        Crew(5)
    assert ended == started
    assert "7" not in str(found.value)


@pytest.mark.parametrize("asked", ["pass", "p.expect(1)", "p.answer(1)"])
def test_a_process_ends_with_the_one_that_started_it(asked):
    """Also while it starts."""
    code = f"from {HERE} import SumProcess; import os; p = SumProcess('{HERE}:doubled'); {asked}"
    code += "; print(p.pid, flush=True); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    _wait_for_end(int(done.stdout))


def _wait_for_end(pid):
    for _ in range(6000):
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.1)
    raise AssertionError("a process must end with its parent")


def test_a_process_ends_with_the_one_that_started_it_though_a_copy_holds_its_pipe():
    """A user's own code may fork; the copy had all that was open, and lived on."""
    code = f"from {HERE} import SumProcess; import os, time; p = SumProcess('{HERE}:doubled'); p.answer(1)"
    code += "; child = os.fork(); child or (os.close(1), os.close(2), time.sleep(600))"
    code += "; print(p.pid, child, flush=True); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid, child = map(int, done.stdout.split())
    try:
        _wait_for_end(pid)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_leaves_no_core_dump(process):
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        assert process("limits").answer(0)[0] in (0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def test_a_process_that_stands_still_is_killed_and_told(monkeypatch):
    """Others of its crew have answered."""
    monkeypatch.setattr(sum_processes, "_LOOK_SECONDS", 0.01)
    crew = _crew("slow", 3)
    with pytest.raises(RunnerError, match="stood still for 10 minutes; run it again with --cores 1"):
        crew.sum(SHARDS, lambda _: np.array([0]), _once_each(-1, 1))
    crew.end()


def test_a_process_that_goes_on_is_waited_for(process, monkeypatch):
    """Somebody looks 400 times between two signs of life, and kills after 600 times without one."""
    asked, received = process("slow"), sum_processes._received

    def heard(pipe):
        for _ in range(400):
            asked.look()
        return received(pipe)

    monkeypatch.setattr(sum_processes, "_received", heard)
    assert asked.answer(5) == [5]
    assert asked.answer(5) == [5]


@pytest.mark.parametrize("own", ["adds", "fails"])
def test_nobody_is_waited_for_once_the_command_is_to_stop(monkeypatch, own):
    monkeypatch.setattr(sum_processes, "_LOOK_SECONDS", 0.01)
    crew = _crew("slow", 3)

    def stops(_):
        monkeypatch.setattr(STOPPING, "asked", True)
        if own == "fails":
            raise InputError("data must be right, got others; correct them.")
        return np.array([0])

    with pytest.raises(InputError if own == "fails" else RunnerError):
        crew.sum(SHARDS, stops, _once_each(-1, -1))
    assert not any(os.path.exists(f"/proc/{each.pid}") for each in crew.others)


def _crew(work, n):
    """A crew with other work than adding up shards."""
    with mock.patch.object(sum_processes, "_WORK", f"{HERE}:{work}"):
        return Crew(n)


def _once_each(*questions):
    """What each process is asked."""
    rest = iter(questions)
    return lambda _: next(rest)


def added(shards):
    return np.array([sum(shard.n_rows for shard in shards)])


def test_every_shard_stays_with_one_and_rows_are_divided():
    crew = Crew(3)
    parts = crew.parts(SHARDS)
    assert sorted(shard for part in parts for shard in part) == sorted(SHARDS)
    assert max(crew._loads) - min(crew._loads) <= 9
    again = crew.parts(SHARDS[::-1])
    assert [set(part) for part in again] == [set(part) for part in parts]
    crew.end()


@pytest.mark.parametrize(("n", "shards", "total"), [(3, SHARDS, 21), (2, SHARDS[:1], 5)])
def test_the_sum_of_a_crew_is_that_of_all(n, shards, total):
    crew = _crew("added", n)
    assert crew.sum(shards, added, lambda part: part) == [total]
    crew.end()


@pytest.fixture
def counted(monkeypatch):
    """Names of crews that were made, and of those that have ended."""
    made, ended = [], []

    class Counted(Crew):
        def __init__(self, n, ahead):
            super().__init__(n, ahead)
            made.append(n)

        def end(self):
            super().end()
            ended.append(len(made))

    monkeypatch.setattr(sum_processes, "Crew", Counted)
    return made, ended


def test_small_work_and_one_core_have_no_crew(counted):
    made, _ = counted
    few, one = WorkerLimits(run="a", cores=2), WorkerLimits(run="a", cores=1)
    with CREWS.held("a"):
        assert CREWS.of_run(few, sum_processes.LEAST_BYTES - 1) is None
        assert CREWS.of_run(one, 1 << 40) is None
        assert CREWS.of_run(WorkerLimits(), 1 << 40) is None
        assert not made
        assert CREWS.of_run(few, sum_processes.LEAST_BYTES) is CREWS.of_run(few, 0)
        assert made == [2]


def test_a_crew_ends_with_its_run_also_where_nobody_holds_it(counted):
    _, ended = counted
    with CREWS.held("a"):
        CREWS.of_run(WorkerLimits(run="a", cores=2), 1 << 40)
    assert ended == [1]
    CREWS.of_run(WorkerLimits(run="b", cores=2), 1 << 40)
    with CREWS.held("c"):
        CREWS.of_run(WorkerLimits(run="c", cores=3), 1 << 40)
        assert ended == [1, 3 - 1]
    assert len(ended) == 3


def test_kept_rows_are_divided():
    found = limits_of_others(WorkerLimits(run="a", cores=4, cache_bytes=100))
    assert (found.cores, found.cache_bytes) == (1, 25)
