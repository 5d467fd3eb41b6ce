"""Processes that add up: each shard has one, errors come back as sentences, and none outlives who started it."""

import errno
import importlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from schemas.errors import InputError, RunnerError
from schemas.tables.shard import ShardRef
from transforms.rounds import sum_processes
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
    }[kind]


class Refused:
    """Something that cannot be read from its pickle."""

    def __reduce__(self):
        return failing, ("other",)


def gone(_):
    os._exit(3)


def test_questions_are_answered_in_order(process):
    asked = process("doubled")
    assert [asked.answer(number) for number in (1, 2.5, np.int64(4))] == [2, 5.0, 8]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("input", InputError, "^data must be right, got others; correct them.$"),
        ("disk", OSError, os.strerror(errno.ENOSPC)),
        ("other", RuntimeError, "^unexpected ValueError in a process that adds up rows$"),
    ],
)
def test_errors_come_back_without_values(process, kind, error, message):
    with pytest.raises(error, match=message) as found:
        process("failing").answer(kind)
    assert "7" not in str(found.value)


def test_a_process_that_ends_is_told(process):
    with pytest.raises(RunnerError, match="fewer --cores"):
        process("gone").answer(1)


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
    pid = int(done.stdout)
    for _ in range(6000):
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.1)
    raise AssertionError("a process must end with its parent")


def test_every_shard_stays_with_one_and_rows_are_divided(monkeypatch):
    monkeypatch.setattr(sum_processes, "SumProcess", lambda: None)
    crew = Crew(3)
    parts = crew.parts(SHARDS)
    assert sorted(shard for part in parts for shard in part) == sorted(SHARDS)
    assert max(crew._loads) - min(crew._loads) <= 9
    again = crew.parts(SHARDS[::-1])
    assert [set(part) for part in again] == [set(part) for part in parts]


def test_the_sum_of_a_crew_is_that_of_all(monkeypatch):
    class Here:
        def answer(self, part):
            return rows(part)

        def end(self):
            pass

    def rows(part):
        return np.array([sum(shard.n_rows for shard in part)])

    monkeypatch.setattr(sum_processes, "SumProcess", Here)
    assert Crew(3).summed(SHARDS, rows, lambda part: part) == [21]
    assert Crew(2).summed(SHARDS[:1], rows, lambda part: part) == [5]


@pytest.fixture
def counted(monkeypatch):
    """Names of crews that were made, and of those that have ended."""
    made, ended = [], []

    class Counted:
        def __init__(self, n, ahead):
            made.append(n)

        def end(self):
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
