"""The table of what is `sweep`'s own: methods, epsilons, seeds, varied settings, and what is scored of each cell."""

import math
from typing import Any

import pyarrow.parquet as pq

from tests.seams import fits, invariants
from tests.seams.array import Row, excluded
from tests.seams.desk import RowStory, entries, table_of
from tests.seams.fits import factor
from tests.seams.invariants import Run
from tests.seams.places import CLIENT_ROWS, CSV, DATASET, DAYS, NAMES, Place, Settings, changed

_OPTIMUM = {"algorithm": "optimal"}
FACTORS = (
    factor(
        "methods",
        own={"sweep.methods": {"own": {}}},
        beside={"sweep.methods": {"own": {}, "optimum": _OPTIMUM}},
        unprotected={"sweep.methods": {"optimum": _OPTIMUM}},
        two={"sweep.methods": {"own": {}, "other": {"dp_lloyd": {"init": "candidates"}}}},
        same={"sweep.methods": {"own": {}, "again": {"key_uri": "key"}}},
        apart={"sweep.methods": {"own": {}, "other": {"data": {"path": "elsewhere"}}}},
    ),
    factor("epsilons", one={"sweep.epsilons": [2.0]}, two={"sweep.epsilons": [0.5, 4.0]}),
    factor("seeds", one={"sweep.seeds": 1}, two={"sweep.seeds": 2}, listed={"sweep.seeds": [3, 5]}),
    factor(
        "varied",
        nothing={},
        steps={"sweep.settings": {"dp_lloyd.steps": [1, 2]}},
        epsilon={"sweep.settings": {"privacy.epsilon": [1.0, 2.0]}},
    ),
    factor("parts", whole={}, each={"sweep.cells_per_pipeline": 1}, pairs={"sweep.cells_per_pipeline": 2}),
    factor(
        "scored",
        nothing={},
        usual={"sweep.evaluate": {}},
        label={"sweep.evaluate": {"label": "work", "silhouette_rows": 20}},
        no_rows={"sweep.evaluate": {"silhouette_rows": 0}},
    ),
    factor("unit", record={}, client={}),
    factor("ledger", none={}, charged={}, lacking={}),
    factor("storage", parquet={}, apart={}, hive={}, delta={}, csv={}, invalid={}, latest={}),
    factor("columns", named={}, standardized={}),
)
EXCLUDED = (
    excluded("key_uri isn't supported for a sweep", methods="same"),
    excluded("data.path must be the same in all methods", methods="apart"),
    excluded("must not hold privacy.epsilon", varied="epsilon"),
    excluded("data.table.version is required for a sweep", storage="latest"),
    excluded("sweep.evaluate isn't supported for methods", unit="client", scored="usual|label|no_rows"),
    # What has no meaning together: nothing is charged, and nothing varied, without a private method.
    excluded(methods="unprotected", ledger="lacking"),
)
TABLE = table_of(FACTORS, EXCLUDED)


def settings(row: Row, place: Place) -> Settings:
    """The job of a row, but for its ledger."""
    form = {"latest": "delta", "invalid": "parquet"}.get(row["storage"], row["storage"])
    found: Settings = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": place.rows(form, "", invalid=row["storage"] == "invalid"), "features": list(NAMES)},
        "n_clusters": 3,
        "privacy": {"unit": row["unit"], "delta": 1e-6},
        "clipping": {"norm": "domain", "center": "none"},
        "dp_lloyd": dict(fits.BOX) | {"init": "sphere_packing", "steps": 1},
    }
    for each in FACTORS:
        found = changed(found, dict(each.levels[row[each.name]]))
    if row["unit"] == "client":
        found["data"]["client_id"] = "client_id"
    if row["unit"] == "client":
        found["clipping"]["client_rows"] = CLIENT_ROWS
    if row["columns"] == "standardized":
        found["encode"] = fits.STANDARD
    if form == "csv":
        found["data"]["csv"] = CSV
    if form == "hive":
        found["data"]["partitions"] = {"dt": DAYS[0]}
    if form == "delta":
        found["data"]["table"] = {"format": "delta"} | ({} if row["storage"] == "latest" else {"version": 5})
    if row["storage"] == "invalid":
        found["data"]["on_invalid_rows"] = "drop"
    return found


class SweepStory(RowStory):
    """One row of the table, in a folder of its own."""

    word = "sweep"

    @property
    def leaves(self) -> bool:
        """The fit without privacy comes first, and a finished part is kept, which each cell is here."""
        return (self.row["methods"], self.row["parts"]) == ("beside", "each")

    def settings(self) -> Settings:
        """The job of the row."""
        return settings(self.row, self.place)

    def tell(self) -> None:
        """Every cell ran once, spent what it may, and is charged; the page says what the files say."""
        run, outcome = self.started()
        cells = pq.read_table(run.folder / "results.parquet", partitioning=None).to_pylist()
        self._check_cells(cells)
        self._check_page(run)
        invariants.check_warnings(run, outcome)
        self._check_ledger(cells)
        again = self.run("sweep", self.job, *self.output("sweep"), "--run_id", "seam")
        assert (again.code, "is complete; choose another folder" in again.err) == (2, True), again.err
        self._check_ledger(cells)

    def _expected(self) -> list[tuple[str, float | None, int, str]]:
        """Method, epsilon, seed and varied settings of every cell."""
        sweep = self.job["sweep"]
        seeds = sweep["seeds"] if isinstance(sweep["seeds"], list) else range(sweep["seeds"])
        found = []
        for name in sweep["methods"]:
            epsilons = sweep["epsilons"] if name in ("own", "other") else [None]
            lloyd = "settings" in sweep and name in ("own", "other", "lloyd")
            varied = [f"dp_lloyd.steps={steps}" for steps in (1, 2)] if lloyd else [""]
            found += [(name, epsilon, seed, text) for epsilon in epsilons for seed in seeds for text in varied]
        return found

    def _check_cells(self, cells: list[dict[str, Any]]) -> None:
        told = [(cell["method"], cell["epsilon"], cell["seed"], cell["settings"]) for cell in cells]
        assert sorted(told, key=str) == sorted(self._expected(), key=str)
        assert len({cell["cell"] for cell in cells}) == len(cells)
        scored = self.job["sweep"].get("evaluate")
        for cell in cells:
            assert math.isfinite(cell["cost"])
            assert cell["n_clusters"] <= self.job["n_clusters"]
            if cell["epsilon"] is None:
                assert (cell["epsilon_spent"], cell["delta"]) == (None, None)
            else:
                assert 0.0 < cell["epsilon_spent"] <= cell["epsilon"] * (1 + 1e-12)
                assert cell["delta"] == self.job["privacy"]["delta"]
            assert ("silhouette" in cell) is (scored is not None)
            if scored and "label" in scored:
                assert -1.0 <= cell["adjusted_rand"] <= 1.0

    def _check_page(self, run: Run) -> None:
        """Mean costs are those of the cells, by method, settings and epsilon."""
        page = run.page
        means = pq.read_table(run.folder / "summary.parquet", partitioning=None).to_pylist()
        lines = page.table("method", "settings", "epsilon", "seeds", "cost")
        assert len(lines) == len(means) > 0
        cells = pq.read_table(run.folder / "results.parquet", partitioning=None).to_pylist()
        for line, mean in zip(lines, means, strict=True):
            point = ("method", "settings", "epsilon")
            costs = [cell["cost"] for cell in cells if all(cell[name] == mean[name] for name in point)]
            assert math.isclose(mean["cost"], math.fsum(costs) / len(costs), rel_tol=1e-9)
            assert (line["method"], line["settings"], int(line["seeds"])) == (
                mean["method"],
                mean["settings"],
                len(costs),
            )
            assert math.isclose(float(line["cost"].replace(",", "")), mean["cost"], rel_tol=1e-5)
            assert line["epsilon"] == ("not private" if mean["epsilon"] is None else f"{mean['epsilon']:g}")
        assert f"{len(cells)} cell" in page.text

    def _check_ledger(self, cells: list[dict[str, Any]]) -> None:
        """The charges of all parts are what the private cells spent together."""
        if "ledger" not in self.job:
            return
        charges = [each["content"]["charge"] for each in entries(self.job["ledger"], "reserve")]
        spent = math.fsum(cell["epsilon_spent"] or 0.0 for cell in cells)
        assert math.isclose(math.fsum(each["epsilon"] for each in charges), spent, rel_tol=1e-9)
        assert len(charges) == len(entries(self.job["ledger"], "commit"))
        assert {each["dataset"] for each in charges} <= {DATASET}
