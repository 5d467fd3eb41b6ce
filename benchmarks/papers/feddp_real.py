"""Figures of FedDP-KMeans on the census and on Stack Overflow, for those who have the data.

- acs-federal, acs-not-for-profit, acs-self-employed: Figures 1 right, 3 and 4, record level, 51 clients.
- questions-github-pdf, -facebook-hibernate, -plotting-cookies, -machine-learning-math: Figures 2 right, 7, 8, 9, client
  level.

The folder of `--data` holds what `census_rows.py` or `question_rows.py` says. Nothing here reads the network. With
`--synthetic` the files are drawn instead, to see that the command runs. Lakes stay in `--work`; `feddp_shares --lakes`
draws Tables 2 to 5 from them.

    python -m benchmarks.papers.feddp_real --figures acs-federal --data DATA --work WORK --out OUT
"""

import argparse
import logging
from pathlib import Path
from typing import Any

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import census_rows, question_rows
from benchmarks.papers.feddp_kmeans import comparison, job

CENSUS = {f"acs-{name}": name for name in census_rows.CLASSES}
QUESTIONS = {f"questions-{name}": name for name in question_rows.PAIRS}


def main() -> None:
    parser = measurement.script(__doc__, "folder for tables")
    parser.add_argument("--figures", nargs="+", choices=[*CENSUS, *QUESTIONS], required=True)
    parser.add_argument("--data", type=Path, help="folder of the files")
    parser.add_argument("--work", type=Path, required=True, help="folder for lakes and sweeps")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--client_rows", type=int, default=50, help="bound on the questions of a user")
    parser.add_argument("--synthetic", action="store_true", help="draw the files into --work first")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if arguments.out is None or (arguments.data is None and not arguments.synthetic):
        parser.error("--out and --data must be given; see the head of this file for what the folder holds")
    for name in arguments.figures:
        lines = figure(name, arguments)
        measurement.show(lines, arguments.out / f"{name}.md")


def figure(name: str, arguments: argparse.Namespace) -> list[str]:
    """Markdown lines of one figure; its lake is made if it is not there."""
    lake, data = arguments.work / f"lake-{name}", arguments.data
    if arguments.synthetic:
        data = arguments.work / "synthetic"
        (census_rows if name in CENSUS else question_rows).write_synthetic(data)
    lines = heading(f"FedDP-KMeans: {name}" + " on drawn files, to see that it runs" * arguments.synthetic)
    if not lake.exists():
        lines += [_size(name, data, lake), ""]
    return lines + comparison(arguments.work, name, settings(name, lake, arguments), arguments.seeds)


def _size(name: str, data: Path, lake: Path) -> str:
    """Writes the lake; says how large it is beside the paper's."""
    if name in CENSUS:
        found = census_rows.write_lake(data, CENSUS[name], lake)
        return f"{found:,} client rows; the paper has {census_rows.CLASSES[CENSUS[name]][1]:,}."
    found = question_rows.write_lake(data, QUESTIONS[name], lake)
    return f"{found:,} clients; the paper has {question_rows.PAIRS[QUESTIONS[name]][1]:,}."


def settings(name: str, lake: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Settings that all methods share."""
    if name in CENSUS:
        return job(lake, "record")
    found = job(lake, "client")
    found["clipping"]["client_rows"] = arguments.client_rows
    return found


if __name__ == "__main__":
    main()
