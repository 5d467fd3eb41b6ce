"""Lists every figure of the papers with its command and the seconds that it took last, or draws some.

Seconds are those that a result's head names, on the machine that stands there, or a dash. At toy size a figure runs on
next to nothing, to see that it runs.

    python -m benchmarks.papers
    python -m benchmarks.papers --draw r-dpcfl-noise
    python -m benchmarks.papers --draw feddp-record --toy
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import machine, measurement
from benchmarks.papers.figures import FIGURES, RESULTS, draw, seconds


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draw", nargs="+", choices=FIGURES, metavar="NAME", help="some figures, or list them")
    parser.add_argument("--toy", action="store_true", help="draw next to nothing, into a folder that is thrown away")
    parser.add_argument("--data", type=Path, help="folder of the files that benchmarks.data lists")
    parser.add_argument("--work", type=Path, help="folder in which an interrupted run goes on")
    options = parser.parse_args()
    for name in options.draw or ():
        with tempfile.TemporaryDirectory() as folder:
            machine.begin()
            draw(
                name,
                Path(folder) if options.toy else RESULTS,
                options.work or Path(folder),
                options.data,
                toy=options.toy,
            )
    if not options.draw:
        measurement.show(table({name: took for name in FIGURES if (took := seconds(name)) is not None}), options.out)


def table(times: Mapping[str, float]) -> list[str]:
    """Markdown lines: a figure each, and the sum of the seconds that are known."""
    lines = ["| name | paper | shows | command | result | seconds |", "| --- " * 6 + "|"]
    for name, each in FIGURES.items():
        cells = [name, each.paper, each.shows, f"`{each.command}`", each.result or "-", str(times.get(name, "-"))]
        lines.append(f"| {' | '.join(cells)} |")
    total = sum(times.values())
    timed = f"{len(times)} with a known time, {total:.0f} s ({total / 60:.0f} minutes) together."
    return [*lines, "", f"{len(FIGURES)} commands; {timed}"]


if __name__ == "__main__":
    main()
