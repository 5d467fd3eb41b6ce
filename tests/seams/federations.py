"""The table of `clustered_fl`: silos that train models together, each with a guarantee for its own rows."""

import math
import pathlib
import re

import pyarrow.parquet as pq

from tests.scenes import federation, lake
from tests.seams import invariants
from tests.seams.array import Row, excluded
from tests.seams.desk import RowStory, table_of
from tests.seams.fits import factor
from tests.seams.invariants import Run
from tests.seams.places import Settings, changed

FACTORS = (
    factor("group", "data.group", none={}, kind={"data.group": "kind"}),
    factor("model", "training.model", softmax={}, mlp={"training.model": "mlp", "training.hidden_units": 4}),
    factor("adjacency", add_remove={}, replace_one={"privacy.adjacency": "replace_one"}),
    factor(
        "accountant",
        usual={},
        pld={"privacy.accountant": "pld"},
        rdp={"privacy.accountant": "rdp"},
    ),
    factor("n_clusters", two={"n_clusters": 2}, searched={"n_clusters.max": 3, "n_clusters.choose": "mss"}),
    factor("believed", usual={}, always={"clustering.min_separation": 0.0}),
    factor(
        "scarce",
        usual={},
        cluster={"clustering.when_scarce": "cluster"},
        apart={"clustering.when_scarce": "apart", "privacy.choice_share": 0.2},
        one_model={"clustering.when_scarce": "one_model"},
    ),
    factor(
        "selection",
        usual={},
        loss={"clustering.select_by": "loss", "clustering.selection_share": 0.5, "privacy.select_share": 0.1},
        early={"clustering.switch_round": 2},
    ),
    factor(
        "training",
        *(f"training.{name}" for name in ("rounds", "batch_size", "learning_rate", "clipping_norm")),
        usual={},
        epochs={"training.local_epochs": 2, "training.feature_norm": 50.0},
        first={"training.first_batch_size": 40, "privacy.first_round_noise_ratio": 2.0},
    ),
    factor("epsilon", "privacy.epsilon", "privacy.delta", usual={}, small={"privacy.epsilon": 0.5}),
    factor("ledger", "ledger", "data.name", none={}, charged={}, lacking={}),
    factor(
        "rows",
        "data.path",
        "data.features",
        "data.label",
        "data.classes",
        "data.client_id",
        "data.max_rows_per_client",
        whole={},
        split={},
        bounded={},
    ),
    factor("evaluation", "evaluation.path", none={}, held_out={}),
    factor("speed", "key_uri", usual={}, chunks={"chunks.rounds": 2, "chunks.cache_megabytes": 0, "seed": 7}, key={}),
)
EXCLUDED = (
    excluded(
        "privacy.accountant must be pld for privacy.adjacency replace_one", adjacency="replace_one", accountant="rdp"
    ),
    excluded("data.max_rows_per_client isn't supported for clustered_fl", rows="bounded"),
)
TABLE = table_of(FACTORS, EXCLUDED)
UNVARIED = {
    "data.missing": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "algorithm": "there is one",
    "experimental": "true in all rows, since the job is experimental",
    "data.partitions": "read as by a fit, which the table of fits has",
    "data.table": "read as by a fit, which the table of fits has",
    "data.except": "read as by a fit, which the table of fits has",
    "data.feature_names": "read as by a fit, which the table of fits has",
    "data.width": "read as by a fit, which the table of fits has",
    "data.csv": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "evaluation.csv": "read as by a fit, which the table of fits has",
    "data.on_invalid_rows": "read as by a fit, which the table of fits has",
    "data.disjoint_partitions": "of the table of fits",
    "data.public_rows": "numbers of rows of silos are public",
}


def settings(row: Row, folder: pathlib.Path) -> Settings:
    """The job of a row, with its silos."""
    silos = federation.write_lake(folder / "silos", split=row["rows"] == "split")
    found = changed(federation.job(silos, training__rounds=3), {"n_clusters": None})
    for each in FACTORS:
        found = changed(found, each.levels[row[each.name]])
    if row["rows"] == "bounded":
        found["data"]["max_rows_per_client"] = 50
    if row["evaluation"] == "held_out":
        found["evaluation"] = {"path": federation.write_lake(folder / "held_out", seed=1)}
    if row["speed"] == "key":
        found["key_uri"] = lake.write_key(folder / "key")
    return found


class FederationStory(RowStory):
    """One row of the table, in a folder of its own."""

    word, dataset, limit = "clustered_fl", "silos", 5000.0

    def settings(self) -> Settings:
        """The job of the row, with its silos."""
        return settings(self.row, self.folder)

    def tell(self) -> None:
        """A run whose page, statement and last line say one epsilon, and which is run once."""
        run, outcome = self.started()
        invariants.check_files(run)
        asked = self.job["privacy"] | {"unit": run.json("privacy.json")["unit"]}
        invariants.check_statement(run, asked, outcome)
        invariants.check_places(run, self.job)
        self._check_page(run)
        self.verify(run)
        self._check_models(run)
        self.ask_again(outcome)
        # Noise is calibrated after the charge, to spend no more than it.
        self.check_charge(self.job["privacy"]["epsilon"])

    def _check_page(self, run: Run) -> None:
        page, statement, manifest = run.page, run.json("privacy.json"), run.json("run.json")
        assert re.search(r"\bnan\b|\bNone\b|\binf\b", page.text) is None
        assert float(page.after("ε")[0]) == float(f"{statement['epsilon']:.4g}")
        assert float(page.after("δ")[0]) == float(f"{statement['delta']:.4g}")
        spent, of = re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", page.labels["Epsilon"])[:2]
        assert (float(spent), float(of)) == (float(f"{statement['epsilon']:.6g}"), self.job["privacy"]["epsilon"])
        assert page.labels["Rounds"] == str(self.job["training"]["rounds"])
        assert (manifest["epsilon"], manifest["delta"]) == (statement["epsilon"], statement["delta"])
        assert statement["adjacency"] == self.job["privacy"]["adjacency"]
        assert ("not private" in page.text.replace("(not private)", "")) or "evaluation" not in self.job

    def _check_models(self, run: Run) -> None:
        models = pq.read_table(run.folder / "models.parquet", partitioning=None).to_pylist()
        assert models
        for model in models:
            numbers = [each for value in model.values() if isinstance(value, list) for each in value]
            assert all(math.isfinite(each) for each in numbers if isinstance(each, float))
