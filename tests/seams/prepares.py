"""The table of `prepare`: rows of each client are brought together, all of them once, and fits find in them what they
find in the lake."""

import hashlib
import math

import pyarrow.parquet as pq

from tests.scenes import lake
from tests.seams import fits
from tests.seams.array import excluded
from tests.seams.desk import RowStory, table_of
from tests.seams.fits import factor
from tests.seams.invariants import Run, summary
from tests.seams.places import CLIENT_ROWS, COLUMNS, N_CLIENTS, NAMES, STORAGE, Settings, changed
from tests.seams.pooled import count

_BOUND = 7
_OF_FIT = {"algorithm": "dp_lloyd", "n_clusters": 3, "privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-6}}
_OF_FIT |= {"clipping": {"norm": "domain", "center": "none", "client_rows": CLIENT_ROWS}, "dp_lloyd": fits.BOX}
_POOLED = {"experimental": True, "algorithm": "optimal", "n_clusters": 3}
FACTORS = (
    factor("job", *_OF_FIT, *_POOLED, own={}, of_fit=_OF_FIT, pooled=_POOLED, encoded=_POOLED),
    factor(
        "columns",
        *COLUMNS,
        named={},
        listed={},
        pattern={},
        names_for_people={},
    ),
    factor(
        "storage",
        *STORAGE,
        parquet={},
        apart={},
        hive={},
        disjoint={},
        delta={},
        csv={},
        invalid={},
    ),
    factor("client", "data.client_id", named={}, nobody={}),
    factor("bound", all={}, bounded={"data.max_rows_per_client": _BOUND}),
    factor("shards", chosen={}, four={"prepare.shards": 4}),
    factor("facts", none={}, counted={"data.name": "visits", "data.public_rows": N_CLIENTS}),
)
EXCLUDED = (
    excluded("encode isn't supported for prepare", job="encoded"),
    excluded("data.client_id is required", client="nobody"),
    excluded("column '.*' not found in", columns="listed|names_for_people", storage="csv"),
    # What has no meaning together: these columns are named one by one.
    excluded(job="encoded", columns="listed|names_for_people|pattern"),
)
TABLE = table_of(FACTORS, EXCLUDED)


class PrepareStory(RowStory):
    """One row of the table, in a folder of its own."""

    word = "prepare"

    def settings(self) -> Settings:
        """The job of the row."""
        found: Settings = {}
        for part in (fits.columns(self.row), fits.storage(self.row, self.place)):
            found = changed(found, part)
        for each in FACTORS:
            found = changed(found, dict(each.levels[self.row[each.name]]))
        if self.row["client"] == "named":
            found["data"]["client_id"] = "client_id"
        if self.row["job"] == "encoded":
            found["encode"] = fits.STANDARD
        return found

    def tell(self) -> None:
        """Every row is once beside the others of its client; a copy is never made over another."""
        run, outcome = self.made("prepare", self.job, "prepare")
        assert (summary(outcome)["epsilon"], summary(outcome)["delta"]) == (None, None)
        manifest = run.json("manifest.json")
        assert {path.name for path in run.folder.iterdir()} == {
            "manifest.json",
            *(f["name"] for f in manifest["files"]),
        }
        n_rows, owners = 0, []
        for file in manifest["files"]:
            content = (run.folder / file["name"]).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file["n_bytes"], file["sha256"])
            clients = pq.read_table(run.folder / file["name"], partitioning=None)["client_id"].to_pylist()
            assert len(clients) == file["n_rows"]
            n_rows += len(clients)
            owners += sorted(set(clients))
            if self.row["bound"] == "bounded":
                assert max(map(clients.count, set(clients))) <= _BOUND
        assert len(set(owners)) == len(owners)
        if self.row["bound"] == "all":
            assert n_rows == count(self.row)
            self._compare(run)
        if self.row["shards"] == "four":
            assert len(manifest["files"]) <= 4
        again = self.run("prepare", self.job, *self.output("prepare"))
        assert (again.code, "must be a new or empty folder" in again.err) == (2, True), again.err

    def _compare(self, prepared: Run) -> None:
        """A fit by clients under one key, whose noise follows from exact sums, finds the same centers in the copy."""
        centers = []
        for name, path in (("lake", self.job["data"]["path"]), ("copy", str(prepared.folder))):
            data = {each: value for each, value in self.job["data"].items() if each not in ("public_rows", "name")}
            if name == "copy":
                own = ("path", "features", "client_id", "feature_names", "width")
                data = {each: value for each, value in data.items() if each in own} | {"path": path}
                data["features"] = "x" if isinstance(data["features"], str) else list(NAMES)
            job: Settings = _OF_FIT | {
                "data": data,
                "dp_lloyd": {"domain": [-8.0, 8.0], "init": "sphere_packing", "steps": 1},
                "key_uri": self.place.key,
            }
            with lake.written_keys_draw():
                run, _ = self.made("fit", job, name)
            rows = pq.read_table(run.folder / "centers.parquet", partitioning=None).to_pylist()
            centers.append([value for row in rows for value in row["center"]])
        assert all(math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) for one, other in zip(*centers, strict=True))
