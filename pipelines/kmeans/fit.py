"""The `fit` job: a private clustering of a data set, from its config to a published model."""

import contextlib
import dataclasses
import functools
import logging
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.kmeans.account import RunAccount
from pipelines.kmeans.outputs import files as outputs
from pipelines.kmeans.prepared.fingerprint import keyed_fingerprint
from pipelines.kmeans.prepared.prepared_fit import FitResult, PreparedFit, message_contract, prepare
from pipelines.kmeans.prepared.recurrence import followed
from pipelines.ledger.spending import charge_of
from pipelines.run.folder import KEY_FILE, SECRET_FILE
from pipelines.run.graph import run_graph
from pipelines.run.jobs.job import Job, Outcome, Run, charging
from pipelines.run.jobs.place import OutputFolder
from pipelines.run.options import JobOptions
from pipelines.tables.client_staging import staged_by_client
from schemas.choices import MaskScheme, Trust
from schemas.kmeans.fit_config import FitConfig, load_config
from schemas.kmeans.model import model_from_tables
from schemas.masked.pairwise_messages import PairwiseParams
from schemas.privacy.charge import Charge
from schemas.privacy.flow import Zone
from schemas.settings.digest import config_digest
from transforms.files.octets import read_bytes, table_bytes, table_from_bytes, write_bytes
from transforms.files.publish import CENTERS_FILE, RELEASED_FILES, PublishModel
from transforms.masked.clients import SECRET_SETTING, Masking
from transforms.masked.rounds import RunMaskedRounds
from transforms.privacy.keys import lasting_key
from transforms.rounds.round import RunRounds
from transforms.tables.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def build(
    root: beam.Pipeline,
    prepared: PreparedFit,
    key_uri: str,
    folder: str,
    *,
    counted: bool = False,
    masking: Masking | None = None,
) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      prepared: the job; with privacy unit `client`, no client of its data lies in several shards.
      key_uri: where noise stages find the run key.
      folder: where the released files go; exists.
      counted: whether rows have been counted already, before invalid ones were dropped.
      masking: how messages are masked; None where the pipeline is the trusted aggregator.
    """
    contract = prepared.contract if masking is None else message_contract(prepared)
    shards = root | "List" >> ListShards(source=prepared.source, contract=contract)
    if not counted:
        _ = shards | "CheckRows" >> CheckRows()
    each: dict[str, Any] = {"rounds": prepared.rounds, "initial": prepared.initial}
    each |= {"contract": contract, "key_uri": key_uri}
    run_rounds = RunRounds(**each) if masking is None else RunMaskedRounds(**each, masking=masking)
    state = shards | "Rounds" >> run_rounds
    _ = state | "Publish" >> PublishModel(folder=folder)


def _masking(config: FitConfig, folder: str) -> Masking | None:
    """How the messages of a job are masked; the secret of a run lies in its private staging folder."""
    if config.trust is not Trust.MASKED:
        return None
    pairwise = None
    if config.masked.scheme is MaskScheme.PAIRWISE:
        pairwise = PairwiseParams(config.masked.corrupt, config.masked.dropout)
    return Masking(
        secret_uri=config.masked.secret_uri or FileSystems.join(folder, SECRET_FILE),
        run=config_digest(config),
        threshold=config.masked.threshold,
        noise_by=config.masked.noise_by,
        pairwise=pairwise,
    )


def execute(
    prepared: PreparedFit, options: PipelineOptions, folder: str, account: RunAccount | None = None
) -> FitResult:
    """Runs a prepared job to its end.

    The run key lies at `config.key_uri`, or in `folder`. A key that exists is used and kept; otherwise one is
    made and deleted when the run is over. Data in which clients are split are grouped in a private copy first.

    Args:
      prepared: the job.
      options: for Beam.
      folder: private staging folder; the released files are there afterwards.
      account: of the run in the ledger, which then keeps the key; None without one.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    hold = lasting_key if account is None else account.held_key
    key_uri = prepared.config.key_uri or FileSystems.join(folder, KEY_FILE)
    with contextlib.ExitStack() as secrets:
        secrets.enter_context(hold(key_uri))
        masking = _masking(prepared.config, folder)
        if masking is not None:
            secrets.enter_context(hold(masking.secret_uri, SECRET_SETTING))
        fingerprint = "" if account is None else account.start(prepared)
        rows = prepared.rows
        with staged_by_client(rows, options, key_uri, folder) as staged:
            job = dataclasses.replace(prepared, source=staged.source, contract=staged.contract)
            counted = staged is not rows
            add = functools.partial(
                build, prepared=job, key_uri=key_uri, folder=folder, counted=counted, masking=masking
            )
            found = run_graph(add, options, prepared.promise)
        fingerprint = fingerprint or keyed_fingerprint(prepared, key_uri)
    tables = [table_from_bytes(read_bytes(FileSystems.join(folder, name))) for name in RELEASED_FILES]
    model, drift = followed(prepared, model_from_tables(*tables))
    if drift is not None:
        write_bytes(FileSystems.join(folder, CENTERS_FILE), table_bytes(model.centers_table()))
    return FitResult(model, prepared.statement.of_graph(found), fingerprint, drift)


def _place(config: FitConfig, options: JobOptions) -> OutputFolder:
    return OutputFolder(options) if config.ledger is None else RunAccount(config, options)


def _plan(run: Run[FitConfig]) -> PreparedFit:
    reading = "" if run.settings.server_data is None else "reading public server data and "
    _LOGGER.info("run %s: %scalibrating noise", run.options.run_id, reading)
    prepared = prepare(run.settings)
    plan = prepared.plan
    n_rounds = len(prepared.rounds)
    rounds = f"{n_rounds} round{'s' if n_rounds != 1 else ''}"
    _LOGGER.info("plan: %s, epsilon %.6g, delta %.3g", rounds, plan.epsilon, plan.delta)
    return prepared


def _charge(prepared: PreparedFit) -> Charge:
    return charge_of(prepared.statement, prepared.config.data, "fit", prepared.plan.rounds)


def _work(run: Run[FitConfig], prepared: PreparedFit) -> FitResult:
    account = run.place if isinstance(run.place, RunAccount) else None
    return execute(prepared, run.options.beam, run.folder.staging, account)


def _write(run: Run[FitConfig], prepared: PreparedFit, result: FitResult) -> Outcome:
    outputs.write_outputs(run.folder, prepared, result)
    spent = {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return Outcome(spent, outputs.manifest(prepared, result, run.options.run_id))


JOB = Job(
    name="fit",
    load=load_config,
    plan=_plan,
    reserve=charging(_charge),
    work=_work,
    write=_write,
    zone=Zone.PUBLIC,
    shows="report.html",
    place=_place,
)
