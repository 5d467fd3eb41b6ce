"""Parties of masked aggregation by jobs of their own: clients, an aggregator, and the folders between them."""

import contextlib
import pathlib
import shutil
from typing import Generic, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.transforms.masked.exchange_files import MESSAGES, Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_part
from dapple_dp.transforms.privacy.key_files import read_key
from tests.scenes import lake

_Parties = TypeVar("_Parties", bound="ExchangingParties")


class ExchangingParties:
    """Jobs that are in a folder: `JOB-0.yaml` and so on of the clients, `aggregate.yaml` of the aggregator.

    Attributes:
      folder: of all jobs and rows.
      exchange: where messages go.
      released: where releases go.
    """

    job_file = "job"

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.exchange, self.released = str(folder / "exchange"), str(folder / "released")

    def clients_job(self, name: str, client: int | str, *flags: str, released: str | None = None) -> lake.Outcome:
        """A job of the clients' role on the settings of a client."""
        config = str(self.folder / f"{self.job_file}-{client}.yaml")
        places = ("--exchange", self.exchange, "--released", released or self.released)
        return lake.run_command(name, "--config", config, *places, *flags)

    def aggregate(self) -> lake.Outcome:
        """One step of the aggregator."""
        return lake.run_command(
            "aggregate", "--config", str(self.folder / "aggregate.yaml"), "--exchange", self.exchange
        )

    def unmask(self, client: int | str = 0, released: str | None = None) -> lake.Outcome:
        """Opens the run, or the next round; of a new run the aggregator then says its key."""
        outcome = self.clients_job("unmask", client, "--run_id", "run", released=released)
        if outcome.code == 0 and not pathlib.Path(self.exchange, "aggregator.json").exists():
            assert self.aggregate().code == 0
        return outcome

    def read(self, index: int, path: str) -> MaskedMessages:
        """Messages of a file, as the aggregator reads them."""
        exchange = Exchange(self.exchange)
        return exchange.read_messages(index, path, private_key(lake.KEY, exchange.plan().nonce, MESSAGES))

    def words(self, n_rounds: int) -> NDArray[np.int64]:
        """All words of messages and sums that the aggregator has seen."""
        exchange, rounds = Exchange(self.exchange), range(n_rounds)
        found = [self.read(index, path).values.ravel() for index in rounds for path in exchange.message_files(index)]
        found += [release.values.ravel() for index in rounds for release in exchange.read_sum(index)[0].releases]
        return np.concatenate(found)


def enroll(job: pathlib.Path, *names: str) -> None:
    """Makes the states of parties by the job of a client; `""` is the unmasking party, and who is enrolled stays so."""
    masked = yaml.safe_load(job.read_text())["masked"]
    for name in names:
        with contextlib.suppress(ConfigError):
            PartyState.enroll(masked["state_uri"], masked["secret_uri"], name)
        PartyState.of(masked["state_uri"], masked["secret_uri"], name)


def opened(parties: _Parties) -> _Parties:
    """Parties whose run is open."""
    assert parties.unmask().code == 0
    return parties


class Rewound(Generic[_Parties]):
    """Parties whose run is played once, for tests that begin within it.

    Jobs, plans and manifests hold whole paths, so each test gets a copy in the same folder.

    Args:
      parties: whose run it is.
      kept: empty folder for copies.
    """

    def __init__(self, parties: _Parties, kept: pathlib.Path) -> None:
        self._parties, self._kept = parties, kept
        self._places = parties.exchange, parties.released

    def keep(self, moment: str) -> None:
        """Keeps everything as it is now."""
        shutil.copytree(self._parties.folder, self._kept / moment, symlinks=True)

    def at(self, moment: str) -> _Parties:
        """The parties as they were then, whatever a test has done since."""
        shutil.rmtree(self._parties.folder)
        shutil.copytree(self._kept / moment, self._parties.folder, symlinks=True)
        self._parties.exchange, self._parties.released = self._places
        return self._parties


def with_identities(parties: _Parties, names: list[str]) -> _Parties:
    """Parties whose files are signed: job 0, 1, ... is that of a name, `JOB-collector.yaml` opens the run."""
    jobs: dict[str, pathlib.Path] = {
        name: parties.folder / f"{parties.job_file}-{index}.yaml" for index, name in enumerate(names)
    }
    jobs |= {COLLECTOR: parties.folder / f"{parties.job_file}-{COLLECTOR}.yaml"}
    jobs |= {AGGREGATOR: parties.folder / "aggregate.yaml"}
    jobs[COLLECTOR].write_text(jobs[names[0]].read_text())
    for index, name in enumerate(names):
        enroll(parties.folder / f"{parties.job_file}-{index}.yaml", name, "")
    keys = {name: make_identity(parties.folder, name) for name in jobs}
    for name, path in jobs.items():
        job = yaml.safe_load(path.read_text())
        section = job if name == AGGREGATOR else job["masked"]
        section |= {"parties": keys, "identity_uri": str(parties.folder / f"{name}.identity")}
        path.write_text(yaml.safe_dump(job))
    return parties


def make_identity(folder: pathlib.Path, name: str) -> str:
    """The public key of a new party, 64 hex digits, whose private key is in `NAME.identity`."""
    outcome = lake.run_command("party", "new", name, "--output", str(folder / f"{name}.identity"))
    assert outcome.code == 0, outcome.err
    return public_part(read_key(str(folder / f"{name}.identity"))).hex()
