"""The tool that tries mutants: on planted ones in a folder of its own, and on its own rules."""

import ast
import dataclasses
import json
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.mutants import lines, operators, trial
from tests.mutants.__main__ import sampled
from tests.mutants.children import in_child
from tests.mutants.choice import used_at
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.page import Score, interval, page
from tests.mutants.trial import Outcome, Server
from tests.planted_faults import FAULTS, ROOT

pytestmark = pytest.mark.slow


def test_tests_that_are_named_exist():
    """One of another name would end the trial of a whole room."""
    names = {test for room in lines.ROOMS.values() for test in room.tests}
    names |= {word for fault in FAULTS for word in fault.tests.split() if word.startswith("tests/")}
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(names)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


BOUNDED = '''"""A module."""

import functools

LIMIT = 4


@functools.cache
def clipped(value: int | None) -> int:
    """At most LIMIT."""
    if value is None:
        raise ValueError("a value must be there, got 0.")
    return min(value, LIMIT)


def _largest(values: list[int]) -> int:
    found = values[0]
    for each in values:
        if each > found:
            found = each
    return found


def unused(value: int) -> int:
    return value + 1
'''
TESTS = """
import pytest
from planted_bounds import _largest, clipped

def test_clipped():
    assert [clipped(each) for each in (3, 4, 5)] == [3, 4, 4]

def test_nothing():
    with pytest.raises(ValueError):
        clipped(None)

def test_largest():
    assert _largest([1, 3, 3, 2]) == 3
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Outcomes of all mutants of a small module, by their names."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "planted_bounds.py").write_text(BOUNDED)
    (folder / "test_planted_bounds.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    log = folder / "log"
    found = mutants_of("planted_bounds.py", BOUNDED)

    def tell(outcome: Outcome) -> None:
        with log.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")

    Server(found, folder, {"planted_bounds.py"}, folder / "coverage").run(("test_planted_bounds.py",), tell)
    told = [Outcome(**json.loads(line)) for line in log.read_text().splitlines()]
    assert [each.name for each in told] == [each.name for each in found]
    return {each.name: each for each in told}


@pytest.mark.parametrize(
    "change",
    [
        "clipped: value is None => value is not None",
        "clipped: raise ValueError('a value must be there, got 0.') => pass",
        "clipped: min(value, LIMIT) => max(value, LIMIT)",
        "clipped: min(value, LIMIT) => value",
        "clipped: return min(value, LIMIT) => return None",
        "_largest: each > found => each <= found",
        ": LIMIT = 4 => LIMIT = 5",
    ],
)
def test_what_a_test_notices_is_killed(outcomes: dict[str, Outcome], change: str) -> None:
    assert outcomes[f"planted_bounds.py:{change}"].noticed_by is not None


@pytest.mark.parametrize(
    ("change", "n_tests"),
    [
        ("_largest: each > found => each >= found", 1),
        ("clipped: min(value, LIMIT) => min(LIMIT, value)", 0),
        ("unused: value + 1 => value - 1", 0),
    ],
)
def test_what_no_test_can_notice_survives(outcomes: dict[str, Outcome], change: str, n_tests: int) -> None:
    found = outcomes.get(f"planted_bounds.py:{change}")
    assert found is None or (found.noticed_by, found.n_tests) == (None, n_tests)
    assert found is not None or "min(LIMIT" in change  # the order of the least of two is not changed


def test_messages_hints_and_docstrings_stay(outcomes: dict[str, Outcome]) -> None:
    changes = " ".join(name.split(": ", 1)[1] for name in outcomes)
    assert "got 1" not in changes
    assert "int & None" not in changes
    assert '"""' not in changes


def test_a_mutant_is_one_change_and_has_a_name_of_its_own() -> None:
    path = "transforms/core/statistics/lattice.py"
    text = (lines.ROOT / path).read_text()
    found = mutants_of(path, text)
    assert len({each.name for each in found}) == len(found) > 100
    moved = mutants_of(path, f"\n\n{text}")
    assert [each.name for each in moved] == [each.name for each in found]
    assert len({ast.dump(operators.mutated(text, each.number)) for each in found[::9]}) == len(found[::9])


def test_lines_are_those_of_the_tables() -> None:
    found = lines.listed()
    # A hundred are the record of what a run states and the versions whose statements were wrong: readers rely on
    # these as on epsilon. Forty are where a kernel is handed in, and the tables of what a cache may say. Thirty are
    # wrapped since names of modules are longer. Two hundred are rounds, the loop, keys and workers of the core.
    assert sum(len(each) for files in found.values() for each in files.values()) <= 4500
    named = found["steps"]
    assert "transforms/on_beam/exact_sums.py" in named
    assert "transforms/kmeans/dp_lloyd/rounds.py" in named
    assert not [path for path in named if path.endswith("server.py") or "trusted_zone/assign" in path]
    text = (lines.ROOT / "transforms/core/accounting.py").read_text().splitlines()
    counted = {text[each - 1].strip() for each in found["accounting"]["transforms/core/accounting.py"]}
    assert not [line for line in counted if line.startswith(("import ", "from ", "#"))]


def test_every_explanation_is_of_a_mutant() -> None:
    found = {path: numbers for files in lines.listed().values() for path, numbers in files.items()}
    paths = {each.partition(":")[0] for each in EQUIVALENT}
    names = {each.name for path in paths for each in mutants_of(path, (lines.ROOT / path).read_text(), found[path])}
    assert sorted(EQUIVALENT.keys() - names) == []


def test_code_of_functions_that_were_collected_is_changed_in_place() -> None:
    """Else all of our modules are imported again for each mutant."""
    assert sampled in trial._functions()[sampled.__code__.co_filename, "sampled"]


def test_a_sample_is_drawn_by_its_seed_with_some_of_each_room() -> None:
    mutants = {room: [_mutant(room, number) for number in range(size)] for room, size in [("a", 900), ("b", 50)]}
    first, again, other = (sampled(mutants, 100, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [len(each) for each in first.values()] == [95, 40]
    smaller = sampled(mutants, 50, 1)
    assert {room: found[: len(smaller[room])] for room, found in first.items()} == smaller


def test_rooms_count_by_their_mutants_and_whole_rooms_are_certain() -> None:
    kills = [Outcome(name=str(each), noticed_by="t::t", n_tests=1, seconds=0.0) for each in range(40)]
    lives = [Outcome(name=str(each), noticed_by=None, n_tests=1, seconds=0.0) for each in range(10)]
    whole = Score(lines=9, mutants=50, outcomes=kills + lives)
    assert interval([whole]) == pytest.approx((0.8, 0.8, 0.8))
    share, low, high = interval([Score(lines=9, mutants=950, outcomes=kills), whole])
    assert share == pytest.approx(0.99)
    assert 0.9 < low < share < high == 1.0


def test_a_page_lists_survivors_rooms_without_a_trial_and_what_quick_tests_notice() -> None:
    lives = Outcome(name="a.py:f: x < 1 | y => x <= 1 | y", noticed_by=None, n_tests=3, seconds=0.0)
    kills = [dataclasses.replace(lives, name=str(each), noticed_by="t.py::t", quick=each > 0) for each in range(3)]
    scores = {
        "noise": Score(lines=9, mutants=4, outcomes=[lives, *kills]),
        "steps": Score(lines=5, mutants=7, outcomes=[]),
    }
    text = page(scores, 1.0)
    assert "**75.0% are noticed** by a test of their room" in text
    assert "**50.0% are noticed** by a quick one" in text
    assert "Not tried yet, and not in this figure: steps." in text
    assert "| `` a.py:f: x < 1 \\| y => x <= 1 \\| y `` | 3 | open |" in text
    assert "| noise | 9 | 4 | 4 | 3 | 2 | 0 | 1 |" in text
    scores["noise"].outcomes[0] = dataclasses.replace(lives, quick=True)
    assert "slow ones were not asked" in page(scores, 1.0)


def test_tests_of_a_tier_are_asked_alone(tmp_path: pathlib.Path) -> None:
    """Each tier has its own record, and a mutant that one misses is left to the other."""
    text = "def half(value):\n    return value / 2\n"
    (tmp_path / "planted_tiers.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n    slow: of seconds\n")
    (tmp_path / "test_planted_tiers.py").write_text(
        "import pytest\nfrom planted_tiers import half\n\n"
        "def test_quick():\n    assert half(0) == 0\n\n"
        "@pytest.mark.slow\ndef test_slow():\n    assert half(2) == 1\n"
    )
    told: dict[str, list[Outcome]] = {"not slow": [], "slow": []}
    server = Server(mutants_of("planted_tiers.py", text), tmp_path, {"planted_tiers.py"}, tmp_path / "coverage")
    for tier, found in told.items():
        server.run(("test_planted_tiers.py",), found.append, tier=tier)
    missed = [each.name for each in told["not slow"] if each.noticed_by is None]
    assert missed
    by_slow = {each.name: each.noticed_by for each in told["slow"]}
    assert {by_slow[name] for name in missed} == {"test_planted_tiers.py::test_slow"}
    assert {each.n_tests for found in told.values() for each in found} == {1}


def test_tests_that_fail_without_a_change_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_planted_failure.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(RuntimeError, match="must pass without a change"):
        Server([_mutant("a", 1)], tmp_path, {"a"}, tmp_path / "coverage").run(("test_planted_failure.py",), print)


def test_a_test_that_fails_on_its_own_is_not_believed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "planted_halves.py").write_text("def half(value):\n    return value / 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_planted_halves.py").write_text(
        "import os\nfrom planted_halves import half\nOWNER = os.getpid()\n"
        "def test_it():\n    assert half(2) and os.getpid() == OWNER\n"
    )
    found = [each for each in mutants_of("planted_halves.py", "def half(value):\n    return value / 2\n")][-1:]
    told: list[Outcome] = []
    server = Server(found, tmp_path, {"planted_halves.py"}, tmp_path / "coverage")
    server.run(("test_planted_halves.py",), told.append)
    assert [(each.noticed_by, each.n_tests) for each in told] == [(None, 0)]


def test_a_change_that_nothing_can_import_is_noticed(tmp_path: pathlib.Path) -> None:
    """A conftest notices it, too, before any hook is called."""
    text = "SIZES = dict([(1, 2)])\nOTHERS = max(3, 4)\nassert OTHERS == 4\n"
    (tmp_path / "planted_import.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "conftest.py").write_text("import planted_import\n")
    (tmp_path / "test_planted_import.py").write_text("import planted_import\n\ndef test_it():\n    pass\n")
    found = [each for each in mutants_of("planted_import.py", text) if "min" in each.change]
    told: list[Outcome] = []
    server = Server(found, tmp_path, {"planted_import.py"}, tmp_path / "coverage")
    server.run(("test_planted_import.py",), told.append)
    assert [each.noticed_by for each in told] == ["collection"]


def test_known_results_are_not_tried_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_planted.py").write_text("def test_it():\n    pass\n")
    told: list[Outcome] = []
    server = Server([_mutant("a", 1)], tmp_path, {"a"}, tmp_path / "coverage")
    server.run(("test_planted.py",), told.append, {_mutant("a", 1).name: None})
    assert told == []
    assert len((tmp_path / "coverage").read_text().splitlines()) == 1


def test_a_single_test_of_a_file_may_be_asked_alone(tmp_path: pathlib.Path) -> None:
    """Its own record shows it: the other one fails, and is not run."""
    text = "def half(value):\n    return value / 2\n"
    (tmp_path / "planted_single.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_planted_single.py").write_text(
        "import pytest\nfrom planted_single import half\n\n"
        "def test_not_asked():\n    assert False\n\n"
        "@pytest.mark.parametrize('n', [2, 4])\ndef test_it(n):\n    assert half(n) < n\n"
    )
    told: list[Outcome] = []
    server = Server(mutants_of("planted_single.py", text), tmp_path, {"planted_single.py"}, tmp_path / "coverage")
    server.run(("test_planted_single.py::test_it[4]",), told.append)
    assert {each.noticed_by for each in told} == {"test_planted_single.py::test_it[4]", None}
    assert {each.n_tests for each in told} == {1}
    with pytest.raises(RuntimeError, match="must pass without a change"):
        server.run(("test_planted_single.py",), told.append)


def test_names_are_followed_to_where_they_are_used(tmp_path: pathlib.Path) -> None:
    text = "A = 2\nB = A + 1\n\n\nclass C:\n    size = 3\n\n\ndef f():\n    return B\n\n\ndef g():\n    return C.size\n"
    (tmp_path / "names.py").write_text(text)
    path = str(tmp_path / "names.py")
    assert used_at(path, 1, (path,)) == {path: {2, 10}}
    assert used_at(path, 6, (path,)) == {path: {14}}


def test_a_child_without_an_end_is_ended() -> None:
    with pytest.raises(TimeoutError):
        in_child(lambda: signal.pause(), 0.2)


def _mutant(room: str, number: int) -> Mutant:
    return Mutant(path=room, scope="", number=number, change=str(number), lines=(1, 1), function=None)
