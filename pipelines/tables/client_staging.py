"""Rows where a run needs them: in place, or in a private copy that is grouped by client and goes when the run does."""

import contextlib
import dataclasses
import functools
import glob
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.run.graph import run_graph
from pipelines.tables import prepare
from pipelines.tables.epoch_roll import EpochRoll
from pipelines.tables.private_source import grouped_source, staged_listing
from pipelines.tables.resources import check_room
from schemas.errors import ConfigError
from schemas.privacy.flow import TRUSTED_ZONE
from schemas.tables.contract import TableContract
from schemas.tables.data_section import DataConfig, PrepareOptions
from schemas.tables.prepared_layout import PreparedManifest
from transforms.files import gate
from transforms.files.file_bytes import remove_files, write_bytes
from transforms.files.private_sink import PrivateSink
from transforms.tables.read import CheckRows, ListShards
from transforms.tables.source import Source
from transforms.tables.split_clients import CallRoll, FindSplitClients, RollParams

_LOGGER = logging.getLogger(__name__)
_ANSWER = "split.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRows:
    """Where rows are before they are grouped by client, and how they are read.

    Attributes:
      data: what the job says of them.
      source: where they are, listed; of a table, the files of one snapshot.
      contract: how they are read; by client if clients must be whole.
      prepare: how they would be grouped.
      keep_staging: whether a grouped copy stays.
      counted: whether they have been counted, before invalid ones were dropped.
      roll: of an epoch at client level, whose clients count in some windows only; None where all rows count.
    """

    data: DataConfig
    source: Source
    contract: TableContract
    prepare: PrepareOptions
    keep_staging: bool = False
    counted: bool = False
    roll: EpochRoll | None = None


@contextlib.contextmanager
def staged_by_client(rows: JobRows, options: PipelineOptions, key_uri: str, folder: str) -> Iterator[JobRows]:
    """The rows as a job can read them: in place where clients are whole and bounded, else in a private copy.

    Args:
      rows: of the job.
      options: for Beam.
      key_uri: where workers find the run key.
      folder: the run's private staging folder; the listing of the files and a copy are beside it, in
        `FOLDER.clients`, from which goes what a killed attempt has left. On another filesystem than the local one its
        name has a random end, so that nothing that a killed attempt left there is ever read.

    Yields:
      The same rows with their listing staged, or rows that have been counted and are elsewhere.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    manifest = None if rows.source.listed is None else rows.source.listed.files.manifest
    bounded = _is_bounded(rows.data, manifest)
    whole = not rows.contract.by_client or (manifest is not None and manifest.client_id == rows.data.client_id)
    copy = _copy_folder(folder)
    _make_private(copy)
    if not (whole and bounded):
        _say(rows, copy)
    keep = False
    try:
        with staged_listing(rows.source, copy) as source:
            listed = dataclasses.replace(rows, source=source)
            is_split = not whole and _any_split(listed, options, copy)
            listed = dataclasses.replace(listed, contract=_with_participation(rows, copy))
            if bounded and not is_split:
                yield listed
                return
            check_room(rows.source.listed, copy)
            _group(listed, options, key_uri, copy)
        keep = rows.keep_staging
        windows = None if rows.roll is None else rows.roll.windows
        with staged_listing(grouped_source(copy, windows), copy) as source:
            yield dataclasses.replace(listed, source=source, contract=listed.contract.encoded(), counted=True)
    finally:
        _leave(copy, keep=keep)


@contextlib.contextmanager
def private_folder(folder: str) -> Iterator[str]:
    """The private folder beside a run's staging folder, as `staged_by_client` has one: empty, and gone afterwards."""
    beside = _copy_folder(folder)
    _make_private(beside)
    try:
        yield beside
    finally:
        _leave(beside, keep=False)


def clear_copy(folder: str) -> None:
    """Removes the copy that a killed run may have left beside `folder`."""
    _leave(f"{folder.rstrip('/')}.clients", keep=False)


def _group(rows: JobRows, options: PipelineOptions, key_uri: str, copy: str) -> None:
    """Writes a copy of the rows that is grouped by client, and bounded where the job says so."""
    grouping = prepare.Grouping(
        contract=dataclasses.replace(rows.contract, by_client=True),
        folder=copy,
        n_shards=rows.prepare.n_shards,
        max_rows=rows.data.max_rows_per_client,
        key_uri=key_uri,
        windows=None if rows.roll is None else rows.roll.windows,
    )
    prepare.group(rows.source, options, grouping)


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


def _any_split(rows: JobRows, options: PipelineOptions, folder: str) -> bool:
    """Whether a client is in several shards; found by a pass over the client ids, which also calls the roll."""
    path = FileSystems.join(folder, _ANSWER)
    contract = dataclasses.replace(rows.contract, by_client=True)
    params = None if rows.roll is None else rows.roll.params(folder)
    add = functools.partial(_build_inspection, source=rows.source, contract=contract, path=path, params=params)
    run_graph(add, options, TRUSTED_ZONE)
    split = gate.read_json(path, bool, gate.staged_refusal(path))
    FileSystems.delete([path])
    return split


def _with_participation(rows: JobRows, folder: str) -> TableContract:
    """How rows are read: where clients count in some windows only, by the roll that workers have called."""
    participation = None if rows.roll is None else rows.roll.called(folder)
    return dataclasses.replace(rows.contract, participation=participation)


def _build_inspection(
    root: beam.Pipeline, source: Source, contract: TableContract, path: str, params: RollParams | None
) -> None:
    shards = root | "List" >> ListShards(source=source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows(may_be_empty=source.may_be_empty)
    if params is not None:
        _ = shards | "CallRoll" >> CallRoll(params=params)
    column = None if params is None else params.column
    split = shards | "FindSplitClients" >> FindSplitClients(client_id=str(contract.client_id), column=column)
    _ = split | "Answer" >> PrivateSink(write=_write_answer, places=(path,))


def _write_answer(split: bool, path: str) -> None:
    write_bytes(path, json.dumps(split).encode())


def _make_private(folder: str) -> None:
    """Creates a folder, readable by its owner only where that can be said, without what a killed attempt has left."""
    try:
        if FileSystems.get_scheme(folder) in (None, "file"):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder, 0o700)
        else:
            if FileSystems.exists(folder):
                FileSystems.delete([folder])
            FileSystems.mkdirs(folder)
    except (OSError, BeamIOError) as error:
        raise ConfigError(
            f"--output must be where private files can be made, got {folder}; choose another place."
        ) from error


def _copy_folder(folder: str) -> str:
    """Where a copy goes; a local folder of that name is new or refused."""
    copy = f"{folder.rstrip('/')}.clients"
    return copy if FileSystems.get_scheme(copy) in (None, "file") else f"{copy}-{secrets.token_hex(8)}"


def _say(rows: JobRows, copy: str) -> None:
    """What may happen, before it is known: whether clients are split is private, so no line depends on it."""
    _LOGGER.info("bringing the rows of each client together where they are apart")
    if rows.keep_staging:
        _LOGGER.info("kept, if one is made: %s; it is as private as the input", copy)


def _leave(folder: str, *, keep: bool) -> None:
    """Removes the copy, unless it stays."""
    if keep:
        return
    if FileSystems.get_scheme(folder) in (None, "file"):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        remove_files(f"{glob.escape(folder)}/**")
