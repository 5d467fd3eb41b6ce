"""The same rows as CSV and as Parquet, so that jobs on the two can be compared."""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import yaml

from tests.scenes import lake

NAMES = ("a", "b", "c", "d")
FORMATS = ("csv", "parquet")
N_ROWS = 600


def people(n_rows: int = N_ROWS, seed: int = 0) -> pa.Table:
    """Four numbers of three groups, a client of ten rows, a text, a whole number, a flag and the group of each row."""
    rng, group = np.random.default_rng(seed), np.arange(n_rows) % 3
    columns: dict[str, Any] = dict(zip(NAMES, lake.mixture(n_rows, seed).T, strict=True))
    columns["client_id"] = [f"c-{number}, {number % 7}" for number in rng.permutation(n_rows) // 10]
    columns["town"] = np.array(["Bern", 'Biel "B"', "Chur\nGR"])[group]
    columns["level"] = pa.array(group + 1, pa.int64())
    columns["member"] = pa.array(group == 1)
    columns["signed"] = pa.array(["2026-01-05"] * n_rows).cast(pa.date32())
    return pa.table(columns)


def write(folder: pathlib.Path, kind: str, tables: list[pa.Table], delimiter: str = ",") -> str:
    """A file per table; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, table in enumerate(tables):
        path = folder / f"part-{index:02d}.{kind}"
        if kind == "csv":
            pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter=delimiter))
        else:
            pq.write_table(table, path)
    return str(folder)


class Desk:
    """A folder with rows, server rows, a key and jobs; every file is there in both formats."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.table = folder, people()
        self.key = lake.write_key(folder / "key")
        for kind in FORMATS:
            write(folder / kind, kind, [self.table.slice(0, 250), self.table.slice(250)])
            write(folder / f"server-{kind}", kind, [people(120, seed=9)])

    def job(self, kind: str, unit: str = "record", server: bool = True, **settings: Any) -> dict[str, Any]:
        """A job of `tests.scenes.lake` on scalar columns."""
        found = lake.job(str(self.folder / kind), str(self.folder / f"server-{kind}") if server else None, unit)
        found["data"] |= {"features": list(NAMES)}
        found |= {"key_uri": self.key}
        for name, value in settings.items():
            section, _, key = name.rpartition("__")
            (found.setdefault(section, {}) if section else found)[key] = value
        return found

    def run(self, word: str, job: dict[str, Any], output: str, *flags: str) -> lake.Outcome:
        """A job from `output`.yaml to `output`, below the folder."""
        (self.folder / f"{output}.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
        words = ("--config", str(self.folder / f"{output}.yaml"), "--output", str(self.folder / output))
        return lake.run_command(word, *words, *flags)

    def done(self, word: str, job: dict[str, Any], output: str, *flags: str) -> pathlib.Path:
        """`run`, which must end well."""
        outcome = self.run(word, job, output, *flags)
        assert outcome.code == 0, outcome.err
        return self.folder / output
