"""Folders of killed runs are found; those that can be resumed, and those of no run, stay."""

import fcntl
import json
import os

import pytest

from dapple_dp.pipelines.plan import leftovers
from dapple_dp.pipelines.run.options import job_name
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import lake
from tests.scenes.flink_jobs import canned_flink
from tests.scenes.ledgers import gaussian, new_ledger


def left(place, name, *files):
    folder = place / name
    folder.mkdir()
    for each in files:
        (folder / each).write_bytes(b"secret")
        os.utime(folder / each, (0, 0))
    os.utime(folder, (0, 0))
    return folder


def clean(place, *flags):
    done = lake.run_command("clean", str(place), *flags)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out.splitlines()[-1]) | {"text": done.out}


@pytest.fixture
def ledger(tmp_path):
    book = new_ledger(tmp_path, Limit(epsilon=10.0, delta=1e-5))
    for run in ("open", "done", "void", "sealed"):
        book.reserve(run, gaussian(20.0), {})
    for run in ("done", "sealed"):
        book.commit(run, {"manifest": "0" * 64})
    book.void("void", "InputError")
    return book


def test_it_lists_first_and_removes_on_request(tmp_path):
    folder = left(tmp_path, "out.partial-r1", "run.key", "run.nonce")
    copy = left(tmp_path, "out.partial-r1.clients", "part-0.parquet")
    found = clean(tmp_path)
    assert ([each["run_id"] for each in found["found"]], found["deleted"]) == (["r1", "r1"], [])
    assert folder.exists()
    assert clean(tmp_path, "--delete")["deleted"] == [str(folder), str(copy)]
    assert list(tmp_path.iterdir()) == []


def test_young_folders_and_outputs_stay(tmp_path):
    fresh = left(tmp_path, "out.partial-r1", "run.key", "run.nonce")
    os.utime(fresh / "run.key")
    left(tmp_path, "out", "run.json")
    assert clean(tmp_path, "--delete")["found"] == []
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_ledger_holds_is_given_up_by_name_only(tmp_path, ledger):
    for run in ("open", "done", "void", "sealed"):
        left(tmp_path, f"out.partial-{run}", "run.key", *(["run.json"] if run == "sealed" else []))
    found = clean(tmp_path, "--ledger", ledger.path, "--delete")
    assert {path.rpartition("-")[2] for path in found["deleted"]} == {"done", "void"}
    assert "resumes it for free, or --delete --abandon removes it" in found["text"]
    assert "puts it in place for free" in found["text"]
    found = clean(tmp_path, "--ledger", ledger.path, "--delete", "--abandon")
    assert {path.rpartition("-")[2] for path in found["deleted"]} == {"open", "sealed"}


def test_without_the_ledger_a_run_that_one_may_hold_stays(tmp_path):
    key = left(tmp_path, "out.partial-r1", "run.key")
    rows = left(tmp_path, "out.partial-r1.clients", "part-0.parquet")
    rounds = left(tmp_path, "out.partial-r2", "run.key", "run.nonce", "checkpoint.json")
    assert clean(tmp_path, "--delete")["deleted"] == []
    assert key.exists()
    assert rows.exists()
    assert rounds.exists()


def test_a_run_under_way_is_left_alone(tmp_path):
    folder = left(tmp_path, "out.partial-r1", "run.key", "run.nonce")
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found = clean(tmp_path, "--delete", "--abandon")
    os.close(lock)
    assert (found["deleted"], found["found"][0]["alien"]) == ([], "a run is under way in it, or it is another user's")


@pytest.mark.parametrize(
    "name",
    [
        *("files.jsonl", "split.json", "before.npz", "called.npz", "0123456789abcdef.jsonl", "0123456789abcdef-0"),
        *(".rows-0123456789abcdef.01234567", ".shard-0000001.parquet.0123456789abcdef", "manifest.json"),
    ],
)
def test_a_copy_goes_whatever_it_was_at(tmp_path, name):
    """Listings hold the paths of all input."""
    folder = left(tmp_path, "out.partial-r1.clients", name)
    assert clean(tmp_path, "--delete")["deleted"] == [str(folder)]
    assert not folder.exists()


@pytest.mark.parametrize("name", ["0123456789abcdef", "notes.jsonl", "0123456789abcdef-0.txt", "x.rows-01"])
def test_a_folder_with_other_files_is_nobodys_copy(tmp_path, name):
    folder = left(tmp_path, "out.partial-r1.clients", name)
    assert clean(tmp_path, "--delete", "--abandon")["deleted"] == []
    assert (folder / name).exists()


@pytest.mark.parametrize("place", ["out.partial-r1", "."])
def test_a_run_that_begins_meanwhile_keeps_its_copy(tmp_path, monkeypatch, place):
    """It holds the lock of its staging folder, and before that the one of the folder above."""
    left(tmp_path, "out.partial-r1", "run.key", "run.nonce")
    copy = left(tmp_path, "out.partial-r1.clients", "files.jsonl")
    lock = os.open(tmp_path / place, os.O_RDONLY)
    monkeypatch.setattr(leftovers, "is_locked", lambda _: False)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found = clean(tmp_path, "--delete", "--abandon")
    os.close(lock)
    assert found["deleted"] == []
    assert copy.exists()


def test_a_committed_run_whose_key_is_there_can_be_drawn_again(tmp_path, ledger):
    ledger.reserve("again", gaussian(20.0), {})
    ledger.commit("again", {"manifest": "0" * 64, "releases": "0" * 64})
    folder = left(tmp_path, "out.partial-again", "run.key")
    found = clean(tmp_path, "--ledger", ledger.path, "--delete")
    assert found["deleted"] == []
    assert "resumes it for free" in found["text"]
    (folder / "run.key").unlink()
    (folder / "mask.secret").touch()
    assert clean(tmp_path, "--ledger", ledger.path, "--delete", "--hours", "0")["deleted"] == [str(folder)]


def test_folders_of_others_and_links_are_left_alone(tmp_path):
    mine = left(tmp_path, "thesis.partial-draft", "chapter.txt")
    mine_too = left(tmp_path, "thesis.partial-draft.clients", "chapter.txt")
    target = left(tmp_path, "elsewhere", "run.key", "run.nonce")
    (tmp_path / "out.partial-r1").symlink_to(target)
    assert clean(tmp_path, "--delete", "--abandon", "--hours", "0")["deleted"] == []
    assert mine.exists()
    assert mine_too.exists()
    assert target.exists()


def test_links_inside_are_not_followed(tmp_path):
    target = left(tmp_path, "elsewhere", "precious")
    folder = left(tmp_path, "out.partial-r1", "run.key", "run.nonce")
    (folder / "link").symlink_to(target)
    assert clean(tmp_path, "--delete", "--hours", "0")["deleted"] == [str(folder)]
    assert (target / "precious").exists()


@pytest.mark.parametrize(
    ("words", "code"), [(("nowhere",), 2), ((".", "--hours", "nan"), 2), ((".", "--ledger", "none.sqlite"), 3)]
)
def test_wrong_words_are_refused(tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    assert lake.run_command("clean", *words).code == code


NIGHT = job_name("fit", "night-1")


@pytest.fixture
def flink(tmp_path):
    """A cluster with jobs of two killed runs; one of them has a folder here."""
    left(tmp_path, "out.partial-night-1", "run.key", "run.nonce")
    with canned_flink() as (address, kind):
        yield ("--flink_master", address), kind


def test_a_job_that_goes_on_is_named_and_stopped_before_its_folder_goes(tmp_path, flink):
    found = clean(tmp_path, *flink[0])
    assert found["found"][0]["jobs"] == [NIGHT]
    assert f"{NIGHT} goes on in the cluster; it holds keys" in found["text"]
    assert (found["stopped"], found["others"], flink[1].canceled) == ([], [job_name("fit", "Night-1")], [])
    found = clean(tmp_path, *flink[0], "--delete")
    assert (found["stopped"], flink[1].canceled) == ([NIGHT], ["/jobs/a1?mode=cancel"])
    assert (len(found["deleted"]), list(tmp_path.iterdir())) == (1, [])


def test_a_job_of_a_run_that_can_be_taken_up_is_stopped_and_its_folder_stays(tmp_path, flink):
    folder = left(tmp_path, "two.partial-Night-1", "run.key", "checkpoint.json")
    found = clean(tmp_path, *flink[0], "--delete")
    assert set(found["stopped"]) == {NIGHT, job_name("fit", "Night-1")}
    assert folder.exists()


def test_a_job_whose_driver_is_at_work_goes_on(tmp_path, flink):
    lock = os.open(tmp_path / "out.partial-night-1", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found = clean(tmp_path, *flink[0], "--delete", "--abandon", "--hours", "0")
    os.close(lock)
    assert (found["stopped"], found["deleted"], flink[1].canceled) == ([], [], [])


def test_without_an_answer_nothing_is_removed(tmp_path, flink):
    flink[1].code = 500
    done = lake.run_command("clean", str(tmp_path), *flink[0], "--delete")
    assert done.code == 1
    assert "--flink_master must be the address of a Flink cluster" in done.err
    assert (tmp_path / "out.partial-night-1").exists()
