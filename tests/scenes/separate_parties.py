"""Parties of masked aggregation that are users of the system: `dapple masked party`, started once for each.

Each has a folder that nobody else can read. The exchange is a folder that a group of all parties shares, or is on a
store; the releases are of another group, without the aggregator. A user without the rights of root gets
parties of one user. Processes draw from the system, as users have it; what the aggregator drew is what its sum has
beyond the messages that it can open.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import yaml
from apache_beam.io.filesystems import FileSystems
from numpy.typing import NDArray

from dapple_dp.pipelines.command import main as command
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR
from dapple_dp.transforms.core import noise
from dapple_dp.transforms.files.file_bytes import read_bytes, write_once
from dapple_dp.transforms.masked.exchange_files import MESSAGES, Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.masked.signing import signing_parties
from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_part
from dapple_dp.transforms.privacy.key_files import create_key, read_key
from tests.scenes import crashes, lake

FIRST_USER, ALL, CLIENTS = 61_000, 62_000, 62_001
"""Numbers of users, and of both groups."""
HOSPITALS = ("north", "east", "south")
SECRET = bytes(range(51, 83))
LLOYD = {
    "experimental": True,
    "algorithm": "dp_lloyd",
    "dp_lloyd": {"domain": [-2.0, 7.0], "init": "sphere_packing", "steps": 2},
    "server_data": "none",
    "n_clusters": 3,
    "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
    "trust": "masked",
}
QUICK = ("--poll_seconds", "0.2", "--wait_minutes", "8")
SENDING = crashes.Point("dapple_dp.transforms.masked.exchange_files:Exchange.send", call=2)
"""A client has formed its message of the second round, and nobody has it."""


class End(NamedTuple):
    """End of a party: exit code, what it printed last, and the lines of its log."""

    code: int
    summary: dict[str, Any]
    log: str


@contextlib.contextmanager
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that other users can pass through."""
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class SeparateParties:
    """Clients, an aggregator and a collector.

    Args:
      folder: of all that they have.
      clients: their names.
      store: where exchange and releases are; empty for folders.
      masked: settings of masks.
      n_rows: of each client.
      sender_rows: rows of a sender; None for one sender per client.
      flags: of all commands.
      settings: of the job.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        clients: Sequence[str] = HOSPITALS,
        store: str = "",
        masked: dict[str, Any] | None = None,
        n_rows: int = 120,
        sender_rows: int | None = None,
        flags: Sequence[str] = (),
        **settings: Any,
    ):
        self.folder, self.clients, self.flags = folder, list(clients), [*QUICK, *flags]
        self.names = [*clients, AGGREGATOR, COLLECTOR]
        self.job = LLOYD | settings
        self.masked = {"scheme": "shared_secret", "threshold": 2} | (masked or {})
        self.exchange, self.released = (f"{store or folder}/{name}" for name in ("exchange", "released"))
        self._processes: dict[str, Any] = {}
        beam_options([])
        for group, name in () if store else ((ALL, "exchange"), (CLIENTS, "released")):
            (folder / name).mkdir()
            self._give(folder / name, 0, group, 0o2770)
        keys = {}
        for name in self.names:
            (folder / name).mkdir(mode=0o700)
            create_key(str(folder / name / "identity"))
            keys[name] = public_part(read_key(str(folder / name / "identity"))).hex()
        for number, name in enumerate(self.names):
            self._write_party(name, number, keys, n_rows, sender_rows)
            for path in (folder / name, *(folder / name).rglob("*")):
                self._give(path, FIRST_USER + number, FIRST_USER + number)

    def _give(self, path: pathlib.Path, user: int, group: int, mode: int | None = None) -> None:
        if os.geteuid() == 0:
            os.chown(path, user, group)
        if mode is not None:
            path.chmod(mode)

    def _write_party(self, name: str, number: int, keys: dict[str, str], n_rows: int, sender_rows: int | None) -> None:
        """Rows, secret, state and job of a party."""
        own = self.folder / name
        (own / "cache").mkdir()
        signed = {"parties": keys, "identity_uri": str(own / "identity")}
        if name == AGGREGATOR:
            about = {"key_uri": lake.write_key(own / "noise.key"), "threshold": self.masked["threshold"]}
            (own / "job.yaml").write_text(yaml.safe_dump(about | signed))
            return
        points = lake.mixture(n_rows, seed=number)
        n_own = 0 if name == COLLECTOR else n_rows
        clients = np.arange(n_own) // (sender_rows or n_rows) + 1000 * number
        # The collector has columns and no rows.
        tables = [lake.table_of(points[:n_own], clients)]
        data = {"path": lake.write_files(own / "rows", tables, sender_rows), "features": "x"}
        data |= {"client_id": "client_id"} if self.job["privacy"]["unit"] == "client" else {}
        # With pairwise masks each client has a secret of its own.
        first = number if self.masked["scheme"] == "pairwise" else 0
        secret = lake.write_key(own / "secret", bytes((each + first) % 256 for each in SECRET))
        masked = self.masked | signed | {"secret_uri": secret, "state_uri": str(own / "state")}
        (own / "job.yaml").write_text(yaml.safe_dump(self.job | {"data": data, "masked": masked}))
        PartyState.enroll(masked["state_uri"], secret, "" if name == COLLECTOR else name)

    def words(self, name: str, *flags: str) -> list[str]:
        """The one command of a party."""
        role = {AGGREGATOR: AGGREGATOR, COLLECTOR: "clients"}.get(name, "client")
        places = [] if role == AGGREGATOR else ["--released", self.released]
        places += ["--client", name] if role == "client" else []
        words = ["masked", "party", "--role", role, "--config", str(self.folder / name / "job.yaml")]
        return [*words, "--exchange", self.exchange, *places, *self.flags, *flags]

    def start(self, *names: str, flags: Sequence[str] = (), point: crashes.Point | None = None) -> None:
        """Starts parties, once or again; with `point` they die there."""
        for name in names:
            self.start_other(name, run_command, self.words(name, *flags), point)

    def start_other(self, name: str, function: Callable[..., None], *args: Any) -> None:
        """Starts something else in the place of a party, with its rights."""
        place = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
        who = (self.names.index(name) + FIRST_USER, [ALL] if name == AGGREGATOR else [ALL, CLIENTS])
        own = str(self.folder / name)
        self._processes[name] = crashes._CONTEXT.Process(target=as_user, args=(who, own, place, function, *args))
        self._processes[name].start()

    def wait_for(self, name: str, line: str, seconds: float = 600.0) -> None:
        """Waits until a party has said something."""
        end = time.monotonic() + seconds
        while line not in self.log(name):
            assert time.monotonic() < end, (name, line, self.log(name))
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """Ends a party as a power cut would."""
        os.kill(self._processes[name].pid, signal.SIGKILL)
        self._processes[name].join(60)

    def log(self, name: str) -> str:
        """All that a party has said, of all times that it was started."""
        path = self.folder / name / "log"
        return path.read_text() if path.exists() else ""

    def exit_code(self, name: str, seconds: float = 600.0) -> int | None:
        """Returns how the process of a party ended; None if it did not."""
        self._processes[name].join(seconds)
        return self._processes[name].exitcode

    def end(self, name: str, seconds: float = 3600.0) -> End:
        """Waits for the end of a party."""
        code = self.exit_code(name, seconds)
        if code is None:
            self.kill(name)
            raise AssertionError(f"{name} must end, got none: {self.log(name)}")
        out = self.folder / name / "out"
        lines = out.read_text().splitlines() if out.exists() else []
        return End(code, json.loads(lines[-1]) if lines else {}, self.log(name))

    def ends(self) -> dict[str, End]:
        """The ends of all that were started."""
        return {name: self.end(name) for name in self._processes}

    def result(self) -> dict[str, bytes]:
        """Returns what the clients have released."""
        return {name: read_bytes(f"{self.released}/result/{name}") for name in lake.RELEASED_FILES}

    def sizes(self) -> list[int]:
        """Bytes of each file exchanged between the parties."""
        patterns = [f"{place}/**" for place in (self.exchange, self.released)]
        return [each.size_in_bytes for found in FileSystems.match(patterns) for each in found.metadata_list]

    def cpu_seconds(self) -> float:
        """CPU seconds of all parties that have ended on their own."""
        return sum(float(path.read_text()) for path in self.folder.glob("*/cpu"))

    def as_aggregator(self) -> tuple[Exchange, bytes]:
        """The exchange as the aggregator reads it, and what opens messages."""
        job = yaml.safe_load((self.folder / AGGREGATOR / "job.yaml").read_text())
        exchange = Exchange(self.exchange, signing_parties(job["parties"], job["identity_uri"]))
        return exchange, private_key(read_key(job["key_uri"]), exchange.plan().nonce, MESSAGES)

    def drawn(self) -> dict[str, NDArray[np.int64]]:
        """The noise of the aggregator, by path of the round: what a sum has beyond the messages that are in it."""
        exchange, private = self.as_aggregator()
        found = {}
        for index, plan in enumerate(exchange.plan().rounds):
            masked, _ = exchange.read_sum(index)
            left = np.concatenate([release.values.ravel() for release in masked.releases])
            for path in exchange.sound_messages(index, private):
                for sender, values in zip(*exchange.read_messages(index, path, private)[::2], strict=True):
                    left -= values * (sender in masked.senders)
            found[plan.path] = left
        return found

    def alone(self, clients: Sequence[str]) -> dict[str, bytes]:
        """Releases of a masked `fit` of the rows of some clients, under the noise that the aggregator drew."""
        place, draws = pathlib.Path(tempfile.mkdtemp(dir=self.folder)), self.drawn()
        for name in clients:
            for file in (self.folder / name / "rows").iterdir():
                (place / "rows").mkdir(exist_ok=True)
                shutil.copy(file, place / "rows" / f"{name}-{file.name}")
        job = yaml.safe_load((self.folder / clients[0] / "job.yaml").read_text())
        job["data"]["path"], job["masked"] = str(place / "rows"), self.masked

        def draw(_key: bytes, plan: Any, exact_sum: NDArray[np.int64]) -> Any:
            return noise.releases_of(plan, exact_sum + draws[plan.path])

        with mock.patch.object(noise, "draw_release", draw):
            outcome = lake.run_job(job, place)
        assert outcome.code == 0, outcome.err
        return lake.released(place / "out")


def as_user(
    who: tuple[int, list[int]] | None, own: str, place: dict[str, str], function: Callable[..., None], *args: Any
):
    """Gives up all rights but those of a user, if one is given, and calls a function in the user's folder."""
    if who is not None and os.geteuid() == 0:
        user, groups = who
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
    os.umask(0o007)
    os.chdir(own)
    os.environ.update(place | {"XDG_CACHE_HOME": f"{own}/cache", "HOME": own})
    beam_options([])
    function(*args)


def run_command(words: list[str], point: crashes.Point | None) -> None:
    """A command that ends without waiting for threads of the runner."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open("out", "a"))))
        stack.enter_context(contextlib.redirect_stderr(stack.enter_context(open("log", "a", buffering=1))))
        stack.enter_context(crashes._dying(point))
        code = command.main(words)
    pathlib.Path("cpu").write_text(str(time.process_time()))
    os._exit(code)


def send_garbage(name: str, exchange: str, released: str) -> None:
    """Returns what a client does that leaves noise in the place of its messages, as soon as a round is open."""
    sent, end = set(), time.monotonic() + 600.0
    while time.monotonic() < end and not FileSystems.exists(f"{released}/result/run.json"):
        (found,) = FileSystems.match([f"{exchange}/*/broadcast.json"])
        for place in {each.path.rpartition("/")[0] for each in found.metadata_list} - sent:
            write_once(f"{place}/messages/{name}.sealed", os.urandom(700))
            sent.add(place)
        time.sleep(0.1)


# --- How the parties of a run come: the last client is the one to whom something happens


def everybody(parties: SeparateParties) -> None:
    """All come at once."""
    parties.start(*parties.names)


def killed(parties: SeparateParties) -> None:
    """A client is killed in the second round, and started again."""
    *others, last = parties.clients
    parties.start(*others, AGGREGATOR, COLLECTOR)
    parties.start(last, point=SENDING)
    assert parties.exit_code(last) == -signal.SIGKILL
    parties.start(last)


def late(parties: SeparateParties) -> None:
    """A client comes when all others have sent."""
    *others, last = parties.clients
    parties.start(*others, AGGREGATOR, COLLECTOR)
    for name in others:
        parties.wait_for(name, "sent: round 0")
    parties.start(last)


def too_late(parties: SeparateParties) -> None:
    """A client comes when the first round is closed."""
    *others, last = parties.clients
    parties.start(*others, AGGREGATOR, COLLECTOR)
    parties.wait_for(AGGREGATOR, "closed: round 0")
    parties.start(last)


def never(parties: SeparateParties) -> None:
    """A client does not come."""
    parties.start(*parties.clients[:-1], AGGREGATOR, COLLECTOR)


def garbage(parties: SeparateParties) -> None:
    """A client sends garbage."""
    last = parties.clients[-1]
    parties.start_other(last, send_garbage, last, parties.exchange, parties.released)
    never(parties)
