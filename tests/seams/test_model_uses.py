"""Pairs of settings of jobs on a model: labels, scores and profiles agree with the rows, the model and the ledger."""

import functools
import pathlib
import re
import shutil
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from tests.scenes import lake
from tests.seams import invariants, model_uses
from tests.seams.array import Row
from tests.seams.desk import Desk, entries
from tests.seams.invariants import Run
from tests.seams.places import DATASET, N_ROWS, Place, Settings
from tests.seams.settings import unknown_settings

ROWS = model_uses.TABLE.rows()
UNVARIED = {
    "data.table": "of the table of fits, but for a Delta table",
    "data.disjoint_partitions": "of the table of fits",
    "data.name": "of a ledger",
    "data.public_rows": "of a guarantee",
    "data.max_rows_per_client": "of a fit",
    "assign": "varied by hand below",
    "evaluate": "varied by hand below",
}


class ModelDesk(Desk):
    """A row of the table, in a folder of its own."""

    def __init__(self, row: Row, place: Place, folder: pathlib.Path, model: pathlib.Path):
        super().__init__(folder)
        self.row = row
        self.model = shutil.copytree(model, folder / "model")
        self.base = model_uses.rows_job(row, place, str(self.model))

    @functools.cached_property
    def n_rows(self) -> int:
        """How many rows count."""
        return {"hive": 100, "invalid": N_ROWS - len(range(0, N_ROWS, 7))}.get(self.row["data"], N_ROWS)

    def profile(self) -> Settings:
        """The job `profile`, with its ledger."""
        job = model_uses.profile_job(self.row, self.base)
        if self.row["ledger"] != "none":
            job["ledger"] = self.ledger(DATASET, 0.01 if self.row["ledger"] == "lacking" else 200.0)
        return job

    def tell(self) -> None:
        """Labels, scores, and a profile twice."""
        ids = dict(_levels("ids")[self.row["ids"]])
        labels, _ = self.made("assign", self.base | {"assign": ids}, "labels")
        table = pq.read_table(labels.folder / "assignments.parquet", partitioning=None)
        assert table.num_rows == self.n_rows
        assert set(ids.get("id_columns", ())) <= set(table.column_names)
        scored = dict(_levels("scored")[self.row["scored"]])
        scored |= {"reference": str(self.model)} if "reference" in scored else {}
        self.made(
            "evaluate", self.base | {"evaluate": scored}, "model/scores" if "beside_released" in scored else "scores"
        )
        self._profile()

    def _profile(self) -> None:
        job = self.profile()
        outcome = self.run("profile", job, *self.output("profile"), "--run_id", "seam")
        if self.row["ledger"] == "lacking":
            assert outcome.code == 3, outcome.err
            assert not (self.folder / "profile").exists()
            return
        assert outcome.code == 0, outcome.err
        run = Run(folder=self.folder / "profile")
        invariants.check_files(run)
        invariants.check_statement(run, job["privacy"], outcome)
        self.verify(run, job.get("ledger"))
        text = run.page.text
        assert re.search(r"\bnan\b|\bNone\b|\binf\b", text) is None
        assert float(run.page.after("ε")[0]) == float(f"{run.json('privacy.json')['epsilon']:.4g}")
        again = self.run("profile", job, *self.output("profile"), "--run_id", "seam")
        assert again.code == 2, again.err
        if "ledger" in job:
            (reserved,) = entries(job["ledger"], "reserve")
            assert reserved["content"]["charge"]["epsilon"] == run.json("privacy.json")["epsilon"]


def _levels(name: str) -> dict[str, Settings]:
    (found,) = (each.levels for each in model_uses.FACTORS if each.name == name)
    return {level: dict(settings) for level, settings in found.items()}


@pytest.fixture(scope="session")
def desk_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[functools.partial[ModelDesk]]:
    """Rows in every form, and a model for each form of columns."""
    with lake.keys_of_runs():
        folder = tmp_path_factory.mktemp("models")
        place, fits = Place(folder / "rows"), Desk(folder / "fits")
        models: dict[str, pathlib.Path] = {}

        def of(row: Row, where: pathlib.Path) -> ModelDesk:
            form = "listed" if row["columns"] == "listed" else "named"
            if form not in models:
                models[form] = fits.made("fit", model_uses.fit_job(row, place), form)[0].folder
            return ModelDesk(row, place, where, models[form])

        yield functools.partial(of)


@pytest.mark.parametrize("index", range(len(ROWS)), ids=str)
def test_a_model_is_used(index: int, desk_of: functools.partial[ModelDesk], tmp_path: pathlib.Path) -> None:
    desk_of(ROWS[index], tmp_path / "story").tell()


def test_a_profile_of_clients_is_refused_without_a_bound(
    desk_of: functools.partial[ModelDesk], tmp_path: pathlib.Path
) -> None:
    (rule,) = model_uses.EXCLUDED
    (row,) = model_uses.TABLE.only_excluded_by(rule)
    desk = desk_of(row, tmp_path / "story")
    outcome = desk.run("profile", desk.profile(), *desk.output("profile"))
    assert (outcome.code, bool(re.search(str(rule.refusal), outcome.err))) == (2, True), outcome.err


@pytest.mark.parametrize("job", ["assign", "evaluate", "profile"])
def test_every_setting_of_a_job_on_a_model_is_in_the_table(job: str) -> None:
    assert unknown_settings(job, model_uses.FACTORS, UNVARIED) == set()
