"""Lists every figure of the papers with its command and the seconds that it took last, or draws one.

Seconds are those of `--draw` at full size, on the machine that the result names; a dash says that nobody has drawn the
figure that way. At toy size a figure runs on next to nothing, to see that it runs.

    python -m benchmarks.papers
    python -m benchmarks.papers --draw r-dpcfl-noise
    python -m benchmarks.papers --draw feddp-record --toy
"""

import json
import tempfile
import time
from pathlib import Path

from benchmarks import measurement
from benchmarks.papers.figures import FIGURES, RESULTS, draw

SECONDS = RESULTS / "papers_seconds.json"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draw", nargs="+", choices=FIGURES, metavar="NAME", help="some figures, or list them")
    parser.add_argument("--toy", action="store_true", help="draw next to nothing, into a folder that is thrown away")
    parser.add_argument("--data", type=Path, help="folder of the files that benchmarks.data lists")
    parser.add_argument("--work", type=Path, help="folder in which an interrupted run goes on")
    options = parser.parse_args()
    for name in options.draw or ():
        with tempfile.TemporaryDirectory() as folder:
            work, start = options.work or Path(folder), time.perf_counter()
            draw(name, Path(folder) if options.toy else RESULTS, work, options.data, toy=options.toy)
            seconds = time.perf_counter() - start
        print(f"{name}: {seconds:.1f} s")
        if not options.toy:
            keep(name, seconds)
    if not options.draw:
        measurement.show(table(known()), options.out)


def known() -> dict[str, dict[str, float | str]]:
    """Seconds and date of the last drawing by name."""
    found: dict[str, dict[str, float | str]] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    return found


def keep(name: str, seconds: float) -> None:
    """Writes down what a drawing took."""
    drawn = {"seconds": round(seconds, 1), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    SECONDS.write_text(json.dumps(known() | {name: drawn}, indent=1, sort_keys=True) + "\n")


def table(times: dict[str, dict[str, float | str]]) -> list[str]:
    """Markdown lines: a figure each, and the sum of the seconds that are known."""
    lines = ["| name | paper | shows | command | result | seconds | on |", "| --- " * 7 + "|"]
    for name, each in FIGURES.items():
        last = times.get(name, {})
        cells = [name, each.paper, each.shows, f"`{each.command}`", each.result or "-"]
        lines.append(f"| {' | '.join([*cells, str(last.get('seconds', '-')), str(last.get('date', '-'))])} |")
    total = sum(float(each["seconds"]) for each in times.values())
    return [*lines, "", f"{len(FIGURES)} commands; {len(times)} with a known time, {total:.0f} s together."]


if __name__ == "__main__":
    main()
