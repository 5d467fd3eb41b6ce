"""The `prepare` job: a lake in any order becomes a data set sharded by client, in the trusted zone."""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.run_folder import KEY_FILE, RunFolder
from schemas.errors import ConfigError
from schemas.flow import TRUSTED_ZONE
from schemas.prepare_config import PrepareConfig, load_prepare_config
from schemas.prepared import MANIFEST_FILE, PreparedManifest
from schemas.table import TableContract
from transforms import row_spill
from transforms.group_clients import GroupClients, SamplingParams, WriteManifest
from transforms.keys import create_key, delete_key
from transforms.prepared_files import read_manifest
from transforms.read import CheckRows, ListShards
from transforms.source import Source
from transforms.table_snapshots import resolve

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """How rows are grouped by client.

    Attributes:
      contract: by client.
      folder: private; exists.
      n_shards: number of files, at most; None to choose it by the size of the data.
      max_rows: rows of a client that stay, at most; None for all.
      key_uri: where workers find the key that chooses rows; needed with `max_rows`.
      spill: whether rows go through files in the folder and not through the runner.
    """

    contract: TableContract
    folder: str
    n_shards: int | None = None
    max_rows: int | None = None
    key_uri: str | None = None
    spill: bool = False


def build(root: beam.Pipeline, source: Source, grouping: Grouping) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      source: where the rows are.
      grouping: how and where to group them.
    """
    max_rows, key_uri = grouping.max_rows, grouping.key_uri
    sampling = None if max_rows is None or key_uri is None else SamplingParams(max_rows=max_rows, key_uri=key_uri)
    contract, folder = grouping.contract, grouping.folder
    shards = root | "List" >> ListShards(source=source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    files = shards | "GroupClients" >> GroupClients(
        contract=contract, folder=folder, n_shards=grouping.n_shards, sampling=sampling, spill=grouping.spill
    )
    _ = files | "Manifest" >> WriteManifest(
        contract=contract.encoded(), folder=folder, max_rows=max_rows, snapshot=source.snapshot
    )


def group(source: Source, options: PipelineOptions, grouping: Grouping) -> None:
    """Groups rows by client; on runners of this machine rows go through files, so that memory stays flat.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    local = FileSystems.get_scheme(grouping.folder) in (None, "file")
    spill = local and shuffles_in_memory(options)
    try:
        add = functools.partial(build, source=source, grouping=dataclasses.replace(grouping, spill=spill))
        run_graph(add, options, TRUSTED_ZONE)
    finally:
        if spill:
            row_spill.remove(grouping.folder)


def execute(config: PrepareConfig, options: PipelineOptions, folder: str) -> PreparedManifest:
    """Runs a job to its end.

    Args:
      config: the job.
      options: for Beam.
      folder: private and empty; the files and their manifest are there afterwards.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    data = config.data
    source, contract = resolve(data), TableContract.from_config(data, by_client=True)
    key_uri = FileSystems.join(folder, KEY_FILE) if data.max_rows_per_client is not None else None
    if key_uri is not None:
        create_key(key_uri)
    try:
        grouping = Grouping(
            contract=contract,
            folder=folder,
            n_shards=config.prepare.n_shards,
            max_rows=data.max_rows_per_client,
            key_uri=key_uri,
        )
        group(source, options, grouping)
    finally:
        if key_uri is not None:
            delete_key(key_uri)
    manifest = read_manifest(folder)
    if manifest is None:
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        )
    return manifest


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: groups, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    options = parse_job("prepare", argv)
    config = load_prepare_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    with folder.opened():
        _LOGGER.info("run %s: grouping rows by client", options.run_id)
        manifest = execute(config, options.beam, folder.staging)
        folder.move([*(each.name for each in manifest.files), MANIFEST_FILE])
    _LOGGER.info("done: %s; it is as private as the input", options.output)
    return {"run_id": options.run_id, "output": options.output, "epsilon": 0.0, "delta": 0.0}
