"""The table of fits without privacy, which private ones are compared with: algorithm `optimal`."""

import pyarrow.parquet as pq

from tests.seams import fits, invariants
from tests.seams.array import Row, excluded
from tests.seams.desk import RowStory, table_of
from tests.seams.fits import factor
from tests.seams.invariants import Run, summary
from tests.seams.places import CLIENT_ROWS, COLUMNS, N_CLIENTS, N_ROWS, STORAGE, Settings, changed

_BY_LISTS = ("listed", "names_for_people")
FACTORS = (
    factor("algorithm", "algorithm", optimal={}),
    factor(
        "columns",
        *COLUMNS,
        named={},
        listed={},
        pattern={},
        names_for_people={},
        symmetric={},
        standardized={},
        one_hot={},
        bins={},
    ),
    factor(
        "storage",
        *STORAGE,
        parquet={},
        apart={},
        hive={},
        disjoint={},
        delta={},
        prepared={},
        csv={},
        invalid={},
    ),
    factor("clients", "data.client_id", "data.max_rows_per_client", named={}, bounded={}, nobody={}),
    factor("server", "server_data.path", rows={}, none={}),
    factor("n_clusters", "n_clusters", three={}, one={"n_clusters": 1}, elbow={"n_clusters.max": 4}),
    factor("facts", "data.name", "data.public_rows", none={}, counted={}),
    factor("speed", "seed", usual={}, seed={"seed": 7}),
    factor("private", none={}, privacy={"privacy": {"epsilon": 1.0}}, ledger={"ledger": "ledger.sqlite"}),
    factor("then", nothing={}, use={}),
)
EXCLUDED = (
    excluded("privacy isn't supported for algorithm", private="privacy"),
    excluded("ledger is not a setting", private="ledger"),
    excluded("n_clusters must be an integer", n_clusters="elbow"),
    excluded("must have public values if there is no server_data", columns="bins", server="none"),
    excluded("column '.*' not found in", columns="|".join(_BY_LISTS), storage="csv"),
    # What has no meaning together.
    excluded(columns="one_hot", storage="prepared"),
    excluded(storage="prepared", clients="nobody|bounded"),
)
TABLE = table_of(FACTORS, EXCLUDED)


class PooledStory(RowStory):
    """One row of the table, in a folder of its own."""

    word = "fit"

    def settings(self) -> Settings:
        """The job of the row."""
        row = self.row
        found: Settings = {
            "algorithm": "optimal",
            "n_clusters": 3,
            "server_data": self.place.server_data(row["storage"]) if row["server"] == "rows" else "none",
        }
        for part in (fits.columns(row), fits.storage(row, self.place)):
            found = changed(found, part)
        for each in FACTORS:
            found = changed(found, dict(each.levels[row[each.name]]))
        if row["clients"] != "nobody":
            found["data"]["client_id"] = "client_id"
        if row["clients"] == "bounded":
            found["data"]["max_rows_per_client"] = 7
        if row["facts"] == "counted":
            found = changed(found, {"data.name": "visits", "data.public_rows": N_ROWS})
        return found

    def tell(self) -> None:
        """A run that promises nothing anywhere, and finds the same centers again."""
        planned = self.run("plan", self.job, "--rows", str(N_ROWS), name="plan")
        assert (planned.code, "the job has no privacy" in planned.err) == (2, True), planned.err
        run, outcome = self.made("fit", self.job, "fit")
        assert {path.name for path in run.folder.iterdir()} == {"run.json", "centers.parquet"}
        invariants.check_files(run)
        said, manifest = summary(outcome), run.json("run.json")
        assert (said["epsilon"], said["delta"]) == (None, None)
        assert (manifest["private"], manifest["label"]) == (False, "evaluation (not private)")
        invariants.check_centers(run, self.job["n_clusters"])
        found = summary(self.command("verify", str(run.folder)))
        assert (found["verified"], found["epsilon"], found["ledger"]) == (True, None, False)
        self._run_again(run)
        if self.row["then"] == "use":
            self._use()

    def _run_again(self, run: Run) -> None:
        """Never over a run; elsewhere the same centers."""
        before = (run.folder / "centers.parquet").read_bytes()
        again = self.run("fit", self.job, *self.output("fit"))
        assert again.code == 2, again.err
        assert (run.folder / "centers.parquet").read_bytes() == before
        # Which rows of a client are left out is drawn again.
        if self.row["then"] == "use" and self.row["clients"] != "bounded":
            other, _ = self.made("fit", self.job, "other")
            assert (other.folder / "centers.parquet").read_bytes() == before

    def _use(self) -> None:
        """Every row has a label and a place in the scores."""
        own = ("public_rows", "name", "max_rows_per_client")
        data = {name: value for name, value in self.job["data"].items() if name not in own}
        job = {"model": str(self.folder / "fit"), "data": data}
        labels, _ = self.made("assign", job, "labels")
        n_rows = pq.read_table(labels.folder / "assignments.parquet", partitioning=None).num_rows
        assert n_rows == count(self.row)
        scores, _ = self.made("evaluate", job | {"evaluate": {"silhouette_rows": 20}}, "scores")
        assert scores.json("metrics.json")["n_rows"] == n_rows


def count(row: Row) -> int:
    """Returns how many rows of a lake count."""
    parts = {"hive": N_CLIENTS // 3 * CLIENT_ROWS, "disjoint": N_CLIENTS // 3 * CLIENT_ROWS}
    invalid = row["storage"] == "invalid" and row["columns"] != "one_hot"
    return parts.get(row["storage"], N_ROWS - invalid * len(range(0, N_ROWS, 7)))
