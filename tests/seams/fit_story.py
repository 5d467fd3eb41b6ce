"""Uses of one job of the table of `fit`: plan, fit, verify, ask again, and use of the result."""

import pathlib

from tests.scenes.lake import Outcome
from tests.seams import fits, invariants
from tests.seams.array import Row
from tests.seams.desk import RowStory
from tests.seams.invariants import Run, summary
from tests.seams.places import CLIENT_ROWS, DATASET, N_CLIENTS, N_ROWS, Place, Settings, changed

EXCESS = {"aggregator": (1.0, 1.0), "both": (2.0, 2.0), "clients": (1.0, float(N_ROWS))}
"""Drawn over promised variance, least and most, by who draws the noise."""


class Story(RowStory):
    """One row of the table, in a folder of its own.

    Args:
      row: of the table.
      place: where rows are.
      folder: new.
      accuracy: whether the plan looks for an epsilon, which takes long.
      fit_only: whether other jobs of the row, which need Beam, are left out.
    """

    word = "fit"

    def __init__(self, row: Row, place: Place, folder: pathlib.Path, *, accuracy: bool = False, fit_only: bool = False):
        super().__init__(row, place, folder)
        self.accuracy, self.fit_only = accuracy, fit_only

    def settings(self) -> Settings:
        """The job of the row, but for its ledger and the run that it follows."""
        return fits.settings(self.row, self.place)

    def tell(self) -> None:
        """The whole story."""
        self._begin()
        planned = self.plan()
        assert planned.code == 0, planned.err
        assert bool((summary(planned)["ledger"] or {}).get("refused")) is self.lacks
        run, outcome = self.started()
        invariants.check_run(run, self.job["privacy"], outcome, EXCESS[self.row["noise_by"]])
        by_shares = self.row["noise_by"] == "clients"
        invariants.check_plan(summary(planned), run, (1.0 / N_ROWS, float(N_ROWS)) if by_shares else (1.0, 1.0))
        invariants.check_centers_on_page(run)
        invariants.check_curated(run, self.job)
        invariants.check_places(run, self.job)
        self.verify(run, self.job.get("ledger"))
        self.check_ledger(run)
        self.ask_again(outcome)
        if not self.fit_only:
            getattr(self, f"_{self.row['command']}", lambda run: None)(run)

    def be_refused(self, refusal: str) -> None:
        """The job is refused in a sentence."""
        if self.row["start"] != "fresh":
            self.job = changed(self.job, {"recurring.previous": str(self.folder / "before")})
        if self.row["command"] == "sweep":
            self.word, self.job = "sweep", self.sweep_job()
        super().be_refused(refusal)

    def _begin(self) -> None:
        """The run that the job follows."""
        if self.row["start"] != "fresh":
            before = changed(self.job, {"recurring": None, "ledger": None})
            outcome = self.run("fit", before, *self.output("before"), "--run_id", "before", name="before")
            assert outcome.code == 0, outcome.err
            self.job = changed(self.job, {"recurring.previous": str(self.folder / "before")})

    def units(self) -> tuple[str, str]:
        """Returns how many a plan assumes."""
        return ("--rows", str(N_ROWS)) if self.row["unit"] == "record" else ("--clients", str(N_CLIENTS))

    def plan(self) -> Outcome:
        """Returns what it will cost; a list column without public rows does not say how wide it is."""
        words = self.units()
        if self.row["columns"] == "listed" and self.row["server"] == "none":
            words += ("--width", "4")
        if self.accuracy:
            words += ("--accuracy", "0.5")
        planned = self.run("plan", self.job, *words, name="plan")
        if planned.code == 0 and self.accuracy:
            found = summary(planned)["accuracy"]["epsilon"]
            assert found is None or 0.0 < found <= 20.0
        return planned

    def check_ledger(self, run: Run) -> None:
        """One charge, of what the statement says; what is left is what page and record say."""
        if "ledger" not in self.job:
            assert run.page.labels["Budget left"] == "no ledger"
            return
        self.check_charge(run.json("privacy.json")["epsilon"])
        shown = self.command("ledger", "show", "--ledger", self.job["ledger"])
        invariants.check_left(run, summary(shown), DATASET)

    def _model_job(self) -> Settings:
        own = ("public_rows", "name", "max_rows_per_client")
        data = {name: value for name, value in self.job["data"].items() if name not in own}
        return {"model": str(self.folder / "fit"), "data": data}

    def _use(self, run: Run) -> None:
        """Labels, scores and a profile of the centers."""
        job = self._model_job()
        job["data"].setdefault("client_id", "client_id")
        label = {} if self.row["columns"] in fits.OF_WORK or self.row["storage"] == "prepared" else {"label": "work"}
        assigned = self.run("assign", job, *self.output("labels"))
        scored = self.run("evaluate", job | {"evaluate": label | {"silhouette_rows": 50}}, *self.output("scores"))
        assert (assigned.code, scored.code) == (0, 0), assigned.err + scored.err
        column = "x" if self.row["columns"] in ("listed", "names_for_people") else "a"
        by_client = self.row["unit"] != "record"
        options: Settings = {"numeric": {"a": {"lower": -8, "upper": 8, "percentiles": [50]}}}
        if column != "a" or self.row["columns"] in fits.OF_WORK:
            options = {"categorical": {"work": {"values": list(fits.WORKS)}}}
        if self.row["storage"] == "prepared":
            options = {} if column != "a" else {"numeric": {"a": {"lower": -8, "upper": 8}}}
        if by_client:
            options["max_rows_per_client"] = CLIENT_ROWS
        unit = {"unit": self.job["privacy"]["unit"], "epsilon": 5.0, "delta": 1e-6}
        profiled = self.run("profile", job | {"privacy": unit, "profile": options}, *self.output("profile"))
        assert profiled.code == 0, profiled.err
        invariants.check_statement(Run(folder=self.folder / "profile"), unit, profiled)

    def _sweep(self, run: Run) -> None:
        """The job beside the optimum."""
        outcome = self.run("sweep", self.sweep_job(), *self.output("sweep"))
        assert outcome.code == 0, outcome.err

    def sweep_job(self) -> Settings:
        """The job as a method of a sweep, which has an epsilon of its own."""
        optimum = {"algorithm": "optimal", "n_clusters": 3}
        methods = {"own": {}, "optimum": optimum}
        sweep = {"methods": methods, "epsilons": [2.0], "seeds": 1}
        return changed(self.job, {"privacy.epsilon": None}) | {"sweep": sweep}
