"""Plots of the tables in `benchmarks/results`, beside them: nothing is measured again.

`python -m benchmarks.papers --draw NAME` calls it after the command of a figure. By itself it draws all that are known.

    python -m benchmarks.papers.plots --out benchmarks/results
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measurement
from benchmarks.drawing import pyplot, save

Rows = list[list[str]]
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?")


class Panel(NamedTuple):
    """One plot of one table.

    Attributes:
      before: how the last line of words above the table begins.
      x: what is along the axis.
      labels: leading columns that name a curve; the columns after them are points, at the numbers in their heads.
      down: otherwise: the column of the axis, and those with a curve each.
      by: column whose values part a curve, where points go down.
      log: axes with a logarithmic scale.
    """

    before: str
    x: str
    labels: int = 1
    down: tuple[int, tuple[int, ...]] | None = None
    by: int | None = None
    log: str = ""


_DIGITS = (
    Panel("Accuracy over all clients", "epsilon", log="x"),
    Panel("Accuracy over clients of the minority", "epsilon", log="x"),
    Panel("Batch size of the first round", "b1", down=(1, (3,)), by=0, log="x"),
    Panel("Batch size of the first round", "b1", down=(1, (4,)), by=0, log="xy"),
    Panel("Batch size after the first round", "b", down=(0, (2, 5)), log="x"),
)
PLOTS: dict[str, tuple[Panel, ...]] = {
    "fastlloyd_synthetic.md": (
        Panel("## Figure 3a", "d", down=(0, (3, 4, 5)), log="xy"),
        Panel("## Figure 3b", "k", down=(1, (3, 4, 5)), log="x"),
        Panel("## Figure 4", "d", down=(0, (5,)), by=1, log="x"),
    ),
    "fastlloyd_ablation.md": (Panel("Quotient of the means", "factor", labels=2),),
    "update_noise.md": (
        Panel("## Figure 4", "b1", log="xy"),
        Panel("## Figure 3, left", "b1", log="xy"),
        Panel("## Figure 3, right", "b1", log="xy"),
    ),
    "dp_clustered_fl_rotation.md": _DIGITS,
    "dp_clustered_fl_label_flip.md": _DIGITS,
    "r_dpcfl_theorem.md": (Panel("Means of", "distance", down=(0, (2, 3, 4)), log="y"),),
}


def tables(text: str) -> list[tuple[str, Rows]]:
    """The tables of a page: the last line of words above each, and its cells without the line of dashes."""
    found: list[tuple[str, Rows]] = []
    last, inside = "", False
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not inside:
                found.append((last, [cells]))
            elif not set("".join(cells)) <= set("-: "):
                found[-1][1].append(cells)
            inside = True
            continue
        inside = False
        last = line or last
    return found


def number(cell: str) -> float:
    """The first number of a cell; NaN if there is none."""
    found = _NUMBER.search(cell)
    return float(found.group().replace(",", "")) if found else float("nan")


def curves(panel: Panel, rows: Rows) -> dict[str, list[tuple[float, float]]]:
    """Points by the name of their curve."""
    head, body = rows[0], rows[1:]
    if panel.down is None:
        at = panel.labels
        return {
            ", ".join(row[:at]): [(number(x), number(y)) for x, y in zip(head[at:], row[at:], strict=True)]
            for row in body
        }
    axis, columns = panel.down
    found: dict[str, list[tuple[float, float]]] = {}
    for row in body:
        for column in columns:
            part = "" if panel.by is None else f", {head[panel.by]} = {row[panel.by]}"
            found.setdefault(head[column] + part, []).append((number(row[axis]), number(row[column])))
    return found


def draw(path: Path) -> Path:
    """Draws the panels of a result beside it, and names the plot in its head.

    Raises:
      LookupError: if a table is not there.
    """
    text, plt = path.read_text(), pyplot()
    panels, known = PLOTS[path.name], tables(text)
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.2), layout="constrained", squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        rows = next((rows for before, rows in known if before.startswith(panel.before)), None)
        if rows is None:
            raise LookupError(f"{path.name} must have a table under {panel.before!r}, got none; draw its figure again.")
        _panel(axis, panel, curves(panel, rows))
    target = path.with_suffix(".svg")
    save(figure, target)
    link = f"![plots]({target.name})"
    if link not in text:
        head, commit, rest = text.partition("- commit: ")
        line, _, rest = rest.partition("\n")
        path.write_text(f"{head}{commit}{line}\n\n{link}\n{rest}" if commit else f"{text.rstrip()}\n\n{link}\n")
    return target


def _panel(axis: Any, panel: Panel, lines: dict[str, Sequence[tuple[float, float]]]) -> None:
    """One plot."""
    for label, points in lines.items():
        finite = np.array([point for point in points if np.isfinite(point).all()]).reshape(-1, 2)
        axis.plot(*finite.T, "o-", markersize=3, linewidth=1, label=label)
    axis.set(title=panel.before.removeprefix("## "), xlabel=panel.x)
    for side in panel.log:
        getattr(axis, f"set_{side}scale")("log")
    axis.legend(fontsize="x-small")


def main() -> None:
    parser = measurement.script(__doc__, out="folder of the results")
    arguments = parser.parse_args()
    folder = arguments.out or Path("benchmarks/results")
    for name in PLOTS:
        if (folder / name).exists():
            print(draw(folder / name))


if __name__ == "__main__":
    main()
