"""Where a sweep writes: parts as they are done, the whole at the end; an interrupted one goes on from there."""

import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.sweep_summary import summary
from schemas.errors import ConfigError
from schemas.model_job import NOT_PRIVATE
from schemas.sweep_config import SweepConfig
from schemas.sweep_results import CELL_SCHEMA
from transforms.publish import table_bytes, write_bytes

STATE_FILE, RESULTS_FILE, SUMMARY_FILE, PARTS = "sweep.json", "results.parquet", "summary.parquet", "parts"
"""What was asked for, all cells, all curves, and the folder of the parts that are done."""


class SweepFolder:
    """Where a sweep writes: parts as they are done, the whole at the end; an interrupted one goes on.

    Args:
      output: a local folder: new, empty, or of an interrupted sweep with the same cells.
      config: the sweep.
    """

    def __init__(self, output: str, config: SweepConfig):
        self._output = output
        self._config = config

    def open(self) -> None:
        """Creates the folder or takes it up again.

        Raises:
          ConfigError: if something else lies there, or the sweep is complete.
        """
        state = os.path.join(self._output, STATE_FILE)
        if os.path.exists(self._output) and os.listdir(self._output):
            found = _read_json(state)
            if found.get("cells_digest") != self._config.digest:
                raise ConfigError(
                    f"--output must be a new folder or one of the same sweep, got {self._output}; choose another one."
                )
            if os.path.exists(os.path.join(self._output, RESULTS_FILE)):
                raise ConfigError(f"--output must be of a sweep that is not complete, got {self._output}; it is done.")
        os.makedirs(os.path.join(self._output, PARTS), mode=0o700, exist_ok=True)
        content = NOT_PRIVATE | {"cells_digest": self._config.digest, "n_cells": len(self._config.cells)}
        write_atomically(state, json.dumps(content, indent=2).encode())

    def new_part(self) -> str:
        """Path of the next part."""
        return os.path.join(self._output, PARTS, f"part-{len(self._parts()):04d}.parquet")

    def _parts(self) -> list[str]:
        """Paths of the parts that are done."""
        folder = os.path.join(self._output, PARTS)
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".parquet")]

    def done(self) -> pa.Table:
        """Cells that are done."""
        tables = [pq.read_table(path, schema=CELL_SCHEMA) for path in self._parts()]
        return pa.concat_tables([CELL_SCHEMA.empty_table(), *tables])

    def finish(self) -> tuple[pa.Table, pa.Table]:
        """Writes all cells, in the order of the sweep, and the curves; returns both."""
        order = {cell.digest: number for number, cell in enumerate(self._config.cells)}
        rows = sorted(self.done().to_pylist(), key=lambda row: order[row["cell"]])
        results = pa.Table.from_pylist(rows, schema=CELL_SCHEMA)
        points = summary(results)
        write_atomically(os.path.join(self._output, SUMMARY_FILE), table_bytes(points))
        write_atomically(os.path.join(self._output, RESULTS_FILE), table_bytes(results))
        return results, points


def write_atomically(path: str, content: bytes) -> None:
    """Writes a local file that is whole or absent."""
    partial = f"{path}.partial"
    write_bytes(partial, content)
    os.replace(partial, path)


def _read_json(path: str) -> dict[str, Any]:
    """A JSON object; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
