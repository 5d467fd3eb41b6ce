"""Ledgers, charges and small jobs that charge them."""

import pathlib
from typing import Any

import numpy as np
import yaml

from dapple_dp.pipelines.ledger.store import Ledger, charges_of
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.privacy.charge import Charge, Limit
from tests.scenes import lake


def gaussian(multiplier: float, **more: Any) -> Charge:
    """A charge of one Gaussian release."""
    event = {"path": "test/sums", "mechanism": "discrete_gaussian", "noise_multiplier": multiplier}
    return charge(events=(event,), **more)


def charge(epsilon: float = 1.0, delta: float = 0.0, **more: Any) -> Charge:
    """A charge that composes by its epsilon and delta, unless its events say more."""
    settings = {"dataset": "census", "job": "test", "unit": PrivacyUnit.RECORD, "events": ({"mechanism": "other"},)}
    settings |= {"neighboring_relation": "add_or_remove_one"}
    return Charge(epsilon=epsilon, delta=delta, **(settings | more))


def basic_limit(epsilon: float, delta: float = 1e-6) -> Limit:
    """A limit under which all runs compose by their epsilon and delta."""
    return Limit(epsilon=epsilon, delta=delta, basic_epsilon=epsilon, basic_delta=delta)


def new_ledger(folder: pathlib.Path, limit: Limit, dataset: str = "census") -> Ledger:
    """A ledger with a limit at `folder`/ledger.sqlite."""
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.set_limit(dataset, limit)
    return ledger


def kinds(ledger: Ledger) -> list[str]:
    """Returns what its entries are, in order."""
    return [entry.kind for entry in ledger.entries()]


class Place:
    """A folder with a small lake, a ledger with a limit, and a job that charges it."""

    def __init__(self, folder: pathlib.Path, *, epsilon: float = 10.0, unit: str = "record", **settings: Any):
        self.folder = folder
        points, clients = lake.mixture(60), np.arange(60) % 12
        tables = [lake.table_of(points[part], clients[part]) for part in (slice(0, 30), slice(30, 60))]
        self.lake = lake.write_files(folder / "lake", tables)
        self.server = lake.write_server(folder / "server.parquet")
        self.ledger = new_ledger(folder, Limit(epsilon=epsilon, delta=1e-5))
        job = lake.packed(2) | {"data__name": "census", "ledger": str(folder / "ledger.sqlite")}
        self.job = lake.job(self.lake, self.server, unit, **(job | settings))

    def words(self, output: str, run_id: str, **settings: Any) -> list[str]:
        """The words of `dapple fit`, with whole settings of the job replaced."""
        config = self.folder / f"{output.replace('/', '_')}.yaml"
        config.write_text(yaml.safe_dump(self.job | settings))
        return ["fit", "--config", str(config), "--output", self.path(output), "--run_id", run_id]

    def path(self, name: str) -> str:
        """A path in the folder, or one that is spelled out."""
        return name if "/" in name else str(self.folder / name)

    def fit(self, output: str = "out", run_id: str = "run", **settings: Any) -> lake.Outcome:
        """Runs the command in this process."""
        return lake.run_command(*self.words(output, run_id, **settings))

    def spent(self) -> int:
        """Number of runs that are reserved or committed."""
        return len(charges_of(self.ledger.entries(), "census"))
