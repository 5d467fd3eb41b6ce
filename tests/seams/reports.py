"""The table of private reports: `encode`, `shuffle` and `decode`, of clients who send one report each."""

import hashlib
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.scenes import lake
from tests.seams import invariants
from tests.seams.array import Row, excluded
from tests.seams.desk import RowStory, table_of
from tests.seams.fits import STANDARD, SYMMETRIC, WORDS, factor
from tests.seams.invariants import Run, summary
from tests.seams.places import NAMES, Settings, changed, people

N_CLIENTS = 400
SHUFFLED = {"reports.mode": "shuffle", "privacy.delta": 1e-5, "privacy.epsilon": 1.0}
FACTORS = (
    factor("job", usual={}, wrong_unit={"privacy.unit": "record"}, dropped={"data.on_invalid_rows": "drop"}),
    factor("mode", "privacy.unit", local={}, shuffle=SHUFFLED),
    factor(
        "variant",
        usual={},
        leaves={"reports.variant": "leaves"},
        nested={"reports.variant": "nested"},
        points={"reports.variant": "points"},
        privunit={"reports.variant": "privunit"},
        paper={"reports.variant": "paper"},
    ),
    factor("tree", "tree.radius", usual={}, shallow={"tree.depth": 3}),
    factor(
        "columns",
        "data.features",
        "encode",
        "server_data.path",
        listed={},
        named={},
        symmetric={},
        standard={},
        words={},
    ),
    factor("epsilon", "privacy.epsilon", usual={}, large={"privacy.epsilon": 7.0}, too_large={"privacy.epsilon": 60.0}),
    factor("ledger", "ledger", "data.name", none={}, charged={}, lacking={}),
    factor("parameters", "reports.parameters", "key_uri", drawn={}, kept={}, key={}),
    factor("n_clusters", "n_clusters", three={}, one={"n_clusters": 1}),
)
EXCLUDED = (
    excluded("privacy.unit must be 'client' for reports", job="wrong_unit"),
    excluded("data.on_invalid_rows must be 'fail' for reports", job="dropped"),
    excluded("must be .*at most", epsilon="too_large"),
    excluded("reports.variant 'paper' isn't supported for reports.mode shuffle", mode="shuffle", variant="paper"),
)
TABLE = table_of(FACTORS, EXCLUDED)
UNVARIED = {
    "data.missing": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "experimental": "true in all rows, some of which hold what is not supported",
    "data.path": "of the place",
    "data.client_id": "each client sends",
    "data.partitions": "read as by a fit, which the table of fits has",
    "data.csv": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "data.table": "read as by a fit, which the table of fits has",
    "data.except": "read as by a fit, which the table of fits has",
    "data.feature_names": "read as by a fit, which the table of fits has",
    "data.width": "read as by a fit, which the table of fits has",
    "data.max_rows_per_client": "1 or refused",
    "data.disjoint_partitions": "of the table of fits",
    "data.public_rows": "reports are counted",
    "job": "what was encoded, which windows of reports say once more",
    "windows": "batches that follow each other, which need a calendar or a broker",
    "seed": "of public randomness, as of a fit",
    "reports.min_batch": "the number of clients here",
    "reports.arrived": "what `shuffle` is given",
    "reports.path": "what `decode` is given",
}


def settings(row: Row, folder: pathlib.Path) -> Settings:
    """The job `encode` of a row, with its rows."""
    points = lake.mixture(N_CLIENTS)
    table = people(N_CLIENTS).drop_columns(["client_id"]).append_column("client_id", pa.array(np.arange(N_CLIENTS)))
    found: Settings = {
        "experimental": True,
        "data": {"path": lake.write_files(folder / "lake", [table]), "features": "x", "client_id": "client_id"},
        "n_clusters": 3,
        "privacy": {"unit": "client", "epsilon": 4.0},
        "tree": {"radius": float(np.linalg.norm(points, axis=1).max())},
        "reports": {"min_batch": N_CLIENTS},
    }
    columns: Settings = {
        "listed": {},
        "named": {"data.features": list(NAMES)},
        "symmetric": {"data.features": list(NAMES), "encode": SYMMETRIC, "tree.radius": 2.0},
        "standard": {"data.features": list(NAMES), "encode": STANDARD},
        "words": {"data.features": ["work"], "encode": WORDS, "tree.radius": 2.0},
    }[row["columns"]]
    found = changed(found, columns)
    for each in FACTORS:
        found = changed(found, each.levels[row[each.name]])
    if row["parameters"] == "key":
        found["key_uri"] = lake.write_key(folder / "key")
    return found


class ReportStory(RowStory):
    """One row of the table, in a folder of its own."""

    word = "encode"

    def settings(self) -> Settings:
        """The job `encode` of the row, with its rows."""
        return settings(self.row, self.folder)

    def tell(self) -> None:
        """Parameters that are kept come from an earlier batch; then all steps, which say one epsilon."""
        if self.row["parameters"] == "kept":
            before = changed(self.job, {"ledger": None, "data.name": None})
            first, _ = self.made("encode", before, "before")
            self.job = changed(self.job, {"reports.parameters": str(first.folder / "parameters.json")})
        encoded, _ = self.started()
        if self.row["mode"] == "shuffle":
            encoded = self._shuffle(encoded)
        self._decode(encoded)

    def _shuffle(self, encoded: Run) -> Run:
        """Reports in the order in which nobody sent them."""
        simulated, parameters = encoded.folder / "reports.parquet", encoded.folder / "parameters.json"
        sent = hashlib.sha256(parameters.read_bytes()).digest()
        (self.folder / "arrived").mkdir()
        table = pq.read_table(simulated)
        table = table.append_column("parameters", pa.array([sent] * len(table), pa.binary(len(sent))))
        pq.write_table(table, self.folder / "arrived/part-0.parquet")
        job: Settings = {
            "experimental": True,
            "reports": {"arrived": str(self.folder / "arrived"), "parameters": str(parameters)},
        }
        shuffled, _ = self.made("shuffle", job, "shuffle")
        return shuffled

    def _decode(self, reports: Run) -> None:
        """Centers whose page, entry and statement say what every client was promised."""
        job: Settings = {"experimental": True, "reports": {"path": str(reports.folder)}}
        run, outcome = self.made("decode", job, "decode")
        asked = {"unit": "client", "epsilon": self.job["privacy"]["epsilon"]}
        asked["delta"] = self.job["privacy"].get("delta", 0.0) if self.row["mode"] == "shuffle" else 0.0
        invariants.check_files(run)
        invariants.check_statement(run, asked, outcome)
        statement, page = run.json("privacy.json"), run.page
        assert float(page.after("ε")[0]) == float(f"{statement['epsilon']:.4g}")
        assert float(page.after("δ")[0]) == float(f"{statement['delta']:.4g}")
        assert page.labels["Distinct reports"] == str(N_CLIENTS) == str(run.json("run.json")["n_reports"])
        assert summary(self.command("verify", str(run.folder)))["verified"] is True
        encoded = Run(folder=self.folder / "encode").json("privacy.json")
        assert {name: encoded[name] for name in ("epsilon", "delta", "unit", "events")} == {
            name: statement[name] for name in ("epsilon", "delta", "unit", "events")
        }
        again = self.run("decode", job, *self.output("decode"), name="again")
        assert again.code == 2, again.err
