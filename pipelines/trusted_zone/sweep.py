"""The `sweep` job: runs many fits on the same rows in one pipeline and computes their costs, for the trusted zone.

Every cell keeps its own guarantee, but costs are exact and the cells add up, so nothing here may be released.
"""

import dataclasses
import functools
import logging
import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Writes
from dapple_dp.pipelines.jobs.warned import log_warnings
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, plan_files
from dapple_dp.pipelines.ledger.spending import Reservation, charge_of, spending
from dapple_dp.pipelines.run.folder import REPORT_FILE, absolute
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.pipelines.tables.private_source import JobRows, private_source
from dapple_dp.pipelines.trusted_zone import pooled_fit
from dapple_dp.pipelines.trusted_zone.sweep_folder import SweepFolder
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE, Metrics
from dapple_dp.schemas.trusted_zone.sweep_config import SweepCell, SweepConfig, SweepScores, load_sweep_config
from dapple_dp.schemas.trusted_zone.sweep_results import CELL_SCHEMA, SCORE_COLUMNS, SCORED_CELL_SCHEMA
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.signals.progress import duration
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.trusted_zone.evaluate_models import EvaluateModels, ScoreModels, ScoreParams
from dapple_dp.transforms.trusted_zone.sweep_cells import Cell, RunCells

_LOGGER = logging.getLogger(__name__)


class PlannedCell(NamedTuple):
    """A cell that is ready to run; `fit` is None for a method without privacy."""

    number: int
    cell: SweepCell
    fit: PlannedFit | None


def plan_cells(cells: Sequence[SweepCell], listed: Source | None = None) -> list[PlannedCell]:
    """Reads public data and calibrates every private cell.

    Args:
      cells: cells of one part.
      listed: files of all cells, if they have been listed.
    """
    planned = []
    for number, cell in enumerate(cells):
        fit = plan_files(cell.config, listed) if isinstance(cell.config, FitConfig) else None
        planned.append(PlannedCell(number, cell, fit))
    return planned


def _own_rounds(each: PlannedCell) -> tuple[Round, ...]:
    """Rounds of a cell with its digest in their paths, so that no two cells share noise."""
    if each.fit is None:
        return ()
    prefix = f"sweep/{each.cell.digest}"
    return tuple(
        step._replace(plan=dataclasses.replace(step.plan, path=f"{prefix}/{step.plan.path}"))
        for step in each.fit.rounds
    )


def build(
    root: beam.Pipeline,
    cells: Sequence[PlannedCell],
    rows: JobRows,
    key_uri: str,
    part: str,
    scored: SweepScores | None = None,
) -> None:
    """Adds a part of a sweep to a pipeline.

    Args:
      root: an empty pipeline.
      cells: cells to run, at least one.
      rows: rows of all cells, in readable form.
      key_uri: place where noise stages read the run key.
      part: output file, with rows of `CELL_SCHEMA`.
      scored: scores besides the cost, for which rows have `SCORED_CELL_SCHEMA`.
    """
    shards = root | "List" >> ListShards(source=rows.source, contract=rows.contract)
    _ = shards | "CheckRows" >> CheckRows()
    private = tuple(Cell(cell.number, _own_rounds(cell), cell.fit.initial) for cell in cells if cell.fit is not None)
    models = []
    if private:
        ran = shards | "Cells" >> RunCells(cells=private, contract=rows.contract, key_uri=key_uri)
        models.append(ran | "Centers" >> beam.MapTuple(_centers))
    for cell in cells:
        if isinstance(cell.cell.config, PooledFitConfig):
            found = pooled_fit.centers(shards, cell.cell.config, rows.contract, f"Cell{cell.number}")
            models.append(found | f"Number{cell.number}" >> beam.Map(_numbered, cell.number))
    everything = models | "AllModels" >> beam.Flatten(pipeline=root)
    names = {cell.number: _cell_row(cell) for cell in cells}
    if scored is None:
        costs = shards | "Evaluate" >> EvaluateModels(models=everything, contract=rows.contract)
        write = _write_part
    else:
        params = ScoreParams(contract=rows.contract, label=scored.label, sample_rows=scored.silhouette_rows)
        costs = shards | "Score" >> ScoreModels(models=everything, params=params)
        write = _write_scored_part
    gathered = costs | "Gather" >> beam.combiners.ToList()
    _ = gathered | "Write" >> PrivateSink(write=write, places=(names, part))


def promise(cells: Sequence[PlannedCell]) -> Promise:
    """Promise that the graph of several cells must keep: the plan of each cell."""
    fits = [(cell.fit.promise.plans[0], _own_rounds(cell)) for cell in cells if cell.fit is not None]
    plans = tuple(dataclasses.replace(plan, rounds=tuple(each.plan for each in own)) for plan, own in fits)
    return Promise(zone=Zone.TRUSTED, plans=plans)


def _centers(number: int, model: ClusterModel) -> tuple[int, np.ndarray]:
    return number, model.centers


def _numbered(centers: np.ndarray, number: int) -> tuple[int, np.ndarray]:
    return number, centers


def _cell_row(each: PlannedCell) -> dict[str, Any]:
    cell, plan = each.cell, None if each.fit is None else each.fit.plan
    return {
        "method": cell.method,
        "settings": cell.settings_text,
        "epsilon": cell.epsilon,
        "seed": cell.seed,
        "epsilon_spent": None if plan is None else plan.epsilon,
        "delta": None if plan is None else plan.delta,
        "cell": cell.digest,
    }


def _write_part(found: list, known: dict[int, dict[str, Any]], path: str) -> None:
    costs = {number: {"cost": each.cost, "n_clusters": len(each.sizes)} for number, each in found}
    rows = [known[number] | costs[number] for number in sorted(known)]
    write_bytes(path, table_bytes(pa.Table.from_pylist(rows, schema=CELL_SCHEMA)))


def _write_scored_part(found: list, known: dict[int, dict[str, Any]], path: str) -> None:
    rows = [known[number] | _scores(each) for number, each in sorted(found, key=lambda pair: pair[0])]
    write_bytes(path, table_bytes(pa.Table.from_pylist(rows, schema=SCORED_CELL_SCHEMA)))


def _scores(found: Metrics) -> dict[str, Any]:
    """Columns of a cell; an infinite cost stays infinite."""
    agreement = {} if found.classes is None else dataclasses.asdict(found.classes)
    scores = dataclasses.asdict(found.separation) | agreement
    cost = math.inf if found.cost is None else found.cost
    shared = {"cost": cost, "n_clusters": len(found.cluster_sizes)}
    return shared | {name: scores.get(name) for name in SCORE_COLUMNS}


def job_rows(cells: Sequence[PlannedCell], listed: Source | None = None) -> JobRows:
    """Rows of all cells; by client if any of them needs whole clients.

    Args:
      cells: cells of one part.
      listed: files of the cells, if they have been listed.

    Raises:
      ConfigError: if server data of two cells differ in width, or teach encodings differently.
    """
    found = [
        each.fit.rows if each.fit is not None else pooled_fit.job_rows(each.cell.config, listed)  # type: ignore[arg-type]
        for each in cells
    ]
    widths = {each.contract.n_features for each in found} - {None}
    if len(widths) > 1 or any(each.contract.encoder != found[0].contract.encoder for each in found):
        raise ConfigError(
            "server_data must have one width and give the same encodings in all methods of a sweep; run a separate "
            "sweep for the others."
        )
    by_client = any(each.contract.by_client for each in found)
    widest = max(found, key=lambda each: each.contract.n_features or 0)
    contract = dataclasses.replace(widest.contract, by_client=by_client)
    return dataclasses.replace(widest, contract=contract)


def execute(config: SweepConfig, options: PipelineOptions, output: str, run_id: str = "sweep") -> int | None:
    """Runs a sweep, or the remaining parts of an interrupted one.

    Args:
      config: the sweep.
      options: Beam options.
      output: see `SweepFolder`.
      run_id: id under which parts are charged, if there is a ledger.

    Returns:
      The number of warnings in the report; None if it could not be drawn.

    Raises:
      DappleError: if the run fails; finished parts are kept.
    """
    folder = SweepFolder(absolute(output), config)
    folder.open()
    done = set(folder.done().column("cell").to_pylist())
    left = [cell for cell in config.cells if cell.digest not in done]
    size, total = config.options.cells_per_pipeline, len(config.cells)
    began = time.monotonic()
    try:
        listed = private_source(left[0].config) if left else None
        for start in range(0, len(left), size):
            part = left[start : start + size]
            first = len(done) + start + 1
            _LOGGER.info("cells %d to %d of %d: calibrating", first, first + len(part) - 1, total)
            cells = plan_cells(part, listed)
            with spending(_reservation(cells, config.ledger, f"{run_id}/{first}")):
                _run_part(cells, options, folder, listed, config.options.evaluate)
            ran = start + len(part)
            remaining = duration((time.monotonic() - began) * (len(left) - ran) / ran)
            _LOGGER.info("%d of %d cells are done, %s left", len(done) + ran, total, remaining)
        return folder.finish()
    except BaseException:
        folder.discard_empty()
        raise
    finally:
        folder.release()


def _reservation(cells: Sequence[PlannedCell], ledger: str | None, name: str) -> Reservation | None:
    fits = [cell.fit for cell in cells if cell.fit is not None]
    if ledger is None or not fits:
        return None
    return Reservation(ledger=ledger, charge=_charge(fits), run=name, again=True)


def _charge(fits: Sequence[PlannedFit]) -> Charge:
    """Charge of several private cells together."""
    rounds = [each for fit in fits for each in fit.plan.rounds]
    statement = dataclasses.replace(
        fits[0].statement,
        epsilon=math.fsum(fit.plan.epsilon for fit in fits),
        delta=math.fsum(fit.plan.delta for fit in fits),
        events=tuple(event for fit in fits for event in fit.statement.events),
    )
    if any(fit.plan.unit is not statement.unit for fit in fits):
        raise ConfigError("privacy.unit must be the same in all methods of a sweep with a ledger; run two sweeps.")
    return charge_of(statement, fits[0].config.data, "sweep", rounds)


def _run_part(
    cells: Sequence[PlannedCell],
    options: PipelineOptions,
    folder: SweepFolder,
    listed: Source | None,
    scored: SweepScores | None,
) -> None:
    part = folder.new_part()
    partial = f"{part}.partial"
    with folder.private() as private, own_key(private) as key_uri:
        with staged_by_client(job_rows(cells, listed), options, key_uri, os.path.join(private, "rows")) as rows:
            _LOGGER.info("running %d cells", len(cells))
            add = functools.partial(build, cells=cells, rows=rows, key_uri=key_uri, part=partial, scored=scored)
            run_graph(add, options, promise(cells))
        new_file.rename(partial, part)


def _plan(run: Run[SweepConfig]) -> SweepConfig:
    _LOGGER.info("run %s: %d cells; %s", run.options.run_id, len(run.settings.cells), NOT_PRIVATE["label"])
    return run.settings


def _work(run: Run[SweepConfig], config: SweepConfig) -> int | None:
    return execute(config, run.options.beam, run.options.output, run.options.run_id)


def _write(run: Run[SweepConfig], config: SweepConfig, warnings: int | None) -> Outcome:
    log_warnings(warnings)
    summary = {"run_id": run.options.run_id, "output": run.options.output}
    return Outcome(summary | UNPROTECTED | {"warnings": warnings})


JOB = Job(
    "sweep",
    load_sweep_config,
    _plan,
    _work,
    _write,
    Zone.TRUSTED,
    shows=REPORT_FILE,
    place=OutputKind(writes=Writes.PARTS, mark=NOT_PRIVATE).place,
)
