"""Federations that run themselves: `dapple party`, one command per party, each a user of the system of its own.

Nobody types a line per round. Three clients, an aggregator and a collector share a folder, or a local server that
speaks Amazon's protocol (moto). In some runs a client is killed and started again, comes late, never comes, or sends
garbage. The last runs have many clients. What is released is compared, byte by byte, with `fit` under masks on the rows
of those present, which draws the noise that the aggregator drew.

    python -m benchmarks.federation --clients 50 --out benchmarks/results/federation.md
"""

import collections
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks import measurement
from benchmarks.machine import heading
from schemas.masked.config import AGGREGATOR
from tests.scenes import object_store
from tests.scenes import separate_parties as scene

TABLE = (
    "| run | masks, noise by | place | parties | exit codes | sums went without | as `fit` of | files | KiB | requests "
    "| CPU s | minutes |",
    "| --- " * 12 + "|",
)
PAIRWISE = {"scheme": "pairwise", "noise_by": "clients"}


class Run(NamedTuple):
    """A run: its name, who comes when, whose rows are in its sums, how long a leg is open, and settings of masks."""

    name: str
    play: Callable[[scene.SeparateParties], None]
    present: Sequence[str] | None = scene.HOSPITALS
    late_minutes: float = 60.0
    masked: dict[str, Any] | None = None


THREE = (
    Run("all come", scene.everybody),
    Run("one is killed, and started again", scene.killed),
    Run("one is late", scene.late),
    Run("one is too late for the first round", scene.too_late, None, 0.0),
    Run("one never comes", scene.never, scene.HOSPITALS[:2], 0.5),
    Run("one sends garbage", scene.garbage, scene.HOSPITALS[:2], 0.5),
    Run("all come", scene.everybody, None, masked=PAIRWISE),
    Run("one is killed, and started again", scene.killed, None, masked=PAIRWISE),
)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--clients", type=int, nargs="*", default=[50], help="of runs with many")
    parser.add_argument("--places", nargs="*", default=["folder", "store"], help="of runs with three")
    schemes = ["shared_secret", "pairwise"]
    parser.add_argument("--schemes", nargs="*", default=schemes, choices=schemes, help="of the masks")
    arguments = parser.parse_args()
    lines = [*heading("Federations that run themselves"), *TABLE]
    wanted = [(place, run, scene.HOSPITALS) for place in arguments.places for run in THREE]
    for n_clients in arguments.clients:
        many = tuple(f"client-{number:02d}" for number in range(n_clients))
        fewest = {"threshold": n_clients // 2}
        wanted.append(("folder", Run("many come", scene.everybody, many, masked=fewest), many))
        wanted.append(("folder", Run("many come", scene.everybody, None, masked=PAIRWISE | fewest), many))
    for place, run, clients in wanted:
        if scheme_of(run) not in arguments.schemes:
            continue
        lines.append(told(run, place, clients))
        print(lines[-1], flush=True)
    measurement.show([*lines, "", NOTE], arguments.out)


NOTE = (
    "Parties of one run end with the code that their number stands before. Sums: index of the round, and the clients "
    "that it went without. `fit` has the rows of the clients named, and the noise that the aggregator drew; runs in "
    "which rounds are of different clients, or clients split the noise, are not compared. Files and KiB: exchange and "
    "releases at the end. Requests: that the store was asked, polls of 0.2 s included; with many a party polls each "
    "second. CPU: of all parties."
)


def scheme_of(run: Run) -> str:
    """How a run masks."""
    return str((run.masked or {}).get("scheme", "shared_secret"))


def told(run: Run, place: str, clients: Sequence[str]) -> str:
    """What came of a run, as a line of the table."""
    rows, poll = 12 if scheme_of(run) == "pairwise" and len(clients) < 10 else None, "0.2" if len(clients) < 10 else "1"
    flags = ("--late_minutes", str(run.late_minutes), "--wait_minutes", "60", "--poll_seconds", poll)
    with scene.open_folder() as folder, store(place) as (prefix, asked):
        parties = scene.SeparateParties(folder, clients, prefix, run.masked, sender_rows=rows, flags=flags)
        begun = time.monotonic()
        run.play(parties)
        ends = parties.ends()
        minutes = (time.monotonic() - begun) / 60.0
        n_asked, sizes = len(asked), parties.sizes()
        same = "-" if run.present is None else as_fit(parties, run.present)
        codes = collections.Counter(end.code for end in ends.values())
        absent, cpu = ends[AGGREGATOR].summary["left_out"], parties.cpu_seconds()
    noise_by = (run.masked or {}).get("noise_by", "aggregator")
    cells = [run.name, f"{scheme_of(run)}, {noise_by}", place, f"{len(clients) + 2}"]
    cells += [", ".join(f"{number} x {code}" for code, number in sorted(codes.items()))]
    cells += ["; ".join(f"{index}: {', '.join(each)}" for index, each in absent.items()) or "nobody", same]
    cells += [f"{len(sizes)}", f"{sum(sizes) / 1024:.0f}", f"{n_asked or '-'}"]
    return f"| {' | '.join(cells)} | {cpu:.0f} | {minutes:.1f} |"


def as_fit(parties: scene.SeparateParties, present: Sequence[str]) -> str:
    """Whose rows `fit` needs to release the same bytes."""
    if parties.result() != parties.alone(present):
        return "DIFFERENT"
    return "all" if len(present) == len(parties.clients) else ", ".join(present)


@contextlib.contextmanager
def store(place: str) -> Iterator[tuple[str, list[Any]]]:
    """Where exchange and releases are, empty for folders, and requests so far."""
    if place == "folder":
        yield "", []
        return
    with object_store.object_store() as throttle:
        yield f"s3://{object_store.BUCKET}", throttle.asked


if __name__ == "__main__":
    main()
