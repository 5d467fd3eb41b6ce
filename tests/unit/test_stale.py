"""A result is stale if code that it measures has changed; docstrings, names and places are no code."""

import pytest

from benchmarks import machine, measurement, stale
from benchmarks.measured_code import Code

RESULT = "# Title\n\n- command: `python -m benchmarks.mixture --out x`\n- commit: {}\n"
COMMAND = '''"""A command."""
import numpy as np
from transforms import sums
from transforms.sums import STDDEV as SCALE

def main():
    """Words."""
    rows = np.ones(3)
    print(sums.total(rows) + SCALE)

def other(): return 1

if __name__ == "__main__":
    main()
'''
SUMS = """STDDEV = 2.0
class Sum:
    def of(self, rows): return rows.sum()
def total(rows):
    if not len(rows):
        raise ValueError(f"there are {len(rows)} rows", Field(description="some words"))
    # a comment
    found = Sum().of(rows)
    return found
def unused(): return None
"""


def digest(command=COMMAND, sums=SUMS, **others):
    """Of a repository of these files; `others` are of `transforms` and of `pipelines`, by name."""
    texts = {"benchmarks/command.py": command, "transforms/__init__.py": "", "transforms/sums.py": sums}
    texts |= {f"transforms/{name}.py": text for name, text in others.items()}
    texts |= {f"pipelines/{name}.py": text for name, text in others.items()}
    return Code(texts.get).digest("benchmarks.command")


@pytest.mark.parametrize(
    ("command", "sums"),
    [
        (COMMAND.replace("Words.", "Other words."), SUMS.replace("# a comment", "# another")),
        (COMMAND, SUMS.replace("there are", "got").replace("some words", "others")),
        (COMMAND.replace("return 1", "return 2"), SUMS.replace("unused(): return None", "unused(): return 1")),
        (COMMAND.replace("rows", "points").replace("np", "numpy"), SUMS.replace("found", "it")),
        (COMMAND.replace("SCALE", "STDDEV"), SUMS.replace("Sum", "Total")),
        (COMMAND.replace("total", "add_up"), SUMS.replace("total", "add_up")),
    ],
)
def test_words_and_names_are_no_code(command, sums):
    assert digest(command, sums) == digest()


@pytest.mark.parametrize(
    ("command", "sums"),
    [
        (COMMAND, SUMS.replace("2.0", "3.0")),
        (COMMAND, SUMS.replace("rows.sum()", "rows.mean()")),
        (COMMAND.replace("np.ones", "np.zeros"), SUMS),
        (COMMAND, SUMS.replace("(self, rows): return rows", "(self, points): return points")),
        (COMMAND.replace("print(", "print(other() + "), SUMS),
        (COMMAND, SUMS + "STDDEV += 1.0\n"),
        (COMMAND, SUMS.replace("{len(rows)}", "{rows}")),
        (COMMAND.replace("SCALE)", "SCALE, 'words')"), SUMS),
        (COMMAND, SUMS + "print(Sum)\n"),
    ],
)
def test_reachable_modules_are_code(command, sums):
    assert digest(command, sums) != digest()


def test_a_function_that_moves_is_the_same():
    before, _, rest = SUMS.partition("class")
    moved, _, after = rest.partition("def total")
    assert digest(sums=f"from transforms.home import Sum\n{before}def total{after}", home=f"class{moved}") == digest()


def test_a_string_that_names_a_module_is_followed():
    command = COMMAND.replace("SCALE)", 'SCALE, "transforms.words")')
    assert digest(command, words="ONE = 1") != digest(command, words="ONE = 2")
    command = COMMAND.replace("SCALE)", 'SCALE, ["-m", "pipelines"])')
    started = 'if __name__ == "__main__":\n    print({})\n'
    assert digest(command, __main__=started.format(1)) != digest(command, __main__=started.format(2))


def test_a_name_without_a_module_has_no_digest():
    assert Code({}.get).digest("benchmarks.command") == ""
    assert len(digest()) == 16


@pytest.fixture
def known(monkeypatch):
    """Digests by commit, and that of today."""
    digests = {"": "0" * 16, "abcdef1": "0" * 16, "abcdef2": "1" * 16}
    monkeypatch.setattr(stale, "digest", lambda commit, module: digests[commit])
    monkeypatch.setattr(stale, "blobs", lambda commit: {"file": "blob"} if commit in digests else {})


def test_a_digest_needs_no_commit(known):
    text = RESULT.format("1234567-dirty") + "- code: {}\n"
    assert stale.judge(text.format("0" * 16)) == ("current", "-")
    assert stale.judge(text.format("1" * 16)) == ("stale", f"code {'0' * 16}")


def test_without_a_digest_commits_are_compared(known):
    assert stale.judge(RESULT.format("abcdef1")) == ("current", "-")
    assert stale.judge(RESULT.format("v1-3-gabcdef2")) == ("stale", "since abcdef2")
    assert stale.judge(RESULT.format("abcdef1-dirty")) == ("dirty", "abcdef1")
    assert stale.judge(RESULT.format("1234567")) == ("lost", "1234567")
    assert stale.judge("no command")[0] == "unnamed"


def test_a_head_says_what_was_measured_and_what_it_took(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.sys, "argv", ["benchmarks/papers/mixture_rate.py", "--out", "x"])
    measurement.show(machine.heading("Title"), tmp_path / "result.md")
    text = (tmp_path / "result.md").read_text()
    assert stale.judge(text) == ("current", "-")
    assert machine.took(text) > 0.0
    assert machine.took("- seconds: 3\n") is None


def test_a_head_names_scripts_beside_the_benchmarks_as_well(monkeypatch):
    monkeypatch.setattr(machine.sys, "argv", ["/place/tests/seams/__main__.py", "--every"])
    assert machine.heading("Title")[2] == "- command: `python -m tests.seams --every`"


PATH = stale.RESULTS / "mixture.md"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"python -m benchmarks.mixture --out {PATH}", f"-m benchmarks.mixture --out {PATH}"),
        (f"python -m benchmarks.mixture --data data --out {PATH}", f"-m benchmarks.mixture --data folder --out {PATH}"),
        (f"python -m benchmarks.mixture --before old.md --out {PATH}", ""),
        (
            f"python -m benchmarks.mixture --runs x.jsonl --out {PATH}",
            f"-m benchmarks.mixture --runs WORK/x.jsonl --out {PATH}",
        ),
        (f"python -m benchmarks.mixture --runs x.jsonl --finished_only --out {PATH}", ""),
        (f"python -m tests.fuzz --number 5 --out {PATH}", f"-m tests.fuzz --number 5 --out {PATH}"),
        ("python -m benchmarks.mixture --out part.md", ""),
    ],
)
def test_commands_of_heads_are_run_if_they_read_what_everybody_has(command, words):
    text = f"# Title\n\n- command: `{command}`\n"
    assert stale.command(PATH, text, "", stale.Path("folder")) == tuple(words.split())


def test_figures_are_drawn_by_their_list():
    assert stale.command(PATH, "", "naive", None) == ("-m", "benchmarks.papers", "--draw", "naive")
    assert stale.command(PATH, "", "fastlloyd-all", None) == ()


def test_the_cheapest_comes_first_and_a_failure_stops_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stale, "RESULTS", tmp_path)
    monkeypatch.setattr(stale.machine, "commit", lambda: "abc")
    found = []
    for name, seconds in (("unknown", None), ("long", 5.0), ("short", 1.0), ("current", 0.0)):
        path = tmp_path / f"{name}.md"
        path.write_text("no head")
        state = "current" if name == "current" else "stale"
        found.append(stale.Result(path, state, "-", ("-c", f"raise SystemExit({len(found)})"), seconds))
    stale.redraw(found, 60.0)
    told = [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["short.md", "long.md", "unknown.md"]
    assert stale.table(found)[-2:] == [
        "To redraw: 3, 0 minutes and 1 of unknown time.",
        "All 4: 0 minutes of the 3 whose time is known.",
    ]


def test_a_changed_tree_is_not_redrawn(monkeypatch):
    monkeypatch.setattr(stale.machine, "commit", lambda: "abc-dirty")
    with pytest.raises(SystemExit, match="must be committed"):
        stale.redraw([], None)
