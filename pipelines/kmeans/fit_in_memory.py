"""`fit` for rows in memory: plans, charges and runs in this process, without Beam or files."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from dapple_dp.pipelines.kmeans.plan.planned_fit import FitResult, PlannedFit, plan_rows
from dapple_dp.pipelines.ledger.spending import Reservation, charge_of, spending
from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.in_process import run_in_process
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.choices import Runner, Trust
from dapple_dp.schemas.core.plan import GraphPrivacy
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel, model_from_tables
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.privacy.key_files import KEY_LABEL
from dapple_dp.transforms.rounds.memory_rows import Columns, PublicRows


def fit_in_memory(
    config: FitConfig,
    rows: Columns,
    server: PublicRows | None,
    run_id: str,
    tell: Callable[[str], None] | None = None,
) -> tuple[PlannedFit, FitResult, tuple[Any, ...]]:
    """Runs a job to its end, and charges it to its ledger if it has one.

    The run's key is only in memory, so a stopped run can't be resumed. Its charge stays once the key is in the ledger.

    Args:
      config: the job, whose paths name no files.
      rows: all private rows.
      server: the public rows; None without any.
      run_id: id of the run in the ledger.
      tell: called with a line after each round; None for no progress messages.

    Returns:
      The planned job, its release, and the states before the first round and after each round.

    Raises:
      LedgerRefusedError: before rows become blocks, if the ledger refuses the charge.
      DappleError: if the run fails for another reason.
    """
    check_stores(config)
    _check_served(config)
    planned = plan_rows(config, rows.points.shape[1], server)
    started: list[str] = []

    def start() -> RunKey:
        key = run_keys.memory_key()
        started.append(key.mac(_input(planned, rows, server)))
        if config.ledger is not None:
            from dapple_dp.pipelines.ledger.store import Ledger

            about = {"key": {"key_uri": key.mac([KEY_LABEL])}, "input": started[0]}
            Ledger(config.ledger).start(run_id, about)
        return key

    with spending(_reservation(planned, run_id, started)):
        _check_apart(rows, server)
        states, spent = run_in_process(planned, rows, start, tell)
        result = result_of(planned, states[-1].model(), spent, started[0], Runner.IN_PROCESS)
    return planned, result, states


def _check_served(config: FitConfig) -> None:
    """Refuses settings that need files, other processes or other runs."""
    asked = {
        "trust": config.trust is not Trust.CENTRAL,
        "recurring": config.recurring is not None,
        "key_uri": config.key_uri is not None,
        "data.max_rows_per_client": config.data.max_rows_per_client is not None,
    }
    found = next((name for name, is_asked in asked.items() if is_asked), None)
    if found is not None:
        raise ConfigError(f"{found} is not available for rows in memory; leave it out, or run `dapple fit` on files.")


def _check_apart(rows: Columns, server: PublicRows | None) -> None:
    """Refuses public rows that equal the private ones."""
    if server is not None and np.array_equal(rows.points, server.columns.points, equal_nan=True):
        raise InputError(
            "server_data must be public and no copy of X, got the rows of X; use rows that anybody may see."
        )


def _reservation(planned: PlannedFit, run_id: str, started: list[str]) -> Reservation | None:
    config = planned.config
    if config.ledger is None:
        return None
    charge = charge_of(planned.statement, config.data, "fit", planned.plan.rounds)
    return Reservation(ledger=config.ledger, charge=charge, run=run_id, begun=lambda: bool(started), in_memory=True)


def _input(planned: PlannedFit, rows: Columns, server: PublicRows | None) -> Iterator[bytes | memoryview]:
    """Everything that determines the exact sums of a run, as input of a MAC."""
    yield encode_label(
        "dapple: a fit in memory", config_digest(planned.config.uncut), "" if server is None else "public"
    )
    yield from rows.parts()
    if server is not None:
        yield from server.columns.parts()


def result_of(
    planned: PlannedFit,
    model: ClusterModel,
    spent: GraphPrivacy,
    fingerprint: str,
    engine: Literal[Runner.IN_PROCESS] | None,
) -> FitResult:
    """Builds the result as if read from the released files, which hold less than the last state."""
    read = model_from_tables(model.centers_table(), releases_to_table(list(model.releases)))
    return FitResult(read, planned.statement.of_graph(spent, engine), fingerprint, in_units=planned.in_units(read))
