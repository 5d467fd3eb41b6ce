"""What a stranger's checker says of published runs, and of forgeries of them whose digests were recomputed.

    python -m benchmarks.verify_release --out benchmarks/results/verify_release.md

Each folder is checked in a process of its own, in which nothing of Dapple can be imported. Exit code 1 if a run does
not pass, or a forgery is judged otherwise than expected.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from tests.scenes import published_runs as published
from tests.scenes.published_runs import FORGERIES

_HOLDS, _REFUSED = "holds: ", "REFUSED: "


def _checked(folder: Path, key: str | None, cwd: Path) -> tuple[int, list[str], float]:
    """Exit code, sentences and seconds of one call."""
    start = time.perf_counter()
    done = published.check(str(folder), *(() if key is None else ("--key", key)), cwd=cwd)
    said = published.sections(done.stdout).get(str(folder), [done.stderr])
    return done.returncode, said, time.perf_counter() - start


def passing(runs: dict[str, Path], cwd: Path) -> tuple[list[str], bool]:
    """Rows of the runs as they were published; whether all pass."""
    rows, good = ["| run | exit code | sentences that hold | sentences of what nobody can know | s |"], True
    rows.append("| --- | --- | --- | --- | --- |")
    for name, folder in runs.items():
        code, said, seconds = _checked(folder, None, cwd)
        n_holds = sum(each.startswith(_HOLDS) for each in said)
        rows.append(f"| {name} | {code} | {n_holds} | {len(said) - n_holds} | {seconds:.1f} |")
        good &= code == 0
    return rows, good


def refused(runs: dict[str, Path], folder: Path, cwd: Path) -> tuple[list[str], bool]:
    """Rows of the forgeries; whether all are judged as expected."""
    rows, good = (
        ["| altered | run | digests recomputed | exit code | what it said |", "| --- | --- | --- | --- | --- |"],
        True,
    )
    for at, (name, forgery) in enumerate(FORGERIES.items()):
        place, key = published.forge(runs, name, folder / str(at))
        code, said, _ = _checked(place, key, cwd)
        sentence = next((each.removeprefix(_REFUSED) for each in said if each.startswith(_REFUSED)), "passes")
        anew = "yes" if forgery.reseals else "no"
        signed = ", signed before" if forgery.signs else ""
        rows.append(f"| {name} | {forgery.run}{signed} | {anew} | {code} | {sentence} |")
        good &= (
            (code, sentence) == (0, "passes") if forgery.caught is None else code == 5 and forgery.caught in sentence
        )
    return rows, good


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description="What a stranger's checker says of runs and of forgeries.")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        runs = published.publish(folder / "runs")
        (whole, passes), (altered, told) = (
            passing(runs, folder / "empty"),
            refused(runs, folder / "forged", folder / "empty"),
        )
    lines = [*machine.heading("Checked by a stranger"), "## Runs as they were published", "", *whole, ""]
    lines += ["## Altered runs", "", *altered, "", "Exit code 0 stands where nothing in the files can show:", ""]
    lines += ["- Anyone who recomputes all digests may write another page. Only a signature, or a ledger's entry, can."]
    lines += ["- Centers of `feddp_kmeans` are blended with server data, which are not published. So the checker sees"]
    lines += ["  whether they are on the lattice, and says that it does not see which point of it they should be."]
    lines += [
        "- Bounds of clients of `feddp_kmeans` follow from server data, too. So rows that are called clients, with"
    ]
    lines += [
        "  all digests recomputed, pass; the checker names the releases whose lattice units it cannot compute.",
        "",
    ]
    machine.write(lines, out)
    return 0 if passes and told else 1


if __name__ == "__main__":
    raise SystemExit(main())
