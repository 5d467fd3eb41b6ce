"""The checker for strangers: it shares no code with us, passes what runs publish, and refuses what was altered."""

import ast
import json
import os
import shutil
import sys

import pytest

from tests.scenes import published_runs as published
from tests.scenes.published_runs import FORGERIES, RUNS

pytestmark = pytest.mark.slow

ALLOWED = {"numpy", "pyarrow", "dp_accounting"}
BY_FILES = [name for name, forgery in FORGERIES.items() if not forgery.signs]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return published.publish(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def passed(runs, empty):
    """The verdicts on all runs, in one process."""
    done = published.check(*map(str, runs.values()), cwd=empty)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return published.sections(done.stdout)


@pytest.fixture(scope="module")
def forged(runs, empty, tmp_path_factory):
    """The verdict on each forgery that is not signed, in one process."""
    folder = tmp_path_factory.mktemp("forgeries")
    places = {name: published.forge(runs, name, folder / str(at))[0] for at, name in enumerate(BY_FILES)}
    done = published.check(*map(str, places.values()), cwd=empty)
    assert (done.returncode, done.stderr) == (5, "")
    said = published.sections(done.stdout)
    return {name: said[str(place)] for name, place in places.items()}


def test_it_is_one_file_without_code_of_ours():
    text = published.SCRIPT.read_text()
    found = {alias.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in found}
    assert roots - set(sys.stdlib_module_names) == ALLOWED
    assert len(text.splitlines()) <= 520


@pytest.mark.parametrize("name", RUNS)
def test_what_runs_publish_holds(runs, passed, name):
    said = passed[str(runs[name])]
    assert not [line for line in said if not line.startswith(("holds: ", "cannot know: "))]
    assert any("have the digests in run.json" in line for line in said)
    assert any("epsilon" in line or "private" in line for line in said if line.startswith("holds: "))
    assert any("noise of the stated law was really drawn" in line for line in said if line.startswith("cannot know: "))


def test_sentences_are_of_what_was_run(runs, passed):
    first, window = passed[str(runs["dp_lloyd, record"])], passed[str(runs["second window of an epoch"])]
    assert "holds: Centers are, to the lattice step, what the last sums and counts give." in first
    assert any("per record to epsilon 1.99884906 at delta 1e-06, as stated" in line for line in first)
    assert any("for all 2 windows of the epoch together" in line for line in window)
    follows = passed[str(runs["recurring, follows the first"])]
    assert "holds: It names the centers of run bytes by their digest." in follows
    assert any("it is not signed" in line or "the run is not signed" in line for line in first)


@pytest.mark.parametrize("name", [name for name in BY_FILES if FORGERIES[name].caught])
def test_an_altered_release_is_refused(forged, name):
    (said,) = forged[name]
    assert said.startswith("REFUSED: ")
    assert FORGERIES[name].caught in said


@pytest.mark.parametrize("name", [name for name in BY_FILES if FORGERIES[name].caught is None])
def test_what_files_cannot_tell_is_said(forged, name):
    """Nothing in the files contradicts these, and the checker says that it would not see them."""
    said = forged[name]
    assert not [line for line in said if line.startswith("REFUSED")]
    assert any("nobody rewrote all files, digests included" in line for line in said)
    if "called clients" in name:
        assert any("or earlier releases gave the lattice units of" in line for line in said)
    if "moved" in name:
        assert any("one moved by whole lattice steps is not seen" in line for line in said)


def test_a_signature_reveals_what_digests_do_not(runs, empty, tmp_path):
    copy = shutil.copytree(runs["dp_lloyd, record"], tmp_path / "a" / "run")
    key = published.signed(copy)
    place, _ = published.forge(runs, "page and digests changed, signed", tmp_path / "b")
    other = published.check(str(copy), "--key", "0" * 64, cwd=empty)
    done = published.check(str(copy), str(place), "--key", key, cwd=empty)
    said = published.sections(done.stdout)
    assert (other.returncode, done.returncode) == (5, 5)
    assert "signature.json must be by the given key" in other.stdout
    assert f"holds: run.json is signed by the key {key}." in said[str(copy)]
    assert said[str(place)] == ["REFUSED: signature.json must be a signature of run.json, got one of another file."]


def test_a_later_run_reveals_that_an_earlier_one_was_altered(runs, empty, tmp_path):
    """Anyone who recomputes all digests of one night does not reach the next night's manifest."""
    copy = shutil.copytree(runs["dp_lloyd, record"], tmp_path / "run")
    published.edit_rows("centers.parquet", lambda rows: rows[0].update(noisy_size=rows[0]["noisy_size"]))(copy)
    published.seal(copy)
    done = published.check(str(copy), str(runs["recurring, follows the first"]), cwd=empty)
    first, second = published.sections(done.stdout).values()
    assert done.returncode == 5
    assert first[0].startswith("holds: ")
    assert "must follow the centers of the run before it" in second[0]


def test_hostile_folders_are_refused_in_a_sentence(runs, empty, tmp_path):
    def broken(name, change):
        copy = shutil.copytree(runs["dp_lloyd, record"], tmp_path / name)
        change(copy)
        return str(copy)

    def deep(folder):
        (folder / "run.json").write_text("[" * 100000)

    def outside(folder):
        manifest = json.loads((folder / "run.json").read_text())
        manifest["files"]["../../secret"] = "0" * 64
        (folder / "run.json").write_text(json.dumps(manifest))
        published.edit_json("run.json", lambda content: None)(folder)

    def linked(folder):
        (folder / "report.html").rename(tmp_path / "page")
        (folder / "report.html").symlink_to(tmp_path / "page")

    def huge(folder):
        published.edit_json("privacy.json", lambda content: content["events"][0].update(shape=[10**400]))(folder)
        published.seal(folder)

    def other_kind(folder):
        shutil.copy(runs["profile, client"] / "profile.parquet", folder / "profile.parquet")
        published.edit_json("run.json", lambda content: content["files"].update({"profile.parquet": ""}))(folder)
        published.edit_json("privacy.json", lambda content: content.update(epsilon=0.1))(folder)
        published.seal(folder)

    places = [broken(change.__name__, change) for change in (deep, outside, linked, huge, other_kind)]
    places.append(broken("further", lambda folder: (folder / "more.txt").write_text("x")))
    places.append(broken("missing", lambda folder: os.unlink(folder / "centers.parquet")))
    done = published.check(*places, cwd=empty)
    said = published.sections(done.stdout)
    assert (done.returncode, done.stderr, set(said)) == (5, "", set(places))
    assert all(len(lines) == 1 and lines[0].startswith("REFUSED: ") for lines in said.values()), said


def test_wrong_usage_is_refused(runs, empty):
    for words in ((), ("nowhere",), (str(runs["dp_lloyd, record"]), "--key", "officer.pub")):
        done = published.check(*words, cwd=empty)
        assert (done.returncode, done.stdout) == (2, "")
