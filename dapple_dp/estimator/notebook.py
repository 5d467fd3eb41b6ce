"""Notebook displays of a fit: its report, its guarantee, and its plan; everything in them is released or public."""

import dataclasses
import html
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Self

from dapple_dp.estimator.job_of_parameters import in_words
from dapple_dp.estimator.memory_rows import POINT, made_name
from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.page.numbers import at_most
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.settings.section import is_number, python_scalar
from dapple_dp.transforms.core.statistics.lattice import MAX_ROWS
from dapple_dp.transforms.rounds.memory_rows import PublicRows

_MOST_EPSILONS, _HIGHEST = 12, 1e6
_MOST_COLUMNS = 6
"""Largest number of columns with their noise in the table; `PlanTable.rows` has all columns."""


class Report:
    """Report of a fit, which a notebook displays in a frame.

    Args:
      page: HTML, one file without scripts or links to a network.
    """

    def __init__(self, page: str):
        self._page = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, and overwrites an existing one.

        Args:
          path: path of the file, such as "report.html".

        Raises:
          ConfigError: if it can't be written.
        """
        try:
            pathlib.Path(path).write_text(self._page, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"path must be a file that can be written, got {path}; {error.strerror}.") from error

    def __repr__(self) -> str:
        return "<report of a fit: a notebook shows it, and save('report.html') writes it>"

    def _repr_html_(self) -> str:
        page = html.escape(self._page)
        return f'<iframe srcdoc="{page}" sandbox style="width: 100%; height: 45em; border: 0"></iframe>'


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Predicted releases and costs of a fit at some epsilons, computed without private rows.

    Attributes:
      rows: a mapping for each epsilon, ascending, like the rows of `dapple plan`: `epsilon`; `columns`, the noise of a
        center of average size, in each column with its bounds; `center_noise`, that noise in feature units;
        `size_noise`; `smallest_cluster`, the units that distinguish a cluster from an empty one in 19 of 20 runs;
        `odds`, an upper bound on the probability that an attacker who knows all other units guesses right; `cost`, and
        `excess` over the cost without noise; and `fits`, whether the ledger has room. None means unknown. If an epsilon
        is too small or too large for the noise, `refused` has the error.
      title: title of the table.
      unit: noun for the protected unit.
      simulated_on: description of the rows that `cost` was simulated on.
    """

    rows: tuple[dict[str, Any], ...]
    title: str
    unit: str
    simulated_on: str

    @classmethod
    def of(
        cls, config: FitConfig, n_rows: Any, width: int, server: PublicRows | None, epsilons: Sequence[float]
    ) -> Self:
        """Plans and simulates a job with `width` columns; raises ConfigError like `DPKMeans.plan`."""
        from dapple_dp.pipelines.plan.expected import Expected, at_epsilons

        given: list[Any] = [python_scalar(epsilon) for epsilon in epsilons]
        if not 0 < len(given) <= _MOST_EPSILONS or not all(
            is_number(value, 0.0, _HIGHEST) and value for value in given
        ):
            raise ConfigError(f"epsilons must be 1 to {_MOST_EPSILONS} numbers above 0, got {epsilons!r}; give others.")
        n_units = python_scalar(n_rows)
        if not isinstance(n_units, int) or not is_number(n_units, 1, MAX_ROWS):
            raise ConfigError(f"n_rows must be an integer from 1 to {MAX_ROWS}, got {n_rows!r}; give a guess.")
        expected = Expected.in_memory(config, n_units, width, server)
        unit = expected.unit_word
        return cls(
            rows=tuple(at_epsilons(expected, given)),
            title=f"{expected.config.algorithm}, {plural(config.max_clusters, 'cluster')} of {n_units:,} {unit}",
            unit=unit,
            simulated_on="made-up clusters inside the bounds" if server is None else "server_data",
        )

    def __str__(self) -> str:
        from dapple_dp.pipelines.plan.plan_words import in_columns

        lines = in_columns([self._heads, *map(self._cells, self.rows)])
        return "\n".join([f"Plan of {self.title}", *lines, *self._notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes)
        return table_html(f"Plan of {self.title}", [self._heads, *map(self._cells, self.rows)]) + notes

    @property
    def _columns(self) -> list[str]:
        known: list[dict[str, Any]] = next((row["columns"] for row in self.rows if "refused" not in row), [])
        # Columns without names are a single list column of the job.
        return [
            made_name(place) if column["column"].startswith(f"{POINT}[") else column["column"]
            for place, column in enumerate(known[:_MOST_COLUMNS])
        ]

    @property
    def _heads(self) -> tuple[str, ...]:
        noise = tuple(f"± {column}" for column in self._columns) or ("± of a center",)
        return (
            "epsilon",
            *noise,
            f"smallest cluster, {self.unit}",
            "attacker is right",
            "cost over no noise",
            "ledger",
        )

    def _cells(self, row: dict[str, Any]) -> tuple[str, ...]:
        n_noise = len(self._columns) or 1
        if "refused" in row:
            return (f"{row['epsilon']:g}", *("-",) * (n_noise + 3), "refused")
        noise = [column["noise"] for column in row["columns"][:_MOST_COLUMNS]] or [row["center_noise"]]
        return (
            f"{row['epsilon']:g}",
            *(_number(stddev, ".3g") for stddev in noise),
            _number(row["smallest_cluster"], ",.0f"),
            f"{at_most(100.0 * row['odds'])}%",
            _number(row["excess"], "+.1%"),
            {None: "none", True: "fits", False: "refused"}[row["fits"]],
        )

    @property
    def _notes(self) -> list[str]:
        refused = [row for row in self.rows if "refused" in row]
        columns = max((len(row.get("columns", ())) for row in self.rows), default=0)
        more = [f"The first {_MOST_COLUMNS} of {columns} columns are shown."] if columns > _MOST_COLUMNS else []
        where = "in the unit of its column" if columns else "in feature units"
        return [
            f"±: one noise stddev of the center of an average-sized cluster, {where}. Smaller clusters may be lost "
            f"in the noise. The attacker knows all other {self.unit}, gives even odds that one more is there, and "
            f"is right with at most this probability. Costs were simulated on {self.simulated_on}.",
            *more,
            *(f"At epsilon {row['epsilon']:g}: {in_words(row['refused'])}" for row in refused),
        ]


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def table_html(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Returns an HTML table; the first row has the headers."""
    head, *others = ([html.escape(cell) for cell in row] for row in rows)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in others)
    heads = "".join(f"<th>{cell}</th>" for cell in head)
    return f"<table><caption>{html.escape(title)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
