"""The results of a cut follow from what was flushed; whatever is looked for is found, in the source and in a record."""

import ast
import pathlib

import pytest

from tests.power_cuts import disk, jobs, replay, sites, uncut
from tests.power_cuts.disk import Disk
from tests.power_cuts.jobs import Job, Step
from tests.power_cuts.trace import Call, Traced


def printed(text: str | bytes) -> str:
    """A string as strace prints it."""
    content = text if isinstance(text, bytes) else text.encode()
    return '"' + "".join(f"\\x{byte:02x}" for byte in content) + '"'


class Process:
    """Calls of a process on a disk."""

    def __init__(self, root: pathlib.Path):
        self.root = str(root)
        self.calls: list[Call] = []

    def call(self, name: str, *args: str, result: int = 0) -> "Process":
        self.calls.append(Call(1, name, list(args), result))
        return self

    def opened(self, name: str, number: int = 3) -> str:
        return f"{number}<{printed(f'{self.root}/{name}')[1:-1]}>" if name else f"4<{printed(self.root)[1:-1]}>"

    def path(self, name: str) -> str:
        return printed(f"{self.root}/{name}")

    def makes(self, name: str, content: bytes) -> "Process":
        self.call("openat", "AT_FDCWD", self.path(name), "O_WRONLY|O_CREAT|O_TRUNC", "0666", result=3)
        return self.call("write", self.opened(name), printed(content), str(len(content)), result=len(content))

    def flushes(self, name: str) -> "Process":
        return self.call("fsync", self.opened(name))

    def renames(self, old: str, new: str) -> "Process":
        return self.call("rename", self.path(old), self.path(new))

    def removes(self, name: str) -> "Process":
        return self.call("unlink", self.path(name))


@pytest.fixture
def process(tmp_path):
    """Process with a disk that holds `old`, for good."""
    for name in ("disk", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_bytes(b"before")
    return Process(tmp_path / "disk")


def left(process: Process, last: int = 3, elsewhere: tuple[str, ...] = ()) -> list[dict[str, bytes | None]]:
    """Different contents that a cut after all calls leaves."""
    root = pathlib.Path(process.root)
    model = Disk(root, root.parent / "copy", elsewhere)
    for call in process.calls:
        model.tell(call)
    found = []
    for _, tree in model.trees(last):
        plain = {name: entry.content for name, entry in tree.items()}
        if plain not in found:
            found.append(plain)
    return found


OLD: dict[str, bytes | None] = {"old": b"before"}


def test_unflushed_files_may_be_gone_whole_or_there(process):
    found = left(process.makes("new", b"content"))
    assert found == [OLD, OLD | {"new": b"content"}, OLD | {"new": b""}]


def test_a_flushed_file_may_lack_its_name(process):
    assert left(process.makes("new", b"content").flushes("new")) == [OLD, OLD | {"new": b"content"}]


def test_a_flushed_name_may_lack_its_content(process):
    assert left(process.makes("new", b"content").flushes("")) == [OLD | {"new": b""}, OLD | {"new": b"content"}]


def test_flushed_files_are_there(process):
    assert left(process.makes("new", b"content").flushes("new").flushes("")) == [OLD | {"new": b"content"}]


def test_a_rename_is_there_or_not(process):
    process.makes("new", b"content").flushes("new").flushes("").renames("new", "old")
    assert left(process) == [OLD | {"new": b"content"}, {"old": b"content"}]


def test_a_rename_to_another_folder_loses_no_file(process):
    process.call("mkdir", process.path("folder"), "0700").flushes("").renames("old", "folder/old")
    moved = {"folder": None, "folder/old": b"before"}
    assert left(process) == [OLD | {"folder": None}, moved, OLD | moved]


def test_a_removed_file_may_come_back(process):
    assert left(process.removes("old")) == [OLD, {}]


def test_other_machines_keep_what_they_have(process):
    (pathlib.Path(process.root).parent / "copy" / "there").mkdir()
    process.makes("there/sent", b"message").makes("here", b"")
    assert all(tree["there/sent"] == b"message" for tree in left(process, elsewhere=("there",)))


def test_writes_go_where_the_process_has_come_to(process):
    process.makes("new", b"abcdef").call("lseek", process.opened("new"), "2", "SEEK_SET", result=2)
    process.call("write", process.opened("new"), printed(b"XY"), "2", result=2)
    process.call("pwrite64", process.opened("new"), printed(b"!"), "1", "7", result=1)
    process.call("ftruncate", process.opened("new"), "9").flushes("new").flushes("")
    assert left(process) == [OLD | {"new": b"abXYef\0!\0"}]


@pytest.mark.parametrize("call", ["fallocate", "copy_file_range"])
def test_what_cannot_be_followed_is_not_passed_over(process, call):
    process.makes("new", b"").call(call, process.opened("new"), "0", process.opened("old"), "1", result=1)
    with pytest.raises(NotImplementedError):
        left(process)


def test_a_record_that_is_not_what_is_there_is_refused(process, tmp_path):
    (tmp_path / "disk" / "unseen").write_bytes(b"")
    model = Disk(tmp_path / "disk", tmp_path / "copy")
    with pytest.raises(AssertionError, match="unseen"):
        replay._check_followed(model, tmp_path / "disk")


# What is found out.


class Careless(Job):
    """Says that it is done before anything is flushed."""

    def steps(self):
        (self.disk / "old").write_bytes(b"before")
        yield Step(["word"])

    def fault(self, left, done, again, *, over):
        return "what was said to be done is lost" if over and "new" not in left else ""


@pytest.mark.parametrize(("flushed", "wrong"), [((), True), (("new",), True), (("new", ""), False)])
def test_a_careless_writer_is_found_out(tmp_path, monkeypatch, flushed, wrong):
    process = Process(tmp_path / "disk")

    def traced(*_):
        (tmp_path / "disk" / "new").write_bytes(b"content")
        process.makes("new", b"content")
        for name in flushed:
            process.flushes(name)
        return Traced(0, "", "", process.calls)

    monkeypatch.setattr("tests.power_cuts.trace.traced", traced)
    monkeypatch.setattr(replay, "called", lambda *_: (0, ""))
    assert bool(replay.tried("careless", Careless, tmp_path).faults) is wrong


@pytest.mark.parametrize(
    ("code", "err", "told"), [(1, "Traceback ...", "a traceback"), (None, "", "hangs"), (3, "no", "refused")]
)
def test_how_a_command_ends_counts(tmp_path, monkeypatch, code, err, told):
    process = Process(tmp_path / "disk")
    monkeypatch.setattr("tests.power_cuts.trace.traced", lambda *_: Traced(0, "", "", process.calls))
    monkeypatch.setattr(replay, "called", lambda *_: (code, err))
    (fault,) = replay.tried("careless", Careless, tmp_path).faults
    assert fault.what.startswith(told)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("write_bytes(path, content)", True),
        ("new_file.rename(a, b)", True),
        ("(new_file.put_in_place if local else write_bytes)(path, content)", True),
        ("os.replace(a, b)", True),
        ("self._ledger.commit(run, {})", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("os.open(path, os.O_RDONLY)", False),
        ("name.replace('a', 'b')", False),
        ("broker.commit()", False),
    ],
)
def test_durable_writes_are_found_in_the_source(line, found):
    assert sites.is_site(ast.parse(line, mode="eval").body) is found


def test_reasons_are_of_writes_that_are_there():
    there = {(path, function) for path, _, function in (each.split(":") for each in sites.sites())}
    named = {(path, function) for path, found in uncut.REASONS.items() for function in found}
    gone = {each for each in named - there if each[1] not in uncut.OF_STORES}
    assert gone == set()


def test_a_tree_is_written_as_it_was(tmp_path):
    (tmp_path / "a").mkdir()
    tree = {"folder": disk.Entry(0o700, None, "folder"), "folder/file": disk.Entry(0o600, b"x", "file")}
    disk.write(tree, tmp_path)
    assert disk.found(tmp_path) == tree


RUN, AGAIN = "run/lloyd_00", "run/lloyd_00~2"
SUMMED = ["limit", f"reserve {RUN}", f"start {RUN}", f"commit {RUN}"]
TWICE = ["limit", f"reserve {RUN}", f"reserve {AGAIN}", f"start {AGAIN}", f"commit {AGAIN}"]


@pytest.mark.parametrize(
    ("left", "done", "again", "word"),
    [
        (["limit"], ["limit"], ["limit", f"reserve {RUN}", f"start {RUN}", f"void {RUN}"], None),
        (["limit"], SUMMED, SUMMED, None),
        (TWICE[:2], SUMMED, TWICE, None),
        (SUMMED[:3], SUMMED, SUMMED[:3], None),
        (SUMMED[:3], SUMMED, ["limit"], "lost"),
        (SUMMED[:3], SUMMED, [*SUMMED[:3], f"void {RUN}"], "must be charged"),
        (["limit"], ["limit"], SUMMED[:3], "nothing else"),
        (["limit"], SUMMED, [*SUMMED[:2], *TWICE[2:]], "more than once"),
        (SUMMED[:3], SUMMED, [*SUMMED[:3], *SUMMED[2:]], "drawn twice"),
    ],
)
def test_a_sum_is_charged_once_for_each_attempt_that_may_have_drawn(left, done, again, word):
    found = jobs.sums_without_charge(left, done, again)
    assert found is None if word is None else word in found
