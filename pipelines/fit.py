"""The `fit` job: a private clustering of a data set, from its config to a published model."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import outputs, pooled_fit
from pipelines.client_staging import staged_by_client
from pipelines.fingerprint import keyed_fingerprint
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text
from pipelines.prepared_fit import FitResult, PreparedFit, message_contract, prepare
from pipelines.recurrence import followed
from pipelines.run_account import RunAccount
from pipelines.run_folder import KEY_FILE, SECRET_FILE, RunFolder
from schemas import yaml_text
from schemas.choices import MaskScheme, Trust
from schemas.config import FitConfig, config_digest, validated
from schemas.model import model_from_tables
from schemas.pairwise_messages import PairwiseParams
from schemas.pooled_config import is_pooled
from transforms.client_messages import SECRET_SETTING, Masking
from transforms.keys import lasting_key
from transforms.masked_rounds import RunMaskedRounds
from transforms.publish import (
    CENTERS_FILE,
    RELEASED_FILES,
    PublishModel,
    read_bytes,
    table_bytes,
    table_from_bytes,
    write_bytes,
)
from transforms.read import CheckRows, ListShards
from transforms.rounds import RunRounds

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


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: fits, publishes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been published then.
    """
    options = parse_job("fit", argv)
    settings = yaml_text.parse(read_text(options.config))
    if is_pooled(settings):
        return pooled_fit.run(options, settings)  # type: ignore[arg-type]
    config = validated(settings)  # type: ignore[arg-type]
    account = RunAccount.of(config, options)
    stored = None if account is None else account.stored_release()
    if stored is not None:
        return stored
    folder = RunFolder(options.output, options.run_id) if account is None else account.folder
    folder.check()
    _LOGGER.info("run %s: reading public server data and calibrating noise", options.run_id)
    prepared = prepare(config)
    _LOGGER.info(
        "plan: %d rounds, epsilon %.6g, delta %.3g", len(prepared.rounds), prepared.plan.epsilon, prepared.plan.delta
    )
    with folder.opened() if account is None else account.opened(prepared):
        result = execute(prepared, options.beam, folder.staging, account)
        outputs.write_outputs(folder, prepared, result)
        publish = folder.publish if account is None else account.publish
        publish(outputs.manifest(prepared, result, options.run_id))
    _LOGGER.info("done: %s", FileSystems.join(options.output, "report.html"))
    spent = {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return {"run_id": options.run_id, "output": options.output} | spent
