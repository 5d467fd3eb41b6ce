"""Staging of rows for a run: in place, or as a private copy grouped by client, which is deleted with the run."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.run.failures import reported
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import runs_in_process
from dapple_dp.pipelines.tables.private_source import JobRows, grouped_source, staged_listing
from dapple_dp.pipelines.tables.resources import check_room
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.prepared_layout import PreparedManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import remove_files, write_bytes
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.tables.staging_names import copy_folder

if TYPE_CHECKING:
    from dapple_dp.transforms.tables.split_clients import ClientListParams

_LOGGER = logging.getLogger(__name__)
_ANSWER = "split.json"


@contextlib.contextmanager
def staged_by_client(rows: JobRows, options: PipelineOptions, key_uri: str, folder: str) -> Iterator[JobRows]:
    """Yields rows that a job can read: in place if clients are whole and bounded, else as a private copy.

    Args:
      rows: rows of the job.
      options: Beam options.
      key_uri: place where workers read the run key.
      folder: private staging folder of the run. The listing of files and a copy are next to it, in `FOLDER.clients`,
        which is first cleared of a killed attempt's files. On a store its name has a random suffix, so that files of a
        killed attempt are never read.

    Yields:
      The same rows with a staged listing, or rows of a copy, which have been counted.

    Raises:
      DappleError: if the run fails.
    """
    manifest = None if rows.source.listed is None else rows.source.listed.files.manifest
    bounded = _is_bounded(rows.data, manifest)
    whole = not rows.contract.by_client or (manifest is not None and manifest.client_id == rows.data.client_id)
    copy = _copy_folder(folder)
    _make_private(copy)
    if not (whole and bounded):
        _say(rows, copy)
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
        windows = None if rows.client_list is None else rows.client_list.windows
        with staged_listing(grouped_source(copy, windows), copy) as source:
            yield dataclasses.replace(listed, source=source, contract=listed.contract.encoded(), counted=True)
    finally:
        _leave(copy)


@contextlib.contextmanager
def private_folder(folder: str) -> Iterator[str]:
    """Yields an empty private folder next to a run's staging folder, like `staged_by_client`; deletes it at the end."""
    beside = _copy_folder(folder)
    _make_private(beside)
    try:
        yield beside
    finally:
        _leave(beside)


def clear_copy(folder: str) -> None:
    """Removes the copy that a killed run may have left next to `folder`."""
    _leave(copy_folder(folder))


def _group(rows: JobRows, options: PipelineOptions, key_uri: str, copy: str) -> None:
    """Writes a copy of the rows grouped by client, and bounded if the job asks for it."""
    from dapple_dp.pipelines.tables import prepare

    grouping = prepare.Grouping(
        contract=dataclasses.replace(rows.contract, by_client=True),
        folder=copy,
        max_rows=rows.data.max_rows_per_client,
        key_uri=key_uri,
        windows=None if rows.client_list is None else rows.client_list.windows,
    )
    prepare.group(rows.source, options, grouping)


def _is_bounded(data: DataConfig, manifest: PreparedManifest | None) -> bool:
    """Returns whether no client has more rows than the job allows."""
    applied = None if manifest is None else manifest.max_rows_per_client
    if data.max_rows_per_client is None and applied is not None:
        raise ConfigError(
            f"data.path was prepared with {applied}; set data.max_rows_per_client to that number, which decides how "
            "much noise one row needs."
        )
    same = manifest is not None and manifest.client_id == data.client_id
    wanted = data.max_rows_per_client
    return wanted is None or (same and applied is not None and applied <= wanted)


def _any_split(rows: JobRows, options: PipelineOptions, folder: str) -> bool:
    """Returns whether a client is in several shards; the pass over the client ids also updates the client list."""
    contract = dataclasses.replace(rows.contract, by_client=True)
    if runs_in_process(options):
        from dapple_dp.transforms.rounds.local_rows import LocalRows
        from dapple_dp.transforms.tables.split_clients import any_split

        with reported():
            return any_split(LocalRows(rows.source).shards(contract), str(contract.client_id))
    path = join(folder, _ANSWER)
    params = None if rows.client_list is None else rows.client_list.params(folder)
    add = functools.partial(_build_inspection, source=rows.source, contract=contract, path=path, params=params)
    run_graph(add, options, TRUSTED_ZONE)
    split = untrusted.read_json(path, bool, untrusted.staged_refusal(path))
    STORE.delete(path)
    return split


def _with_participation(rows: JobRows, folder: str) -> TableContract:
    """Returns the contract for the rows; if clients count only in some windows, with the updated client list."""
    participation = None if rows.client_list is None else rows.client_list.called(folder)
    return dataclasses.replace(rows.contract, participation=participation)


def _build_inspection(
    root: beam.Pipeline, source: Source, contract: TableContract, path: str, params: "ClientListParams | None"
) -> None:
    from dapple_dp.transforms.files.private_sink import PrivateSink
    from dapple_dp.transforms.tables.split_clients import CallRoll, FindSplitClients

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
    """Creates an empty folder, readable only by its owner if the filesystem supports that."""
    try:
        if is_local(folder):
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder, 0o700)
        else:
            if STORE.exists(folder):
                STORE.delete(folder)
            STORE.make_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"--output must be where private files can be made, got {folder}; choose another place."
        ) from error


def _copy_folder(folder: str) -> str:
    """Path of a copy; a local folder with that name must be new."""
    copy = copy_folder(folder)
    return copy if is_local(copy) else f"{copy}-{secrets.token_hex(8)}"


def _say(rows: JobRows, copy: str) -> None:
    """Logs that rows may be grouped, before that is known: whether clients are split is private."""
    _LOGGER.info("grouping rows by client where a client's rows are apart")


def _leave(folder: str) -> None:
    """Removes the copy."""
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        remove_files(folder)
