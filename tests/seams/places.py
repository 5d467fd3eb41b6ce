"""Rows in every form in which a job may find them, written once; the same people in each."""

import copy
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.scenes import lake, tables

N_CLIENTS, CLIENT_ROWS = 30, 10
N_ROWS = N_CLIENTS * CLIENT_ROWS
NAMES = ("a", "b", "c", "d")
DATASET = "visits"
WORKS = ("clerk", "smith", "farmer")
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
COLUMNS = ("data.features", "data.except", "data.feature_names", "data.width", "encode")
"""Settings of which columns are read, and how."""
STORAGE = (
    "data.path",
    "data.partitions",
    "data.table",
    "data.csv",
    "data.on_invalid_rows",
    "data.disjoint_partitions",
)
"""Settings of where rows are, and how."""
MISSING = {"b": {"fill": 0.5}}
"""What fills a column with missing values."""
CSV = {"delimiter": ";", "decimal": ",", "encoding": "utf-16-le", "thousands": "space", "null_values": ["NA"]}
"""How the rows are written where they are CSV."""


Settings = dict[str, Any]


def people(n_rows: int = N_ROWS, seed: int = 0, *, invalid: bool = False, holes: bool = False) -> pa.Table:
    """Rows in three groups with columns of all kinds; every seventh is invalid, or lacks a value, if asked for."""
    points, clients = lake.mixture(n_rows, seed), np.arange(n_rows) // CLIENT_ROWS
    if invalid:
        points[::7] = np.nan
    works = np.array(WORKS)[np.arange(n_rows) % len(WORKS)]
    found = lake.table_of(points, clients).append_column("work", pa.array(works))
    for name, values in zip(NAMES, points.T, strict=True):
        if holes and name in MISSING:
            values = np.where(np.arange(n_rows) % 7 == 0, np.nan, values)
        found = found.append_column(name, pa.array(values))
    return found


def _write_csv(path: pathlib.Path, table: pa.Table) -> None:
    table.to_pandas().to_csv(path, sep=";", decimal=",", encoding="utf-16-le", index=False, na_rep="NA")


class Place:
    """A folder with rows, public rows, and what else jobs name; each is made when it is first asked for."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Ends what it has started."""

    @functools.cached_property
    def server(self) -> str:
        """Public rows."""
        table = people(60, seed=99).drop_columns(["client_id"])
        pq.write_table(table, self.folder / "server.parquet")
        return str(self.folder / "server.parquet")

    def server_data(self, storage: str) -> Settings:
        """Public rows, as CSV where the private ones are."""
        if storage != "csv":
            return {"path": self.server}
        path = self.folder / "server.csv"
        if not path.exists():
            _write_csv(path, people(60, seed=99).drop_columns(["client_id", "x"]))
        return {"path": str(path)}

    @functools.cached_property
    def vocabulary(self) -> str:
        """Public terms, a line each."""
        (self.folder / "vocabulary.txt").write_text("\n".join(WORKS))
        return str(self.folder / "vocabulary.txt")

    @functools.cached_property
    def key(self) -> str:
        return lake.write_key(self.folder / "key")

    @functools.cached_property
    def secret(self) -> str:
        return lake.write_key(self.folder / "secret", bytes(range(11, 43)))

    def rows(self, form: str, columns: str, *, invalid: bool = False, holes: bool = False) -> str:
        """Private rows in a form of the table of factors, prepared for some columns; returns the path."""
        folder = self.folder / f"{form}{columns * (form == 'prepared')}{'-invalid' * invalid}{'-holes' * holes}"
        if form == "prepared" and not folder.exists():
            self._prepare(folder, columns if columns in ("x", "work") else list(columns))
        if not folder.exists():
            getattr(self, f"_write_{form}")(folder, people(invalid=invalid, holes=holes))
        return str(folder)

    def _write_parquet(self, folder: pathlib.Path, table: pa.Table) -> None:
        lake.write_files(folder, [table.slice(0, 150), table.slice(150)], 50)

    def _write_apart(self, folder: pathlib.Path, table: pa.Table) -> None:
        """Rows of one client are in several files."""
        order = np.random.default_rng(3).permutation(len(table))
        lake.write_files(folder, [table.take(part) for part in np.array_split(order, 6)])

    def _write_hive(self, folder: pathlib.Path, table: pa.Table) -> None:
        for index, day in enumerate(DAYS):
            lake.write_files(folder / f"dt={day}", [table.slice(100 * index, 100)], 20)

    def _write_delta(self, folder: pathlib.Path, table: pa.Table) -> None:
        tables.write_delta(folder, [table.slice(50 * index, 50) for index in range(6)])

    def _write_csv(self, folder: pathlib.Path, table: pa.Table) -> None:
        """Rows by client in files, as `CSV` says a spreadsheet has written them: lists have no place there."""
        folder.mkdir()
        for index in range(6):
            part = table.drop_columns(["x"]).slice(50 * index, 50)
            _write_csv(folder / f"part-{index}.csv", part)

    def _prepare(self, folder: pathlib.Path, features: Any) -> None:
        """Rows by client, as the job `prepare` leaves them."""
        data = {"path": self.rows("apart", ""), "features": features, "client_id": "client_id"}
        (self.folder / "prepare.yaml").write_text(yaml.safe_dump({"data": data, "prepare": {"shards": 4}}))
        words = ("--config", str(self.folder / "prepare.yaml"), "--output", str(folder))
        outcome = lake.run_command("prepare", *words)
        assert outcome.code == 0, outcome.err


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with others in place: `section.setting` is one of a section, None leaves it out."""
    found = copy.deepcopy(settings)
    for path, value in changes.items():
        *sections, name = path.split(".")
        place = found
        for each in sections:
            if not isinstance(place.get(each), dict):
                place[each] = {}
            place = place[each]
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return found
