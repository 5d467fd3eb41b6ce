"""`python -m benchmarks.postgres_ledger --out FILE`: writers of one ledger on PostgreSQL whose server is killed twice.

Each writer notes a run when it has learned that it is charged. Afterwards the ledger must hold just these runs, once
each, in a chain that holds; and a file with the same entries must give the same composed epsilon.
"""

import multiprocessing
import pathlib
import random
import sys
import tempfile
import time

from benchmarks import measurement
from benchmarks.machine import heading
from pipelines.ledger.remaining import remaining
from pipelines.ledger.store import Ledger
from schemas.privacy.charge import Limit
from tests.scenes import postgres
from tests.scenes.ledgers import gaussian

_LIMIT = Limit(epsilon=50.0, delta=1e-5)


def reserve(url: str, process: int, count: int, done: str) -> None:
    """A writer."""
    ledger = Ledger(url)
    with open(done, "a", encoding="utf-8") as file:
        for number in range(count):
            run = f"run{process}-{number}"
            file.write(f"{ledger.reserve(run, gaussian(60.0 + process), {'nonce': run})}\n")
            file.flush()


def _told(folder: pathlib.Path) -> list[str]:
    return [run for path in folder.glob("done*") for run in path.read_text().split()]


def measure(processes: int, count: int, kills: int) -> list[str]:
    """Lines of the table of results."""
    server, began = postgres.started(), time.monotonic()
    away = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder, url = pathlib.Path(name), server.database()
        Ledger(url).set_limit("census", _LIMIT)
        fork = multiprocessing.get_context("spawn")
        writers = [
            fork.Process(target=reserve, args=(url, each, count, str(folder / f"done{each}")))
            for each in range(processes)
        ]
        for each in writers:
            each.start()
        for kill in range(kills):
            while len(_told(folder)) < (kill + 1) * processes * count // (kills + 1):
                if not any(each.is_alive() for each in writers):
                    raise RuntimeError("all writers have ended before the server was killed")
                time.sleep(0.05)
            time.sleep(random.random() / 10)
            stopped = time.monotonic()
            server.kill()
            server.up()
            away += time.monotonic() - stopped
        for each in writers:
            each.join()
        seconds = time.monotonic() - began
        told, entries = _told(folder), Ledger(url).entries()
        charged = [each.run for each in entries if each.kind == "reserve"]
        copy = Ledger(str(folder / "ledger.sqlite"))
        Ledger(url).copy_to(copy)
        one, other = remaining(url, "census"), remaining(copy.path, "census")
    server.remove()
    assert one is not None
    assert other is not None
    lost, double = set(told) - set(charged), len(charged) - len(set(charged))
    return [
        f"| processes x reserves, kills of the server | {processes} x {count}, {kills} |",
        f"| exit codes of the processes | {sorted({int(each.exitcode or 0) for each in writers})} |",
        f"| runs that learned that they are charged | {len(told)} |",
        f"| entries that reserve | {len(charged)} |",
        f"| confirmed and not there (lost) | {len(lost)} |",
        f"| there and never confirmed | {len(set(charged) - set(told))} |",
        f"| there twice (double) | {double} |",
        f"| composed epsilon left, PostgreSQL | {one.epsilon:.15g} |",
        f"| composed epsilon left, the copy in a file | {other.epsilon:.15g} |",
        f"| difference | {abs(one.epsilon - other.epsilon):.3g} |",
        f"| seconds, of which the server was away | {seconds:.0f}, {away:.0f} |",
    ]


def main(words: list[str]) -> None:
    """Starts the writers, kills the server, and prints what the ledger holds afterwards."""
    asked = measurement.script(__doc__)
    asked.add_argument("--processes", type=int, default=8)
    asked.add_argument("--count", type=int, default=200)
    asked.add_argument("--kills", type=int, default=2)
    given = asked.parse_args(words)
    lines = measure(given.processes, given.count, given.kills)
    head = heading("A ledger on PostgreSQL, whose server is killed")
    measurement.show([*head, "| what | found |", "| --- | --- |", *lines], given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
