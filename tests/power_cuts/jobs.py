"""Commands whose disks lose power: what is on the disk before, what is called, and what must hold afterwards."""

import abc
import hashlib
import json
import pathlib
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import yaml

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.errors import DappleError
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from tests.power_cuts import disk
from tests.power_cuts.disk import Tree
from tests.scenes import brokers, crashes, epochs, federation, lake, ledgers

MODELS = "models.parquet"


class Step(NamedTuple):
    """A call of the command.

    Attributes:
      words: after `dapple`.
      is_cut: whether it is recorded and cut, or only done on the way.
      code: its exit code, cut or not.
    """

    words: list[str]
    is_cut: bool = True
    code: int = 0


class Job(abc.ABC):
    """A job on a disk of its own.

    Args:
      folder: new; its `disk` loses power, inputs may be beside it.
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
        """The commands called, one after the other."""

    @abc.abstractmethod
    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        """The fault after a step that was cut was called again, and ended well; empty if nothing is.

        Args:
          left: by the cut.
          done: by the step that nobody cut.
          again: by the step that was called again.
          over: whether the step that was cut had come to its end, and said so.
        """

    def close(self) -> None:  # noqa: B027 - most jobs have nothing to end
        """Ends what a job has started beside its commands."""

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
    """Returns what a published folder lacks, or holds against its manifest."""
    there = (name for name, entry in tree.items() if entry.kind != "folder" and name.startswith(f"{folder}/"))
    held = {name.removeprefix(f"{folder}/") for name in there}
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
    """Rows are elsewhere; the output is in a folder that is not there yet."""

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


class TakenUp(Chunks):
    """A run that takes up what an attempt has left that was killed; the power is cut while it does."""

    point = crashes.Point("dapple_dp.transforms.files.checkpoint:CheckpointFolder.save", after=True)

    def steps(self) -> Iterator[Step]:
        """An attempt that dies, and the one after it."""
        for step in super().steps():
            killed = {"key": bytes(range(32)), "point": self.point, "kept": True}
            code = crashes.run(step.words, str(self.folder / "killed"), **killed)
            assert code == -signal.SIGKILL, code
            yield step


class PutInPlace(TakenUp):
    """A run whose first attempt was killed after its commit, before its files were in their place."""

    point = crashes.Point("dapple_dp.pipelines.run.folder:RunFolder.move")


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
    """The second window of an epoch, whose clients are counted by a client list beside the ledger."""

    ledger = "ledger.sqlite"
    output, run = f"january/{epochs.DATES[1]}", f"january-{epochs.DATES[1]}"

    def steps(self) -> Iterator[Step]:
        """A window as it is, and one that is cut."""
        place = epochs.Place(self.disk)
        place.write(epochs.DATES[0], range(30))
        place.write(epochs.DATES[1], range(20, 60))
        yield Step(place.words(epochs.DATES[0]), is_cut=False)
        yield Step(place.words(epochs.DATES[1]))


class TopicStream(_Charged):
    """The second window of an epoch of messages; the broker is another machine, which keeps its power."""

    ledger = "stream/ledger.sqlite"

    def __init__(self, folder: pathlib.Path):
        super().__init__(folder)
        self.broker = brokers.started(folder / "broker")

    def close(self) -> None:
        """Ends the broker."""
        self.broker.kill()

    def steps(self) -> Iterator[Step]:
        """A window as it is, and one that is cut."""
        place, topic = brokers.StreamPlace(self.disk, windows=2), brokers.Topic(self.broker, partitions=2)
        topic.send_days({day: lake.mixture(90, seed=day) for day in range(2)})
        kafka = {"servers": topic.broker.servers, "topic": topic.closed().name}
        for day in epochs.DATES[:2]:
            place.write("stream", self.disk / "stream" / "copies", kafka=kafka, until=day)
            self.output, self.run = f"stream/out/{day}", f"epoch-{day}"
            yield Step([*place.words("stream"), "--once"], is_cut=day != epochs.DATES[0])

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        copies = [name for name in again if name.startswith("stream/copies/") and name.endswith((".parquet", ".csv"))]
        return super().fault(left, done, again, over=over) or (f"copies of rows stay: {copies}" if copies else "")


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
    """A party gets a key, and is enrolled with a secret of its own."""

    def steps(self) -> Iterator[Step]:
        """Once."""
        (self.disk / "jobs").mkdir()
        parties = _parties(self.disk / "jobs", masked={"scheme": "pairwise", "threshold": 2})
        shutil.rmtree(parties.folder / "state")
        (parties.folder / "secret").unlink()
        yield Step(["party", "new", "north", "--output", str(self.disk / "identity.key")])
        yield Step(["party", "enroll", "--config", str(parties.folder / "client-0.yaml"), "--client", "client-0"])

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        if sentence.endswith("choose another place.") and words[1] == "new":
            return [*words[:-1], str(self.disk / "another.key")]
        return [] if sentence.endswith("use that state.") else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        was, now = (
            {name: entry.content or b"" for name, entry in tree.items() if name.endswith(".key")}
            for tree in (left, again)
        )
        # The folder of its state is named after the secret, which another call may draw again.
        wanted, made = (
            sorted(
                (name.rpartition("/")[2], len(entry.content or b"")) for name, entry in tree.items() if _is_key(name)
            )
            for tree in (done, again)
        )
        if made != wanted:
            return f"a party that is enrolled has keys of lengths {made}"
        if any(now[name] != content for name, content in was.items() if content):
            return "a key was made again"
        return ""


def _is_key(name: str) -> bool:
    return name.startswith("jobs/") and name.endswith((".key", "/secret"))


def _parties(folder: pathlib.Path, **settings: Any) -> Any:
    from tests.pipeline.masked.test_masked_jobs import Parties

    return Parties(folder, **settings)


def sums_without_charge(left: Sequence[str], done: Sequence[str], again: Sequence[str]) -> str | None:
    """Returns what entries of an aggregator's ledger lack; None if nothing.

    An attempt that was cut may have drawn noise, so its charge stays, and the next attempt has one of its own. A charge
    is given back only where no sum was released: an aggregator that is called before the messages are there.
    """
    said = f"the ledger has {list(again)}"
    if list(again[: len(left)]) != list(left):
        return f"entries are lost or others: {said}"
    states = {run: kind for kind, _, run in (each.partition(" ") for each in again) if run}
    before = {run for _, _, run in (each.partition(" ") for each in left) if run}
    charged = {run.partition("~")[0] for run, kind in states.items() if kind != "void"}
    summed = {each.partition(" ")[2] for each in done if each.startswith("commit ")}
    if charged != summed:
        return f"{sorted(summed)} must be charged, and nothing else: {said}"
    if len(states.keys() - before) > 1:
        return f"one more call is charged more than once: {said}"
    starts = [each for each in again if each.startswith("start ")]
    return f"noise is drawn twice under one charge: {said}" if len(set(starts)) < len(starts) else None


class Masked(Job):
    """A round of two clients, an aggregator and an unmasking party; a party loses power, the exchange does not."""

    elsewhere = ("jobs/exchange",)
    ledger: str | None = "ledger.sqlite"

    def steps(self) -> Iterator[Step]:
        """The run is opened, messages are sent, summed and unmasked; the first of each kind is cut."""
        (self.disk / "jobs").mkdir()
        self.parties = _parties(self.disk / "jobs", **lake.packed(1))
        ledger = ledgers.new_ledger(self.disk, Limit(epsilon=1000.0, delta=1e-3), "visits")
        self.parties.aggregator(threshold=2, ledger=ledger.path, name="visits", unit="record")
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
        ends = ("its sum is final.", "wait for more clients.", "wait for more of them.")
        return [] if words[0] == "aggregate" and sentence.endswith(ends) else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        for name, entry in left.items():
            if name.startswith("jobs/exchange/") and entry.kind == "file" and not name.endswith(".part"):
                now = again.get(name)
                if now is None or now.content != entry.content:
                    return f"{name} was sent and is another file now"
        if (wrong := sums_without_charge(self.left(left), self.left(done), self.left(again))) is not None:
            return wrong
        missing = {name for name in done if "/exchange/" in name or "/released/" in name} - set(again)
        if missing:
            return f"not all is there: {sorted(missing)}"
        for name, entry in done.items():
            is_release = name.startswith("jobs/released/") and name.endswith(".parquet")
            if over and is_release and again[name].content != entry.content:
                return f"{name} is another one"
        return ""


class Pairwise(Masked):
    """A round of three holders of rows with masks of pairs, in four legs; the exchange keeps its power."""

    ledger = None

    def steps(self) -> Iterator[Step]:
        """The run is opened; in each leg one holder is cut, and the aggregator's list after it."""
        from tests.pipeline.masked.test_pairwise_jobs import LLOYD, Parties

        (self.disk / "jobs").mkdir()
        lloyd = LLOYD | {"dp_lloyd": {"domain": [-2.0, 7.0], "init": "sphere_packing", "steps": 1}}
        self.parties = Parties(self.disk / "jobs", **lloyd)
        places = ["--exchange", self.parties.exchange]

        def of_holder(name: str, holder: int, *more: str) -> list[str]:
            config = str(self.parties.folder / f"job-{holder}.yaml")
            return [name, "--config", config, *places, "--released", self.parties.released, *more]

        aggregate = ["aggregate", "--config", str(self.parties.folder / "aggregate.yaml"), *places]
        unmask = of_holder("unmask", 0, "--run_id", "run")
        yield Step(unmask)
        yield Step(aggregate)
        for leg in Leg:
            for holder in range(3):
                yield Step(of_holder("upload", holder, "--client", f"holder-{holder}"), is_cut=not holder)
            if leg is not Leg.SHARES:
                yield Step(aggregate)
        yield Step(unmask)
