"""Rows where a run needs them: in place, or in a private copy that is grouped by client and goes when the run does."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import shutil
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import prepare
from pipelines.graph import run_graph
from pipelines.prepared_fit import PreparedFit
from schemas.data_config import DataConfig
from schemas.errors import ConfigError
from schemas.plan import PrivacyUnit
from schemas.prepared import PreparedManifest
from schemas.table import TableContract
from transforms.inspect_clients import FindSplitClients
from transforms.prepared_files import read_manifest
from transforms.publish import read_bytes, write_bytes
from transforms.read import CheckRows, ListShards
from transforms.source import Source

_LOGGER = logging.getLogger(__name__)
_ANSWER = "split.json"


@contextlib.contextmanager
def staged_by_client(
    prepared: PreparedFit, options: PipelineOptions, key_uri: str, folder: str
) -> Iterator[PreparedFit]:
    """The job as it can be run: on its own data where clients are whole and bounded, else on a private copy.

    Args:
      prepared: the job.
      options: for Beam.
      key_uri: where workers find the run key.
      folder: the run's private staging folder; a copy lies beside it, as `FOLDER.clients`.

    Yields:
      The job, with the path of the rows to read.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    data, by_client = prepared.config.data, prepared.config.privacy.unit is PrivacyUnit.CLIENT
    manifest = None if prepared.source.snapshot else read_manifest(data.path)
    bounded = _is_bounded(data, manifest)
    whole = not by_client or (manifest is not None and manifest.client_id == data.client_id)
    if whole and bounded:
        yield prepared
        return
    copy = f"{folder.rstrip('/')}.clients"
    _make_private(copy)
    keep = False
    try:
        contract = dataclasses.replace(prepared.contract, by_client=True)
        if bounded and not _any_split(prepared.source, contract, options, copy):
            yield prepared
            return
        _LOGGER.info("grouping rows by client")
        grouping = prepare.Grouping(
            contract=contract,
            folder=copy,
            n_shards=prepared.config.prepare.n_shards,
            max_rows=data.max_rows_per_client,
            key_uri=key_uri,
        )
        prepare.group(prepared.source, options, grouping)
        keep = prepared.config.keep_staging
        yield _reading(prepared, copy)
    finally:
        _leave(copy, keep=keep)


def _is_bounded(data: DataConfig, manifest: PreparedManifest | None) -> bool:
    """Whether no client has more rows than the job allows."""
    applied = None if manifest is None else manifest.max_rows_per_client
    if data.max_rows_per_client is None and applied is not None:
        raise ConfigError(
            f"data.max_rows_per_client must be given for a folder prepared with {applied}, got nothing; "
            "give that number, since it decides how much noise one row needs."
        )
    same = manifest is not None and manifest.client_id == data.client_id
    wanted = data.max_rows_per_client
    return wanted is None or (same and applied is not None and applied <= wanted)


def _any_split(source: Source, contract: TableContract, options: PipelineOptions, folder: str) -> bool:
    """Whether a client lies in several shards; found by a pass over the client ids."""
    path = FileSystems.join(folder, _ANSWER)
    run_graph(functools.partial(_build_inspection, source=source, contract=contract, path=path), options)
    split = bool(json.loads(read_bytes(path)))
    FileSystems.delete([path])
    return split


def _build_inspection(root: beam.Pipeline, source: Source, contract: TableContract, path: str) -> None:
    """Adds the pass over the client ids to a pipeline."""
    shards = root | "List" >> ListShards(source=source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    split = shards | "FindSplitClients" >> FindSplitClients(client_id=str(contract.client_id))
    _ = split | "Answer" >> beam.Map(_write_answer, path)


def _write_answer(split: bool, path: str) -> None:
    write_bytes(path, json.dumps(split).encode())


def _reading(prepared: PreparedFit, folder: str) -> PreparedFit:
    """The job with its rows in another place, encoded already if it encodes them."""
    return dataclasses.replace(prepared, source=Source(path=folder), contract=prepared.contract.encoded())


def _make_private(folder: str) -> None:
    """Creates a folder, readable by its owner only where that can be said."""
    try:
        if FileSystems.get_scheme(folder) in (None, "file"):
            os.mkdir(folder, 0o700)
        else:
            FileSystems.mkdirs(folder)
    except (OSError, BeamIOError) as error:
        raise ConfigError(
            f"--output must be beside a place for private files, got {folder}; choose another."
        ) from error


def _leave(folder: str, *, keep: bool) -> None:
    """Removes the copy, or says where it is."""
    if keep:
        _LOGGER.info("kept: %s; it is as private as the input", folder)
    elif FileSystems.get_scheme(folder) in (None, "file"):
        shutil.rmtree(folder, ignore_errors=True)
    elif FileSystems.exists(folder):
        FileSystems.delete([folder])
