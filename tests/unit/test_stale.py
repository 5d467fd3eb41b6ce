"""A result is stale if code that it measures has changed; a docstring is no code."""

import pytest

from benchmarks import stale

RESULT = "- command: `python -m benchmarks.mixture --out x`\n- commit: {}\n"


@pytest.fixture
def commit(monkeypatch):
    """Pretends that a commit holds these texts by path; others are those of today."""
    texts = {path: stale.Path(path).read_text() for path in stale.modules("benchmarks.mixture")}
    monkeypatch.setattr(stale, "blobs", lambda name: {path: path for path in texts} if "a" in name else {})
    monkeypatch.setattr(stale, "git", lambda *words: texts[words[-1]])
    return texts


def test_comments_and_docstrings_are_no_code(commit):
    path = "benchmarks/mixture.py"
    commit[path] = '"""Other words."""\n# a comment\n' + commit[path].split('"""', 2)[2]
    assert stale.judge(RESULT.format("abcdef1")) == ("current", "-")
    commit[path] += "\nMORE = 1\n"
    assert stale.judge(RESULT.format("abcdef1")) == ("stale", path)


def test_what_nobody_can_compare_is_told_apart(commit):
    assert stale.judge(RESULT.format("abcdef1-dirty"))[0] == "dirty"
    assert stale.judge(RESULT.format("1234567"))[0] == "lost"
    assert stale.judge("no command")[0] == "unnamed"
    del commit["benchmarks/mixture.py"]
    assert stale.modules("benchmarks.mixture")[0] == "benchmarks/mixture.py"


def test_imports_are_followed():
    found = stale.modules("benchmarks.papers.feddp_answers")
    assert {"benchmarks/papers/in_memory.py", "transforms/privacy/accounting.py"} <= set(found)
