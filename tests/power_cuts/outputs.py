"""Commands that charge nothing, or give their charge back, whose disks lose power; and all jobs that are cut."""

import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.power_cuts import jobs
from tests.power_cuts.disk import Tree
from tests.power_cuts.jobs import Fit, Job, Step, unlike_its_manifest
from tests.scenes import lake, ledgers, models, reports, sweeps

RUN = "run"
_COMPLETE = (
    "--output must be a new or empty folder",
    "--output must be a folder outside of released outputs",
    "(--output) is complete",
)
"""Parts of sentences by which a job refuses to run again into what it has written."""


class GivenBack(Fit):
    """A fit that is charged, meets a row that is no number, and releases nothing."""

    def steps(self) -> Iterator[Step]:
        """One fit, which fails."""
        for step in super().steps():
            points = lake.mixture(60)
            points[7, 0] = np.nan
            lake.write_lake(self.folder / "rows" / "lake", points, np.arange(60) % 12)
            yield step._replace(code=2)

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        # Its keys go before its charge is given back: a run that could draw again must not have the charge as well.
        return [*words[:-1], f"{words[-1]}-2"] if sentence.endswith("another run_id, which is charged again.") else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        kinds = self.kinds(again)
        if over and f"void {self.run}" not in kinds:
            return f"the ledger has {kinds}"
        whole = unlike_its_manifest(again, self.output)
        rest = [name for name in again if name.startswith(self.output) and ".partial-" not in name]
        return whole or (f"files stay: {rest}" if rest else "")


class Outputs(Job):
    """Jobs that leave a folder each, which is complete or absent."""

    def job(self, word: str, settings: dict[str, Any], output: str) -> Step:
        """A call of a job."""
        config = self.folder / f"{output}.yaml"
        config.write_text(yaml.safe_dump(settings))
        return Step([word, "--config", str(config), "--output", str(self.disk / output), "--run_id", RUN])

    def lake(self, n_rows: int) -> str:
        """Rows, which are elsewhere; each is of a client of its own."""
        return lake.write_lake(self.folder / "lake", lake.mixture(n_rows), np.arange(n_rows))

    def remedied(self, sentence: str, words: list[str]) -> list[str] | None:
        if any(each in sentence for each in _COMPLETE):
            return []
        # What an attempt has left under its own name is in nobody's way.
        named = ("--run_id" in sentence and "another one" in sentence) or "choose another run_id" in sentence
        return [*words[:-1], f"{words[-1]}-2"] if named else None

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        for output in sorted({name.partition("/")[0] for name in done if name.endswith("/run.json")}):
            bad = unlike_its_manifest(left, output) or unlike_its_manifest(again, output)
            if bad:
                return bad
            wanted, found, before = (_of(tree, output) for tree in (done, again, left))
            if not found:
                return f"{output} is not there"
            if (over or before) and found != (before or wanted):
                return f"{output} is another one"
        return ""


def _of(tree: Tree, output: str) -> dict[str, bytes]:
    """Files of an output."""
    return {name: entry.content or b"" for name, entry in tree.items() if name.startswith(f"{output}/")}


class Reports(Outputs):
    """Clients' reports: those that were sent once are never drawn again by a client that has sent them."""

    def steps(self) -> Iterator[Step]:
        """Reports are made, shuffled and decoded."""
        data, folder = self.lake(300), self.disk
        shuffled: dict[str, Any] = {"reports__mode": "shuffle", "reports__min_batch": 300}
        yield self.job("encode", reports.settings(data, privacy__delta=1e-4, **shuffled), "encoded")
        parameters = folder / "encoded" / "parameters.json"
        sent, arrived = pq.read_table(folder / "encoded" / "reports.parquet"), self.folder / "arrived"
        digest = hashlib.sha256(parameters.read_bytes()).digest()
        column = pa.array([digest] * len(sent), pa.binary(len(digest)))
        lake.write_files(arrived, [sent.append_column("parameters", column)])
        places = {"arrived": str(arrived), "parameters": str(parameters)}
        yield self.job("shuffle", {"reports": places}, "shuffled")
        yield self.job("decode", {"reports": {"path": str(folder / "shuffled")}}, "decoded")


class TrustedZone(Outputs):
    """Jobs whose outputs stay with the rows: they promise nothing, and draw nothing that is released."""

    def steps(self) -> Iterator[Step]:
        """Each once."""
        rows = {"path": self.lake(60), "features": "x", "client_id": "client_id"}
        model = {"model": models.write_model(self.folder / "model", np.zeros((3, 4))), "data": rows}
        yield self.job("prepare", {"data": rows, "prepare": {"shards": 2}}, "prepared")
        yield self.job("assign", model | {"assign": {}}, "assigned")
        yield self.job("evaluate", model | {"evaluate": {}}, "evaluated")
        yield self.job("fit", {"algorithm": "optimal", "data": rows, "n_clusters": 3}, "pooled")


class Sweep(Outputs):
    """Fits of a sweep, which goes on after the parts that are done."""

    def steps(self) -> Iterator[Step]:
        """Two methods, one of them private."""
        server = lake.write_server(self.folder / "server.parquet")
        methods = {name: sweeps.METHODS[name] for name in ("full", "optimum")}
        step = self.job("sweep", sweeps.settings(self.lake(60), server, methods), "swept")
        yield step._replace(words=step.words[:-2])

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        missing = sorted(name for name in done if name not in again)
        private = [name for name in again if "private-" in name]
        if missing or private:
            return f"{missing} are not there, {private} stay"
        tables = ("swept/results.parquet", "swept/summary.parquet")
        changed = [name for name in tables if over and again[name].content != done[name].content]
        return f"{changed} are others" if changed else ""


class Profile(Outputs):
    """A profile is charged once; its noise is PipelineDP's, which no key repeats."""

    ledger = "ledger.sqlite"
    column: ClassVar[dict[str, Any]] = {"lower": 0, "upper": 100}

    def steps(self) -> Iterator[Step]:
        """One profile."""
        points = lake.mixture(60)
        table = lake.table_of(points).append_column("age", pa.array(np.arange(60.0)))
        pq.write_table(table, self.folder / "rows.parquet")
        ledger = ledgers.new_ledger(self.disk, ledgers.basic_limit(9.0, 1e-5), "visits")
        settings = {
            "model": models.write_model(self.folder / "model", points[:3]),
            "data": {"path": str(self.folder / "rows.parquet"), "features": "x", "name": "visits"},
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
            "profile": {"numeric": {"age": self.column}},
            "ledger": ledger.path,
        }
        yield self.job("profile", settings, "profile")

    def fault(self, left: Tree, done: Tree, again: Tree, *, over: bool) -> str:
        if len(self.kinds(again)) < len(self.kinds(done)):
            return f"the ledger has {self.kinds(again)}"
        return super().fault(left, done, again, over=over)


JOBS: dict[str, type[Job]] = {
    "pairwise": jobs.Pairwise,
    "masked": jobs.Masked,
    "fit": Fit,
    "chunks": jobs.Chunks,
    "taken_up": jobs.TakenUp,
    "put_in_place": jobs.PutInPlace,
    "given_back": GivenBack,
    "stream": jobs.Stream,
    "topic": jobs.TopicStream,
    "clustered_fl": jobs.ClusteredFl,
    "free": jobs.FreeRounds,
    "profile": Profile,
    "reports": Reports,
    "sweep": Sweep,
    "trusted_zone": TrustedZone,
    "ledger": jobs.LedgerWords,
    "enroll": jobs.Enrolled,
}
"""By name, those first that take long."""
