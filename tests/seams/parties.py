"""The table of masked roles in jobs of their own: three holders, the party that unmasks, and an aggregator."""

import pathlib

import numpy as np
import yaml

from dapple_dp.pipelines.masked.party_run import Patience, take_part
from dapple_dp.schemas.masked.config import AGGREGATOR
from tests.scenes import lake
from tests.scenes.parties import ExchangingParties, enroll, with_identities
from tests.seams import places
from tests.seams.array import Row, excluded
from tests.seams.desk import table_of
from tests.seams.fits import factor
from tests.seams.places import NAMES, Settings, changed
from tests.seams.turns import Part, Turns

HOLDERS = (4, 3, 3)
"""Senders of each holder: row groups, or clients."""
N_SENDERS, SENDER_ROWS = sum(HOLDERS), 6
DATASET = "homes"
WAITS = 500.0
"""How often a party hands on before it gives up."""
_FEDDP = {"algorithm": "feddp_kmeans", "clipping.norm": "server_radius"}

FACTORS = (
    factor(
        "algorithm",
        dp_lloyd={"algorithm": "dp_lloyd", "dp_lloyd.init": "sphere_packing", "dp_lloyd.steps": 1},
        feddp_kmeans=_FEDDP,
        central_tree={"algorithm": "central_tree", "tree.radius": 16.0, "tree.depth": 2},
    ),
    factor("scheme", "masked.threshold", shared_secret={}, pairwise={"masked.scheme": "pairwise"}),
    factor("noise_by", "masked.corrupt", "masked.dropout", aggregator={}, both={}, clients={}),
    factor("unit", record={}, client={}),
    factor(
        "identities",
        "masked.parties",
        "masked.identity_uri",
        "parties",
        "identity_uri",
        none={},
        known={},
    ),
    factor(
        "ledger",
        "ledger",
        "name",
        "unit",
        "limit.epsilon",
        "limit.delta",
        none={},
        charged={},
        limit={},
        lacking={},
        small_limit={},
        of_clients={"ledger": "ledger.sqlite", "data.name": DATASET},
    ),
    factor("columns", listed={}, by_column={}),
    factor("driver", steps={}, party={}),
    factor(
        "places", "key_uri", "threshold", "masked.secret_uri", "masked.state_uri", usual={}, no_state={}, no_secret={}
    ),
)

EXCLUDED = (
    excluded("masked.noise_by clients needs masked.parties", noise_by="clients", identities="none"),
    excluded("ledger must be left out for this job", ledger="of_clients"),
    excluded("this job needs masked.state_uri", places="no_state"),
    excluded("this job needs masked.secret_uri", places="no_secret"),
    # What has no meaning together: only algorithm dp_lloyd has bounds by column.
    excluded(columns="by_column", algorithm="feddp_kmeans|central_tree"),
    # What the aggregator refuses, which is distinguished.
    excluded(ledger="lacking|small_limit"),
)
TABLE = table_of(FACTORS, EXCLUDED)
UNVARIED = {
    "data.missing": "as in a fit: tests/unit/tables/test_missing_everywhere.py",
    "experimental": "true where the algorithm needs it, and of the table of fits",
    "masked.one_message": "one message of each party: tests/pipeline/masked/test_three_hospitals.py",
    "data.table": "refused or read as by a fit, which the table of fits has",
}


class Parties(ExchangingParties):
    """Jobs of a row in a folder, and the places between them."""

    def __init__(self, row: Row, folder: pathlib.Path, about: Settings):
        super().__init__(folder)
        self.row = row
        self.names = [f"holder-{holder}" for holder in range(len(HOLDERS))]
        self.server = lake.write_server(folder / "server.parquet")
        for holder in range(len(HOLDERS)):
            self._write_rows(holder)
            self.write(f"job-{holder}", self.job(holder))
        own = {"key_uri": lake.write_key(folder / "aggregator.key"), "threshold": self._fewest()}
        self.write("aggregate", own | about)

    def write(self, name: str, settings: Settings) -> None:
        """The file of a job."""
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))

    def open(self) -> None:
        """States of all parties, and their keys."""
        for holder, name in enumerate(self.names):
            enroll(self.folder / f"job-{holder}.yaml", name, "")
        if self.row["identities"] == "known":
            with_identities(self, self.names)

    @property
    def collector(self) -> int | str:
        """Whose job opens and unmasks."""
        return "collector" if self.row["identities"] == "known" else 0

    def take_part(self) -> list[object]:
        """All parties to the end, by one command each; what each printed last, that of the party that unmasks first.

        A leg is closed when all have had their turn: those who are not listed, nobody could wait for.
        """
        places = ["--exchange", self.exchange, "--released", self.released]
        roles = [("clients", f"job-{self.collector}", [*places, "--run_id", "run"])]
        roles += [("client", f"job-{each}", [*places, "--client", name]) for each, name in enumerate(self.names)]
        roles += [(AGGREGATOR, "aggregate", places[:2])]

        def part(role: str, job: str, words: list[str]) -> Part:
            argv = ["--config", str(self.folder / f"{job}.yaml"), *words]
            return lambda pause: take_part(role, argv, Patience(wait=WAITS, poll=1.0, late=0.0, pause=pause))

        return Turns().play([part(*each) for each in roles])

    def _fewest(self) -> int:
        return 8 if self.row["noise_by"] == "clients" and self.row["scheme"] == "shared_secret" else 2

    def _write_rows(self, holder: int) -> None:
        n_rows = HOLDERS[holder] * SENDER_ROWS
        clients = np.arange(n_rows) // SENDER_ROWS + 100 * holder
        table = places.people(n_rows, holder).drop_columns(["client_id"])
        lake.write_files(self.folder / f"lake-{holder}", [table.append_column("client_id", [clients])], SENDER_ROWS)

    def job(self, holder: int) -> Settings:
        """The settings of a holder."""
        row, by_server = self.row, self.row["algorithm"] == "feddp_kmeans"
        masked: Settings = {"threshold": self._fewest(), "noise_by": row["noise_by"]}
        if row["noise_by"] == "clients" and row["scheme"] == "shared_secret":
            masked["corrupt"] = 0.0
        if row["noise_by"] == "clients" and row["scheme"] == "pairwise":
            masked |= {"corrupt": 0.05, "dropout": 0.3}
        found: Settings = {
            "data": {"path": str(self.folder / f"lake-{holder}"), "features": "x"},
            "n_clusters": 3,
            "privacy": {"unit": row["unit"], "epsilon": 4.0, "delta": 1e-6},
            "server_data": {"path": self.server} if by_server else "none",
            "trust": "masked",
            "masked": masked | self._places(holder),
        }
        for each in FACTORS:
            found = changed(found, dict(each.levels[row[each.name]]))
        if row["unit"] == "client":
            found = changed(found, {"data.client_id": "client_id", "clipping.client_rows": SENDER_ROWS})
        if row["algorithm"] == "dp_lloyd":
            found["dp_lloyd"]["domain"] = [-8.0, 8.0]
        if row["columns"] == "by_column":
            found["data"]["features"] = list(NAMES)
            found["dp_lloyd"]["domain"] = {name: [-8.0, 8.0 + index] for index, name in enumerate(NAMES)}
        return found

    def _places(self, holder: int) -> Settings:
        """A secret and a state; with a shared secret each party that draws has a copy of its own."""
        one = self.row["scheme"] == "shared_secret"
        own = self.folder / f"own-{holder}"
        own.mkdir(exist_ok=True)
        first = 11 if one else 11 + 50 * holder
        found = {
            "secret_uri": lake.write_key(own / "secret", bytes(range(first, first + 32))),
            "state_uri": str(self.folder / f"state-{holder}"),
        }
        lacks = {"no_state": "state_uri", "no_secret": "secret_uri"}.get(self.row["places"])
        return {name: value for name, value in found.items() if name != lacks}
