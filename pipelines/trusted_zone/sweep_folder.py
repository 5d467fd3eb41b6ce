"""Output folder of a sweep: holds finished parts, then the results; an interrupted sweep resumes from its parts."""

import collections
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dapple_dp.pipelines.run.folder import REPORT_FILE
from dapple_dp.pipelines.run.versions import versions
from dapple_dp.pipelines.trusted_zone import sweep_page
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import NumberedContent
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE
from dapple_dp.schemas.trusted_zone.sweep_config import SweepConfig
from dapple_dp.schemas.trusted_zone.sweep_results import POINT_SCHEMA, cell_schema
from dapple_dp.transforms.files import new_file, untrusted
from dapple_dp.transforms.files.claims import locked
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.stores import scheme_of
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.numerics.trusted_zone.curves import Band, area_under, confidence_band, on_front

Curve = tuple[str, str]
"""A method and its varied settings."""
STATE_FILE, RESULTS_FILE, SUMMARY_FILE, PARTS = "sweep.json", "results.parquet", "summary.parquet", "parts"
"""Files for the request, all cells and all curves, and the folder of finished parts."""
PLOT_FILE = "sweep.svg"
_PRIVATE = "private-"


class SweepFolder:
    """Folder of parts that becomes a folder of results; readable only by its owner.

    Args:
      output: local folder that workers share; new, empty, or of an interrupted sweep with the same cells.
      config: the sweep.
    """

    def __init__(self, output: str, config: SweepConfig):
        self._output = output
        self._config = config
        self._schema = cell_schema(scored=config.options.evaluate is not None)
        self._lock = -1

    def open(self) -> None:
        """Creates or reopens the folder, locked until `release`, and removes private files of a killed process.

        Raises:
          ConfigError: if the folder has other content, the sweep is complete, or another run of it is in progress.
        """
        if scheme_of(self._output) is not None:
            raise ConfigError(f"--output must be a local folder for a sweep, got {self._output}; copy it afterwards.")
        state = self._path(STATE_FILE)
        if os.path.exists(self._output) and (not os.path.isdir(self._output) or self._is_begun()):
            if _cells_digest(state) != self._config.digest:
                raise ConfigError(
                    f"--output must be a new folder or one of the same sweep, got {self._output}; choose another one."
                )
            if os.path.exists(self._path(RESULTS_FILE)):
                raise ConfigError(
                    f"the sweep in {self._output} (--output) is complete; choose another folder to run it again."
                )
        self._make()
        content = with_number(NOT_PRIVATE | {"cells_digest": self._config.digest, "n_cells": len(self._config.cells)})
        _write_atomically(state, json.dumps(content | {"versions": versions()}, indent=2).encode())

    def _is_begun(self) -> bool:
        """Returns whether the folder holds more than what a power cut leaves of an unidentified sweep."""
        return bool(set(os.listdir(self._output)) - {PARTS, f"{STATE_FILE}.partial"} or self._parts())

    def _make(self) -> None:
        """Creates missing folders, locks the output, and removes private ones."""
        try:
            for folder in (os.path.abspath(self._output), self._path(PARTS)):
                new_file.make_folders(folder, 0o700)
        except OSError as error:
            raise ConfigError(f"--output {self._output} could not be created; choose another folder.") from error
        self._claim()
        for name in os.listdir(self._output):
            if name.startswith(_PRIVATE):
                shutil.rmtree(self._path(name), ignore_errors=True)

    def _claim(self) -> None:
        """Locks the folder, since another run would lose its private files or overwrite parts."""
        self._lock = os.open(self._output, os.O_RDONLY)
        if not locked(self._lock):
            self.release()
            raise ConfigError(
                f"--output must be used by one run at a time, and another sweep is writing to {self._output}; wait for "
                "it to end or choose another one."
            )

    def release(self) -> None:
        """Releases the lock of the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @contextlib.contextmanager
    def private(self) -> Iterator[str]:
        """Yields a folder for keys and copies of rows, and deletes it at the end."""
        folder = tempfile.mkdtemp(prefix=_PRIVATE, dir=self._output)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def discard_empty(self) -> None:
        """Removes the folder's content if no part is finished, so that another sweep can use it."""
        if self._parts():
            return
        shutil.rmtree(self._path(PARTS), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(self._path(STATE_FILE))
            os.rmdir(self._output)

    def _path(self, name: str) -> str:
        return os.path.join(self._output, name)

    def new_part(self) -> str:
        """Path of the next part."""
        return os.path.join(self._path(PARTS), f"part-{len(self._parts()):04d}.parquet")

    def _parts(self) -> list[str]:
        folder = self._path(PARTS)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [os.path.join(folder, name) for name in names if name.endswith(".parquet")]

    def done(self) -> pa.Table:
        """Reads the finished cells."""
        tables = [
            untrusted.read_table(path, _part_refusal(path), TableForm.by_size(self._schema)) for path in self._parts()
        ]
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def finish(self) -> int | None:
        """Writes the report, the curves, and finally all cells in order; returns the report's number of warnings."""
        order = {cell.digest: number for number, cell in enumerate(self._config.cells)}
        rows = sorted(self.done().to_pylist(), key=lambda row: order[row["cell"]])
        results = pa.Table.from_pylist(rows, schema=self._schema)
        points = summary(results)
        drawn = sweep_page.render(self._config, points)
        _write_atomically(self._path(REPORT_FILE), drawn.page.html.encode())
        if drawn.svg is not None:
            _write_atomically(self._path(PLOT_FILE), drawn.svg.encode())
        _write_atomically(self._path(SUMMARY_FILE), table_bytes(points))
        _write_atomically(self._path(RESULTS_FILE), table_bytes(results))
        return drawn.page.warnings


def _write_atomically(path: str, content: bytes) -> None:
    partial = f"{path}.partial"
    write_bytes(partial, content)
    new_file.rename(partial, path)


class _State(NumberedContent):
    cells_digest: str


def _cells_digest(path: str) -> str | None:
    rule = "--output must be a new folder or one of the same sweep"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="choose another one")
    return untrusted.read_json(path, _State, refusal).cells_digest if os.path.exists(path) else None


def _part_refusal(path: str) -> Refusal:
    return Refusal(kind=InputError, rule=f"{path} must be a part of this sweep", remedy="delete it, and run it again")


def summary(results: pa.Table) -> pa.Table:
    """Points of all curves, `POINT_SCHEMA`; a method without privacy has one point, without epsilon.

    Args:
      results: rows of `CELL_SCHEMA`.
    """
    costs = _costs(results)
    bands = {curve: {eps: confidence_band(values) for eps, values in points.items()} for curve, points in costs.items()}
    fronts = _fronts(bands)
    rows = []
    for curve, points in bands.items():
        area = _area(costs[curve])
        for epsilon, band in points.items():
            rows.append(_row(curve, epsilon, len(costs[curve][epsilon]), band, (curve, epsilon) in fronts, area))
    return pa.Table.from_pylist(rows, schema=POINT_SCHEMA)


def _costs(results: pa.Table) -> dict[Curve, dict[float | None, np.ndarray]]:
    found: dict[Curve, dict[float | None, dict[int, float]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict)
    )
    for row in results.to_pylist():
        found[row["method"], row["settings"]][row["epsilon"]][row["seed"]] = row["cost"]
    return {
        curve: {eps: np.array([seeds[seed] for seed in sorted(seeds)]) for eps, seeds in points.items()}
        for curve, points in found.items()
    }


def _fronts(bands: dict[Curve, dict[float | None, Band]]) -> set[tuple[Curve, float | None]]:
    """Points that no other setting of their method beats at the same or a lower epsilon."""
    by_method: dict[str, list[tuple[Curve, float | None, float]]] = collections.defaultdict(list)
    for curve, band_by_epsilon in bands.items():
        by_method[curve[0]] += [(curve, epsilon, band.mean) for epsilon, band in band_by_epsilon.items()]
    found = set()
    for points in by_method.values():
        epsilons = np.array([0.0 if epsilon is None else epsilon for _, epsilon, _ in points])
        kept = on_front(epsilons, np.array([mean for _, _, mean in points]))
        found |= {(curve, epsilon) for (curve, epsilon, _), keep in zip(points, kept, strict=True) if keep}
    return found


def _area(points: dict[float | None, np.ndarray]) -> Band | None:
    """Area under a curve, per seed; None for a single epsilon, or if epsilons differ in their number of seeds."""
    epsilons = sorted(epsilon for epsilon in points if epsilon is not None)
    if len(epsilons) < 2 or len({len(points[epsilon]) for epsilon in epsilons}) > 1:
        return None
    return confidence_band(area_under(np.array(epsilons), np.stack([points[epsilon] for epsilon in epsilons], axis=1)))


def _row(
    curve: Curve, epsilon: float | None, n_seeds: int, band: Band, front: bool, area: Band | None
) -> dict[str, object]:
    auc, auc_low, auc_high = (None, None, None) if area is None else area
    return {
        "method": curve[0],
        "settings": curve[1],
        "epsilon": epsilon,
        "n_seeds": n_seeds,
        "cost": band.mean,
        "cost_low": band.low,
        "cost_high": band.high,
        "on_front": front,
        "auc": auc,
        "auc_low": auc_low,
        "auc_high": auc_high,
    }
