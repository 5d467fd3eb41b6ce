"""Measures how often the statements of pages on sizes, centers, values and clusters are true.

Each kind of job runs many times, on rows of its own each time. Most kinds run rounds, statistics, noise and server
steps of the job on arrays in this process; masked fits and profiles run as users run them. Truths are computed from the
rows (of clients: from their exact bounded sums). An interval is two noise stddevs either way, as pages draw it, so
it should hold 95.4% of the truths. Clusters that a page calls maybe empty have none.

    python -m benchmarks.coverage --kept coverage.jsonl --out benchmarks/results/coverage.md
    python -m benchmarks.coverage --part pages --kept pages.jsonl --out benchmarks/results/coverage_pages.md

Runs that are finished are kept, so a command that was stopped goes on where it was.
"""

import collections
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import scipy.stats

from benchmarks import coverage_clusters as clusters
from benchmarks import coverage_kinds as kinds
from benchmarks import machine, measurement
from benchmarks.coverage_kinds import Found
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.transforms.kmeans.protocols import PROTOCOLS, protocol_of

RUNS = 200
MORE: dict[str, dict[str, Any]] = {
    **{algorithm: {} for algorithm in PROTOCOLS},
    Algorithm.FEDDP_KMEANS: kinds.SERVER,
}
"""Settings of algorithms besides the domain, where they have one."""
JOBS: dict[str, Callable[[str, int], Found]] = {
    **{str(name): partial(kinds.of_fit, str(name), more) for name, more in MORE.items()},
    str(Algorithm.CENTRAL_TREE): kinds.of_trees,
    str(Algorithm.K_PROTOTYPES): kinds.of_prototypes,
    str(Algorithm.SPHERICAL): kinds.of_directions,
    "windows": lambda unit, seed: kinds.of_windows(seed, unit=unit),
    "topics": partial(kinds.of_directions, topics=True),
}
"""Every algorithm of `fit`, and `topics`: a run by privacy unit and seed. `auto` becomes one of them."""
FITS: dict[str, Callable[[int], Found]] = {
    f"{unit}, {name}": partial(run, str(unit)) for name, run in JOBS.items() for unit in PrivacyUnit
}
PAGES: dict[str, Callable[[int], Found]] = {
    "recurring": kinds.of_nights,
    "masked, noise by both": partial(kinds.of_masks, "both"),
    "masked, noise by clients": partial(kinds.of_masks, "clients"),
    "profile": kinds.of_profile,
    "names of clusters": clusters.of_names,
    **{f"no clusters, {name}": partial(clusters.of_one_cloud, name) for name in clusters.CLOUDS},
    "starts": clusters.of_starts,
}
PARTS = {"fits": FITS, "pages": PAGES}
KINDS = FITS | PAGES
UNKNOWN = {f"{unit}, {name}" for name in PROTOCOLS if protocol_of(name).unknown_noise for unit in PrivacyUnit}
"""Kinds of jobs that state no interval of a center, and name no feature, since its noise is unknown."""
LIMITS = {
    "sizes": (0.93, 0.97),
    "centers": (0.93, 0.97),
    "remembered": (0.93, 0.97),
    "values": (0.93, 0.97),
    "false features": (0.0, 0.05),
    "false names": (0.0, 0.05),
    "runs with a false name": (0.0, 0.05),
    "said that there are none": (0.9, 1.0),
    "clusters denied": (0.0, 0.05),
    "failed starts reported": (0.9, 1.0),
}
"""Share that the truths, or the untruths, of each claim must have."""


def run(kept: Path, names: Sequence[str], runs: int, minutes: float) -> None:
    """Runs that are not there yet, all kinds in turn, until they are done or time is over."""
    done = {(each["kind"], each["seed"]) for each in read(kept)}
    ends = time.monotonic() + 60.0 * minutes
    for seed in range(runs):
        for name in names:
            if (name, seed) in done:
                continue
            if time.monotonic() > ends:
                return
            start = time.process_time()
            found = KINDS[name](seed)
            line = {"kind": name, "seed": seed, "seconds": time.process_time() - start, "found": found}
            with kept.open("a") as file:
                file.write(json.dumps(line) + "\n")


def read(kept: Path) -> list[dict[str, object]]:
    """Finished runs."""
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def table(runs: list[dict[str, object]]) -> list[str]:
    """A row per kind and claim, with the binomial interval of its share, as if outcomes of a run were independent."""
    counts: dict[tuple[str, str], list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for each in runs:
        for claim, (hits, made) in each["found"].items():  # type: ignore[attr-defined]
            tally = counts[str(each["kind"]), claim]
            tally[0], tally[1], tally[2] = tally[0] + hits, tally[1] + made, tally[2] + 1
    lines = ["| kind | claim | runs | of | share | 95% interval | asked | kept |", "| --- " * 8 + "|"]
    for name in KINDS:
        for (kind, claim), (hits, made, n_runs) in counts.items():
            if kind == name:
                lines.append(f"| {kind} | {claim} | {n_runs} | {made:,} | {_row(claim, hits, made)} |")
    return lines


def _row(claim: str, hits: int, made: int) -> str:
    """Share, interval, what is asked for, and whether it is kept."""
    low, high = LIMITS[claim]
    asked = (
        f"at most {high:.0%}" if low == 0.0 else f"at least {low:.0%}" if high == 1.0 else f"{low:.0%} to {high:.0%}"
    )
    if not made:
        return f"unknown, none stated | | {asked} | yes"
    share, found = hits / made, scipy.stats.binomtest(hits, made).proportion_ci(0.95)
    kept = "yes" if low <= share <= high else "**no**"
    return f"{share:.1%} | {found.low:.1%} to {found.high:.1%} | {asked} | {kept}"


def main() -> None:
    """Runs what is missing, and writes the table of all runs."""
    parser = measurement.script(__doc__)
    parser.add_argument("--kept", type=Path, default=Path("coverage.jsonl"), help="file of finished runs")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each kind")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop")
    parser.add_argument("--part", choices=PARTS, default="fits", help="every algorithm and unit, or other pages")
    parser.add_argument("--only", default="", help="kinds that start so")
    given = parser.parse_args()
    run(given.kept, [name for name in PARTS[given.part] if name.startswith(given.only)], given.runs, given.minutes)
    runs = read(given.kept)
    minutes = sum(float(each["seconds"]) for each in runs) / 60.0  # type: ignore[arg-type]
    lines = [*machine.heading("Coverage"), f"{len(runs):,} runs, {minutes:.1f} CPU minutes.", "", *table(runs), ""]
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
