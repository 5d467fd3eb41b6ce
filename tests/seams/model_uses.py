"""The table of jobs on a model: `assign`, `evaluate` and `profile`, by the rows that they read."""

import functools
import pathlib
import re
import shutil

import pyarrow.parquet as pq

from tests.seams import fits, invariants, places
from tests.seams.array import Row, excluded
from tests.seams.desk import Desk, RowStory, table_of
from tests.seams.fits import factor
from tests.seams.places import CLIENT_ROWS, DAYS, N_ROWS, Place, Settings, changed

LEAST_SIZE = 1e6
"""More than any model has, so that all clusters join one."""
_NUMERIC = {"lower": -8, "upper": 8}
FACTORS = (
    factor(
        "data",
        "data.path",
        "data.partitions",
        "data.on_invalid_rows",
        parquet={},
        apart={},
        hive={},
        invalid={},
        delta={},
    ),
    factor(
        "columns", "data.features", "data.except", "data.feature_names", "data.width", listed={}, named={}, pattern={}
    ),
    factor(
        "unit",
        "privacy.unit",
        "data.client_id",
        "profile.max_rows_per_client",
        record={},
        client={},
        unbounded={},
    ),
    factor(
        "profile",
        "profile.numeric",
        "profile.categorical",
        means={"profile.numeric": {"a": _NUMERIC}},
        percentiles={"profile.numeric": {"a": _NUMERIC | {"percentiles": [10, 50]}, "b": _NUMERIC}},
        found={"profile.categorical": {"work": {}}},
        both={
            "profile.numeric": {"a": _NUMERIC | {"percentiles": [50]}},
            "profile.categorical": {"work": {"values": list(places.WORKS)}},
        },
    ),
    factor(
        "shares",
        usual={},
        own={f"profile.shares.{name}": 2.0 for name in ("sizes", "means", "histograms", "percentiles")},
    ),
    factor(
        "sampling",
        usual={},
        half={"profile.sampling_rate": 0.5},
        most={"profile.max_rows": N_ROWS, "data.public_rows": N_ROWS},
    ),
    factor(
        "epsilon",
        "privacy.epsilon",
        "privacy.delta",
        usual={"privacy.epsilon": 5.0, "privacy.delta": 1e-6},
        small={"privacy.epsilon": 0.1, "privacy.delta": 1e-9},
        large={"privacy.epsilon": 40.0, "privacy.delta": 1e-5},
    ),
    factor("ledger", "ledger", "data.name", none={}, charged={}, lacking={}),
    factor(
        "scored",
        *(f"evaluate.{name}" for name in ("label", "reference", "beside_released", "silhouette_rows")),
        usual={"silhouette_rows": 20},
        label={"label": "work", "silhouette_rows": 0},
        reference={"reference": "", "silhouette_rows": 20},
        beside={"beside_released": True, "silhouette_rows": 20},
    ),
    factor(
        "ids",
        "model",
        "assign.id_columns",
        "assign.beside_released",
        "assign.level",
        "assign.least_size",
        none={},
        work={"id_columns": ["work"]},
        beside={"beside_released": True},
        merged={"level": 1},
        joined={"least_size": LEAST_SIZE},
    ),
)
EXCLUDED = (excluded("profile.max_rows_per_client is required for privacy.unit client", unit="unbounded"),)
TABLE = table_of(FACTORS, EXCLUDED)
UNVARIED = {
    "data.missing": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "experimental": "of the table of fits, which alone holds what is not supported",
    "data.csv": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "data.table": "of the table of fits, but for a Delta table",
    "data.disjoint_partitions": "of the table of fits",
    "data.max_rows_per_client": "of a fit",
}


def rows_job(row: Row, place: Place, model: str) -> Settings:
    """Model and data."""
    form = {"invalid": "parquet"}.get(row["data"], row["data"])
    found: Settings = {"model": model, "data": {"path": place.rows(form, "", invalid=row["data"] == "invalid")}}
    features = {"listed": "x", "named": list(places.NAMES), "pattern": ["*"]}[row["columns"]]
    found = changed(found, {"data.features": features, "data.client_id": "client_id"})
    if row["columns"] == "listed":
        found = changed(found, {"data.feature_names": ["north", "east", "up", "heat"], "data.width": 4})
    if row["columns"] == "pattern":
        found["data"]["except"] = ["client_id", "x", "work"]
    if row["data"] == "invalid":
        found["data"]["on_invalid_rows"] = "drop"
    if form == "hive":
        found["data"]["partitions"] = {"dt": DAYS[0]}
    if form == "delta":
        found["data"]["table"] = {"format": "delta", "version": 5}
    return found


def profile_job(row: Row, base: Settings) -> Settings:
    """Settings of `profile` on the model of a row."""
    found = changed(base, {"privacy.unit": "record" if row["unit"] == "record" else "client"})
    for each in FACTORS:
        if each.name not in ("scored", "ids"):
            found = changed(found, dict(each.levels[row[each.name]]))
    if row["unit"] == "client":
        found = changed(found, {"profile.max_rows_per_client": CLIENT_ROWS})
    return found


class Models(Place):
    """Rows in every form, and a model for each form of columns."""

    @functools.cached_property
    def listed(self) -> pathlib.Path:
        """Model of a list column."""
        return self._model("listed", "x")

    @functools.cached_property
    def named(self) -> pathlib.Path:
        """Model of four columns."""
        return self._model("named", list(places.NAMES))

    def _model(self, name: str, features: str | list[str]) -> pathlib.Path:
        job = {
            "algorithm": "dp_lloyd",
            "data": {"path": self.rows("parquet", ""), "features": features},
            "n_clusters": 3,
            "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
            "dp_lloyd": dict(fits.BOX) | {"init": "sphere_packing", "steps": 1},
        }
        return Desk(self.folder / "models" / name).made("fit", job, "fit")[0].folder


class ModelStory(RowStory):
    """One row of the table, in a folder of its own, with a copy of the model."""

    word = "profile"
    place: Models

    def settings(self) -> Settings:
        """The job `profile`."""
        model = self.place.listed if self.row["columns"] == "listed" else self.place.named
        shutil.copytree(model, self.folder / "model")
        self.base = rows_job(self.row, self.place, str(self.folder / "model"))
        return profile_job(self.row, self.base)

    def tell(self) -> None:
        """Labels, scores, and a profile twice."""
        self._assign()
        self._evaluate()
        run, outcome = self.started()
        invariants.check_files(run)
        invariants.check_statement(run, self.job["privacy"], outcome)
        self.verify(run, self.job.get("ledger"))
        text, epsilon = run.page.text, run.json("privacy.json")["epsilon"]
        assert re.search(r"\bnan\b|\bNone\b|\binf\b", text) is None
        assert float(run.page.after("ε")[0]) == float(f"{epsilon:.4g}")
        self.ask_again(outcome)
        self.check_charge(epsilon)

    def _assign(self) -> None:
        ids = dict(_levels("ids")[self.row["ids"]])
        output = "model/labels" if "beside_released" in ids else "labels"
        labels, _ = self.made("assign", self.base | {"assign": ids}, output)
        table = pq.read_table(labels.folder / "assignments.parquet", partitioning=None)
        n_rows = {"hive": 100, "invalid": N_ROWS - len(range(0, N_ROWS, 7))}.get(self.row["data"], N_ROWS)
        assert table.num_rows == n_rows
        assert set(ids.get("id_columns", ())) <= set(table.column_names)
        most = 1 if "least_size" in ids else ids.get("level", len(table))
        assert len(table.column("cluster").unique()) <= most

    def _evaluate(self) -> None:
        scored = dict(_levels("scored")[self.row["scored"]])
        scored |= {"reference": str(self.folder / "model")} if "reference" in scored else {}
        output = "model/scores" if "beside_released" in scored else "scores"
        self.made("evaluate", self.base | {"evaluate": scored}, output)


def _levels(name: str) -> dict[str, Settings]:
    (found,) = (each.levels for each in FACTORS if each.name == name)
    return {level: dict(settings) for level, settings in found.items()}
