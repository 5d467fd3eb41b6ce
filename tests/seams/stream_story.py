"""Uses of one row of the table of `stream`: plan, windows in two calls, verify, page, and labels."""

import json
import math
import pathlib
import re
from typing import Any
from unittest import mock

import numpy as np

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.transforms.numerics.kmeans.recurring.windows import mixing
from tests.scenes.brokers import CATCH_UP
from tests.scenes.lake import Outcome
from tests.seams import invariants, streams
from tests.seams.array import Row
from tests.seams.desk import Desk, entries, spent
from tests.seams.invariants import Run, summary
from tests.seams.pages import Page
from tests.seams.places import DATASET, Settings, changed
from tests.seams.streams import DAY_CLIENTS, DAY_ROWS, N_DONE, Days


class StreamStory:
    """One row of the table, in a folder of its own."""

    def __init__(self, row: Row, place: Days, folder: pathlib.Path):
        self.row, self.place, self.desk = row, place, Desk(folder)
        self.job = streams.settings(row, place)
        self.dates = place.dates(7 if row["calendar"] == "weeks" else 1)

    def begin(self, limit: float = 200.0) -> None:
        """The start, and the ledger."""
        if self.row["ledger"] != "none":
            self.job["ledger"] = self.desk.ledger(DATASET, limit)
        first = streams.start(self.row, self.job, self.place)
        run, _ = self.desk.made("fit", first, "start", "--run_id", "start")
        if self.row["start"] == "followed":
            follow = {"recurring.previous": str(run.folder), "recurring.memory": 3, "dp_lloyd.steps": 1}
            run, _ = self.desk.made("fit", changed(first, follow), "followed", "--run_id", "followed")
        if self.row["start"] == "epoch":
            run = self._other_epoch(run)
        self.job = changed(self.job, {"stream.start": str(run.folder)})

    def _other_epoch(self, run: Run) -> Run:
        """The first window of an epoch before."""
        before = {"stream.start": str(run.folder), "stream.until": self.dates[0], "stream.name": "winter"}
        outcome = self.call(changed(self.job, before), "winter")
        assert outcome.code == 0, outcome.err
        return Run(folder=self.desk.folder / "winter" / self.dates[0])

    def call(self, job: Settings, output: str = "spring", flags: tuple[str, ...] = ()) -> Outcome:
        """The job, once."""
        words = ("--once",) if self.row["called"] == "once" else flags
        return self.desk.run("stream", job, *self.desk.output(output), *CATCH_UP, *words)

    def until(self, index: int) -> Settings:
        """The job up to a window; the last one needs no date if the epoch ends with it."""
        left = self.row["called"] == "once" and index == N_DONE - 1
        return changed(self.job, {"stream.until": None if left else self.dates[index]})

    def tell(self) -> None:
        """The whole story."""
        self.begin()
        planned, outcome = self.plan(), self.call(self.until(1))
        assert (planned.code, outcome.code) == (0, 0), planned.err + outcome.err
        before = spent(self.job["ledger"], DATASET)
        later = self.last_window()
        assert later.code == 0, later.err
        assert [summary(each)["released"] for each in (outcome, later)] == [self.dates[:2], self.dates[2:]]
        assert spent(self.job["ledger"], DATASET) == before
        self.check_calls(outcome, later)
        for index in range(N_DONE):
            self.check_window(index, summary(planned))
        self.check_page()
        self.check_ledger(summary(planned))
        self.ask_again()
        self.use()

    def last_window(self) -> Outcome:
        """The rest of the windows; a deployment that is stopped in the last one drains, and begins none before."""
        if self.row["called"] != "drained":
            return self.call(self.until(2))
        nothing = self.call(self.until(2), flags=("--drain",))
        assert (nothing.code, summary(nothing)["released"], summary(nothing)["drained"]) == (0, [], 0)
        full = LedgerRefusedError("the disk must have room for the ledger, got none; make some.")
        with mock.patch.object(Ledger, "commit", side_effect=full):
            assert self.call(self.until(2)).code == 3
        return self.call(self.until(2), flags=("--drain",))

    def lack_budget(self) -> None:
        """A ledger that has too little says so before and at the first window, and nothing is released."""
        self.begin(streams.LACKING)
        planned, outcome = self.plan(), self.call(self.until(1))
        assert (planned.code, outcome.code) == (0, 3), outcome.err
        assert summary(planned)["ledger"]["refused"]
        assert not (self.desk.folder / "spring" / self.dates[0]).exists()

    def be_refused(self, refusal: str) -> None:
        """The job is refused in a sentence."""
        self.begin()
        outcome = self.call(self.until(1))
        assert outcome.code == 2, (outcome.code, outcome.err)
        assert re.search(refusal, outcome.err), outcome.err
        assert not (self.desk.folder / "spring" / self.dates[0]).exists()

    def plan(self) -> Outcome:
        """Returns what the epoch will cost."""
        units = ("--rows", str(DAY_ROWS)) if self.row["unit"] == "record" else ("--clients", str(DAY_CLIENTS))
        width = ("--width", "4") if self.row["columns"] == "listed" else ()
        return self.desk.run("plan", self.until(2), *units, *width, name="plan")

    def window(self, index: int) -> Run:
        """The files of a window."""
        return Run(folder=self.desk.folder / "spring" / self.dates[index])

    def check_calls(self, *outcomes: Outcome) -> None:
        """The last line of each call adds up, and counts the warnings of its windows."""
        for done, outcome in zip((2, 3), outcomes, strict=True):
            said = summary(outcome)
            assert (said["windows"], said["windows_left"]) == (done, self.job["stream"]["windows"] - done)
            pages = [self.desk.folder / "spring" / date / "report.html" for date in said["released"]]
            shown = sum(page.read_text().count("<strong>Warning</strong>") for page in pages)
            logged = re.findall(r"^dapple: the report has (\d+) warnings?: ", outcome.err, re.MULTILINE)
            assert said["warnings"] == shown == sum(map(int, logged))

    def check_window(self, index: int, planned: dict[str, Any]) -> None:
        """Files, page and label of a window say one thing, and the plan said it before."""
        run, asked = self.window(index), self.job["privacy"]
        for check in (invariants.check_files, invariants.check_releases, invariants.check_entry):
            check(run)
        invariants.check_clusters(run)
        invariants.check_account(run, (1.0, 1.0))
        statement = run.json("privacy.json")
        assert 0.0 < statement["epsilon"] <= asked["epsilon"] * (1 + 1e-12)
        assert (statement["delta"], statement["unit"]) == (asked["delta"], asked["unit"])
        invariants.check_plan(planned, run, (1.0, 1.0))
        self.check_label(run, statement)
        self.check_drift(index, run)
        self.desk.verify(run, self.job["ledger"])

    def check_label(self, run: Run, statement: dict[str, Any]) -> None:
        """Epsilon is of all windows together, wherever it is said."""
        covers = f"all {self.job['stream']['windows']} windows of epoch spring together"
        assert statement["covers"] == covers
        page = run.page
        assert f"This holds for {covers}." in page.text
        spent, of = re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", page.labels[f"Budget of {covers}"])[:2]
        assert (float(spent), float(of)) == (float(f"{statement['epsilon']:.6g}"), self.job["privacy"]["epsilon"])
        details = run.entry["deployment"]["privacy_loss"]["privacy_parameters_details"]
        assert f"{covers}, not of this window alone" in details
        own = self.size_stddev(statement["epoch"]["index"])
        invariants.check_page(run, self.job["privacy"], (own,))

    def size_stddev(self, index: int) -> float:
        """Noise of what a window alone adds to a size, from its releases: solved for from those before."""
        run = self.window(index)
        weights = run.json("privacy.json")["epoch"]["weights"]
        (stddev,) = [value for path, value in run.stddevs().items() if path.endswith("weighted_counts")]
        return float(stddev / weights[0] * np.linalg.norm(mixing(weights, index + 1)[-1]))

    def check_drift(self, index: int, run: Run) -> None:
        """`drift.json` knows the noise of sizes now, and that of the window before."""
        drift = run.json("drift.json")
        assert math.isclose(drift["size_noise_stddev"], self.size_stddev(index), rel_tol=1e-9)
        if index:
            assert math.isclose(drift["previous_size_noise_stddev"], self.size_stddev(index - 1), rel_tol=1e-9)
            assert drift["previous"]["run_id"] == f"spring-{self.dates[index - 1]}"
        if drift["memory"] is not None:
            assert drift["memory"]["runs"] <= index + 1
            assert drift["memory"]["length"] == self.job["stream"].get("memory", 30)

    def check_page(self) -> None:
        """The page of the stream says epsilon, delta and noise of its last window."""
        path = self.desk.folder / "spring" / "index.html"
        page, statement = Page.of(path), self.window(N_DONE - 1).json("privacy.json")
        assert re.search(r"\bnan\b|\bNone\b|\binf\b|could not be", page.text) is None
        assert float(page.after("ε")[0]) == float(f"{statement['epsilon']:.4g}")
        assert float(page.after("δ")[0]) == float(f"{statement['delta']:.3g}")
        assert page.labels["Windows"].startswith(f"{N_DONE} of {self.job['stream']['windows']}, from {streams.FIRST}")
        assert f"noise either way, now {2.0 * self.size_stddev(N_DONE - 1):,.4g}." in page.text

    def check_ledger(self, planned: dict[str, Any]) -> None:
        """Windows are entries of one charge, which the plan foretold."""
        ledger = self.job["ledger"]
        charges = [each["content"]["charge"] for each in entries(ledger, "reserve") if each["run"].startswith("spring")]
        assert len(charges) == len(entries(ledger, "commit")) - (self.row["start"] == "epoch") == N_DONE
        assert {each["epsilon"] for each in charges} == {planned["epsilon"]}
        assert {each["epoch"]["name"] for each in charges} == {"spring"}

    def ask_again(self) -> None:
        """Windows that are released stay as they are, and nothing more is charged."""
        files = [path for date in self.dates for path in (self.desk.folder / "spring" / date).iterdir()]
        before = {path: path.read_bytes() for path in files}
        charged = len(entries(self.job["ledger"], "reserve"))
        again = self.call(self.until(2))
        assert (again.code, summary(again)["released"], summary(again)["warnings"]) == (0, [], 0)
        assert before == {path: path.read_bytes() for path in files}
        assert charged == len(entries(self.job["ledger"], "reserve"))

    def use(self) -> None:
        """The centers of the last window label rows."""
        own = ("features", "except", "width")
        data = {name: self.job["data"][name] for name in own if name in self.job["data"]} | {"path": self.model_rows()}
        job = {"model": str(self.window(N_DONE - 1).folder), "data": data | {"on_invalid_rows": "drop"}}
        outcome = self.desk.run("assign", job, *self.desk.output("labels"))
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out.splitlines()[-1])

    def model_rows(self) -> str:
        """Rows that labels are asked for."""
        return str(self.job["data"]["path"])
