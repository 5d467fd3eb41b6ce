"""Small epochs at client level: lakes by date, a start, and a ledger."""

import copy
import json
import pathlib
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.schemas.settings.run_manifest import RELEASES_FILE
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.tables.counted_clients import ClientList
from tests.scenes import lake, ledgers
from tests.scenes.brokers import CATCH_UP

DATES = tuple(f"2026-01-{day:02d}" for day in range(1, 31))
STREAM: dict[str, Any] = {"name": "january", "column": "dt", "first": DATES[0], "windows": 6, "band": 2, "memory": 4}
CONTRACT: dict[str, Any] = {"max_windows": 2, "min_separation": 2}


class Place:
    """A folder with a start, a ledger and a lake by date, whose rows a test writes."""

    def __init__(self, folder: pathlib.Path, *, unit: str = "client", start: bool = True, **stream: Any):
        contract = CONTRACT if unit == "client" else {"once": "made for a test"}
        self.folder, self.stream = folder, STREAM | contract | {"start": str(folder / "start")} | stream
        self.ledger = ledgers.new_ledger(folder, Limit(epsilon=50.0, delta=1e-4), "visits")
        self.job = lake.job(
            str(folder / "lake"), None, unit, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0], "steps": 1}
        )
        del self.job["server_data"], self.job["feddp_kmeans"]
        self.job["clipping"] = {"client_rows": 2} if unit == "client" else {}
        (folder / "lake").mkdir()
        if start:
            self.fit_start()

    def copied(self, folder: pathlib.Path) -> "Place":
        """The same in another folder, which goes on by itself."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        found = copy.copy(self)
        found.folder, found.ledger = folder, Ledger(str(folder / "ledger.sqlite"))
        found.stream = self.stream | {"start": str(folder / "start")}
        found.job = self.job | {"data": self.job["data"] | {"path": str(folder / "lake")}}
        return found

    def fit_start(self) -> None:
        """The run whose centers the first window starts from."""
        clients = np.arange(600) % 60
        before = lake.write_lake(self.folder / "before", lake.mixture(600), clients)
        settings = self.job | {"data": self.job["data"] | {"path": before}}
        with lake.without_beam():
            assert self._run("fit", "start", settings).code == 0

    def write(
        self, date: str, clients: Iterable[Any], rows: NDArray[np.float64] | None = None, name: str = "part"
    ) -> None:
        """A file of a day, a row of each client unless there are others."""
        ids = pa.array(list(clients))
        points = lake.mixture(len(ids), seed=int(date[-2:])) if rows is None else rows
        folder = self.folder / "lake" / f"dt={date}"
        folder.mkdir(exist_ok=True)
        table = lake.table_of(points).append_column("client_id", ids)
        pq.write_table(table, folder / f"{name}.parquet")

    @property
    def settings(self) -> dict[str, Any]:
        """The job."""
        data = self.job["data"] | {"name": "visits"}
        return self.job | {"data": data, "ledger": self.ledger.path, "stream": self.stream}

    def words(self, until: str, output: str = "january", **changes: Any) -> list[str]:
        """The words of `dapple stream`; changes to None leave a setting out."""
        config = self.folder / f"{output}.yaml"
        given = self.stream | {"until": until} | changes
        stream = {name: value for name, value in given.items() if value is not None}
        config.write_text(yaml.safe_dump(self.settings | {"stream": stream}))
        return ["stream", "--config", str(config), "--output", str(self.folder / output), *CATCH_UP]

    def release(self, until: str, **changes: Any) -> lake.Outcome:
        """Calls the job for the windows up to a date."""
        return lake.run_command(*self.words(until, **changes))

    def _run(self, word: str, name: str, settings: Mapping[str, Any]) -> lake.Outcome:
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(dict(settings)))
        words = (word, "--config", str(self.folder / f"{name}.yaml"), "--output", str(self.folder / name))
        return lake.run_command(*words, "--run_id", name)

    def lists(self) -> list[pathlib.Path]:
        """Files of the private state."""
        return sorted(pathlib.Path(f"{self.ledger.path}.rolls").glob("*/*"))

    def last_list(self) -> ClientList:
        """The last client list."""
        content = self.lists()[-1].read_bytes()
        refusal = untrusted.staged_refusal("client list")
        facts = json.loads(untrusted.arrays_of(content, refusal)["facts"].tobytes())
        return ClientList.from_bytes(content, facts, refusal)

    def n_counted(self, index: int) -> int:
        """Returns how many clients counted in a window that the last client list still knows."""
        return len(self.last_list().counted.of(index))

    def json(self, index: int, file: str) -> Any:
        """A released file of a window."""
        return json.loads((self.folder / "january" / DATES[index] / file).read_text())

    def counts(self, index: int) -> float:
        """Noisy sum of all weighted counts that a window released, in clients."""
        path = self.folder / "january" / DATES[index] / RELEASES_FILE
        (row,) = [each for each in pq.read_table(path).to_pylist() if each["path"].endswith("weighted_counts")]
        return float(np.sum(row["values_lattice"]) * row["lattice_unit"])
