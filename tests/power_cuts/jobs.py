"""Commands whose disks lose power: what lies on the disk before, what is called, and what must hold afterwards."""

import abc
import hashlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import yaml

from pipelines.ledger.store import Ledger
from schemas.errors import DappleError
from schemas.privacy.charge import Limit
from tests.power_cuts import disk
from tests.power_cuts.disk import Tree
from tests.scenes import epochs, federation, ledgers
from transforms.files.publish import RELEASED_FILES

MODELS = "models.parquet"


class Step(NamedTuple):
    """A call of the command.

    Attributes:
      words: after `dapple`.
      is_cut: whether it is recorded and cut, or only done on the way.
    """

    words: list[str]
    is_cut: bool = True


class Job(abc.ABC):
    """A job on a disk of its own.

    Args:
      folder: new; its `disk` loses power, inputs may lie beside it.
    """

    elsewhere: tuple[str, ...] = ()
    """Folders of the disk that are those of other machines."""
    ledger: str | None = None
    """Path of a ledger, below the disk."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.disk = folder, folder / "disk"
        self.disk.mkdir()

    @abc.abstractmethod
    def steps(self) -> Iterator[Step]:
        """What is called, one after the other."""

    @abc.abstractmethod
    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        """What is wrong after a step that was cut was called again, and ended well; empty if nothing is.

        Args:
          left: by the cut.
          done: by the step that nobody cut.
          again: by the step that was called again.
          over: whether the step that was cut had come to its end, and said so.
        """

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        """The call that a sentence asks for, no words if it asks for none; None where the job may not refuse."""
        del sentence, words
        return None

    def kinds(self, tree: Tree) -> list[str]:
        """Entries of the ledger; raises DappleError if it cannot be read."""
        assert self.ledger is not None
        held = {name: entry for name, entry in tree.items() if name in (self.ledger, f"{self.ledger}-journal")}
        if self.ledger not in held:
            return []
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            disk.write({pathlib.Path(name).name: entry for name, entry in held.items()}, pathlib.Path(place))
            path = pathlib.Path(place, pathlib.Path(self.ledger).name)
            return [f"{each.kind} {each.run}".strip() for each in Ledger(str(path)).entries()]

    def left(self, tree: Tree) -> list[str]:
        """Entries of a ledger that may be half made: what was known to be in it is looked for before."""
        try:
            return self.kinds(tree) if self.ledger else []
        except DappleError:
            return []


def files(tree: Tree, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Content of files of a folder that are there."""
    found = {name: tree.get(f"{folder}/{name}") for name in names}
    return {name: entry.content or b"" for name, entry in found.items() if entry is not None}


def unlike_its_manifest(tree: Tree, folder: str) -> str:
    """What a published folder lacks, or holds against its manifest."""
    held = {name.removeprefix(f"{folder}/") for name in tree if name.startswith(f"{folder}/")}
    entry = tree.get(f"{folder}/run.json")
    if entry is None:
        return f"{folder} has no run.json" if held else ""
    listed: dict[str, Any] = json.loads(entry.content or b"")["files"]
    if held - {"run.json"} != set(listed):
        return f"{folder} holds other files than its run.json lists: {sorted(held ^ set(listed))}"
    for name, digest in listed.items():
        if hashlib.sha256(tree[f"{folder}/{name}"].content or b"").hexdigest() != digest:
            return f"{folder}/{name} is not what its run.json lists"
    return ""


class _Charged(Job):
    """A run that a ledger is charged for, with one release.

    Attributes:
      output: folder of the release.
      run: its id.
      names: of released files.
    """

    output, run = "deep/out", "run"
    names: tuple[str, ...] = RELEASED_FILES

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        before, after = self.left(left), self.kinds(again)
        if after != self.kinds(done):
            return f"the ledger has {after}"
        bad = unlike_its_manifest(left, self.output) or unlike_its_manifest(again, self.output)
        if bad:
            return bad
        whole, now = files(done, self.output, self.names), files(again, self.output, self.names)
        assert len(whole) == len(self.names)
        if len(now) != len(self.names):
            return "there is no release"
        known = over or f"start {self.run}" in before or bool(files(left, self.output, self.names))
        if known and now != whole:
            return "another release was drawn for one charge"
        rest = [name for name in again if ".partial-" in name]
        return f"staged files stay: {rest}" if rest else ""


class Fit(_Charged):
    """Rows lie elsewhere; the output is in a folder that is not there yet."""

    ledger: str | None = "ledger.sqlite"
    settings: ClassVar[dict[str, Any]] = {}

    def steps(self) -> Iterator[Step]:
        """One fit."""
        ledger = ledgers.new_ledger(self.disk, Limit(epsilon=1000.0, delta=1e-5))
        (self.folder / "rows").mkdir()
        settings = {"ledger": ledger.path} | self.settings
        place = ledgers.Place(self.folder / "rows", epsilon=1000.0, unit="client", **settings)
        yield Step(place.words(str(self.disk / self.output), self.run))


class Chunks(Fit):
    """A graph for every round."""

    settings: ClassVar[dict[str, Any]] = {"chunks": {"rounds": 1}}


class FreeRounds(Fit):
    """A run without a ledger."""

    ledger = None

    def steps(self) -> Iterator[Step]:
        (self.folder / "rows").mkdir()
        place = ledgers.Place(self.folder / "rows", unit="client", chunks={"rounds": 1})
        del place.job["ledger"]
        yield Step(place.words(str(self.disk / self.output), self.run))

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        bad = unlike_its_manifest(left, self.output) or unlike_its_manifest(again, self.output)
        if bad:
            return bad
        was, now = (files(tree, self.output, self.names) for tree in (left, again))
        if len(now) != len(self.names):
            return "there is no release"
        if (over or was) and now != files(done, self.output, self.names):
            return "another release was drawn"
        return ""


class Stream(_Charged):
    """The second window of an epoch, whose clients are counted by a roll beside the ledger."""

    ledger = "ledger.sqlite"
    output, run = f"january/{epochs.DATES[1]}", f"january-{epochs.DATES[1]}"

    def steps(self) -> Iterator[Step]:
        """A window as it is, and one that is cut."""
        place = epochs.Place(self.disk)
        place.write(epochs.DATES[0], range(30))
        place.write(epochs.DATES[1], range(20, 60))
        yield Step(place.words(epochs.DATES[0]), is_cut=False)
        yield Step(place.words(epochs.DATES[1]))


class ClusteredFl(_Charged):
    """Rounds of DP-SGD at clients of one run, with a checkpoint per chunk."""

    ledger = "ledger.sqlite"
    names = (MODELS,)

    def steps(self) -> Iterator[Step]:
        """One run."""
        ledger = ledgers.new_ledger(self.disk, ledgers.basic_limit(9.0, 3e-3), "digits")
        rows = federation.write_lake(self.folder / "rows")
        settings = federation.job(rows, data__name="digits", ledger=ledger.path, training__rounds=2)
        job = self.folder / "job.yaml"
        job.write_text(yaml.safe_dump(settings))
        yield Step(["clustered_fl", "--config", str(job), "--output", str(self.disk / self.output), "--run_id", "run"])


class LedgerWords(Job):
    """A ledger is made, gets a second limit, and is exported."""

    ledger = "ledger.sqlite"

    def steps(self) -> Iterator[Step]:
        """Two limits, and a table."""
        path = str(self.disk / self.ledger)
        for name, epsilon in (("visits", "2"), ("census", "3")):
            words = ["ledger", "limit", "--ledger", path, "--dataset", name, "--epsilon", epsilon, "--delta", "1e-6"]
            yield Step(words)
        yield Step(["ledger", "export", "--ledger", path, "--output", str(self.disk / "ledger.csv")])

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        before, whole, after = len(self.left(left)), len(self.kinds(done)), len(self.kinds(again))
        if over and before < whole:
            return "a limit was said to be set, and is lost"
        return "" if after in (whole, whole + 1) else f"the ledger has {after} entries"


class Enrolled(Job):
    """A party is enrolled."""

    def steps(self) -> Iterator[Step]:
        """Once."""
        (self.disk / "jobs").mkdir()
        parties = _parties(self.disk / "jobs")
        shutil.rmtree(parties.folder / "state")
        words = ["party", "enroll", "--config", str(parties.folder / "client-0.yaml"), "--client", "client-0"]
        yield Step(words)

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        return [] if sentence.endswith("use it as it is.") else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        was, now = (
            {name: entry.content or b"" for name, entry in tree.items() if name.endswith(".key")}
            for tree in (left, again)
        )
        lengths = [len(content) for name, content in now.items() if name.startswith("jobs/state/")]
        if lengths != [32, 32]:
            return f"a party that is enrolled has keys of lengths {lengths}"
        if any(now[name] != content for name, content in was.items() if content):
            return "a key was made anew"
        return ""


def _parties(folder: pathlib.Path, **settings: Any) -> Any:
    from tests.pipeline.masked.test_masked_jobs import Parties

    return Parties(folder, **settings)


class Masked(Job):
    """A round of two clients, an aggregator and whoever unmasks; a party loses its power, and the exchange does not."""

    elsewhere = ("jobs/exchange",)

    def steps(self) -> Iterator[Step]:
        """The run is opened, messages are sent, summed and unmasked; the first of each kind is cut."""
        (self.disk / "jobs").mkdir()
        self.parties = _parties(self.disk / "jobs", algorithm="server_lloyds", lloyd={"steps": 1})
        places = ["--exchange", self.parties.exchange]

        def of_clients(name: str, client: int, *more: str) -> list[str]:
            config = str(self.parties.folder / f"client-{client}.yaml")
            return [name, "--config", config, *places, "--released", self.parties.released, *more]

        aggregate = ["aggregate", "--config", str(self.parties.folder / "aggregate.yaml"), *places]
        unmask = of_clients("unmask", 0, "--run_id", "run")
        yield Step(unmask)
        yield Step(aggregate)
        number = 0
        while not (pathlib.Path(self.parties.released) / "result").exists():
            assert number < 9
            yield Step(of_clients("upload", 0, "--client", "client-0"))
            yield Step(of_clients("upload", 1, "--client", "client-1"), is_cut=False)
            yield Step(aggregate)
            yield Step(unmask)
            number += 1

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        ends = ("its sum is final.", "wait for more clients.")
        return [] if words[0] == "aggregate" and sentence.endswith(ends) else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        for name, entry in left.items():
            if name.startswith("jobs/exchange/") and entry.kind == "file" and not name.endswith(".part"):
                now = again.get(name)
                if now is None or now.content != entry.content:
                    return f"{name} was sent and is another file now"
        missing = {name for name in done if "/exchange/" in name or "/released/" in name} - set(again)
        if missing:
            return f"not all is there: {sorted(missing)}"
        for name, entry in done.items():
            is_release = name.startswith("jobs/released/") and name.endswith(".parquet")
            if over and is_release and again[name].content != entry.content:
                return f"{name} is another one"
        return ""


JOBS: dict[str, type[Job]] = {
    "masked": Masked,
    "fit": Fit,
    "chunks": Chunks,
    "stream": Stream,
    "clustered_fl": ClusteredFl,
    "free": FreeRounds,
    "ledger": LedgerWords,
    "enroll": Enrolled,
}
"""By name, those first that take long."""
