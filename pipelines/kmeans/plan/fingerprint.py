"""Fingerprint of a run's input: a keyed digest that reveals nothing without the key."""

import contextlib
import hashlib
import heapq
import hmac
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.privacy.charge import canonical
from dapple_dp.schemas.settings.digest import config_digest, content_of
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.columns import find
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.prepared_layout import MANIFEST_FILE, PreparedManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import is_local, join
from dapple_dp.transforms.privacy.key_files import read_key
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.listing import FileList, ListedFile
from dapple_dp.transforms.tables.on_launcher import first_schema, unlisted_refusal
from dapple_dp.transforms.tables.source import Source

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_PLACES = (
    ("data", "path"),
    ("server_data", "path"),
    ("recurring", "previous"),
    ("masked", "secret_uri"),
    ("", "key_uri"),
)
_NO_MATTER = ("ledger", "state", "keep_staging", "chunks")


def keyed_fingerprint(planned: PlannedFit, key_uri: str) -> str:
    """HMAC, under the run key, of the input's file listing, its schema and the config.

    Without the key it reveals nothing about the input; with the key it shows whether the input is the same. The schema
    is that of the columns the job reads, taken from the first file. All other files were checked against the same
    contract when they were read, and reading one more footer per file would cost as much as listing the row groups
    again.

    Raises:
      InputError: if the first file is missing.
    """
    return source_fingerprint(planned.source, planned.contract, config_digest(planned.config.uncut), key_uri)


def source_fingerprint(source: Source, contract: TableContract, digest: str, key_uri: str) -> str:
    """`keyed_fingerprint` for given files, contract and config digest."""
    found = hmac.new(read_key(key_uri), "\n".join([digest, *_columns(source, contract)]).encode(), hashlib.sha256)
    for each in _listed(source):
        found.update(f"\n{each.path}\t{each.seal}".encode(errors="surrogateescape"))
    return found.hexdigest()


def content_fingerprint(planned: PlannedFit, digest: str, key_uri: str, options: "PipelineOptions", folder: str) -> str:
    """HMAC, under the run key, of every byte of the private and public input, ignoring modification times.

    The public input is the server data and the run that this one follows.

    Files must be those that were listed. They are identified by their resolved paths, and by the values that rows take
    from folders with other names. Files of a prepared folder aren't read: every graph of the job compares the manifest
    with all bytes (`ListShards`) before a statistic is complete. The cost is one pass over all other files, by threads
    if the runner is on this machine, by workers otherwise.

    Args:
      planned: the job.
      digest: digest of the settings.
      key_uri: place of the run key.
      options: Beam options.
      folder: the run's private staging folder.

    Raises:
      InputError: if a file can't be read or was changed.
    """
    from dapple_dp.pipelines.kmeans.plan.file_digests import file_digests

    columns = (*planned.contract.columns, *(planned.source.one_of or ())[:1])
    found = hmac.new(read_key(key_uri), digest.encode(), hashlib.sha256)
    with contextlib.closing(file_digests(_listed(planned.source), options, folder)) as contents:
        entries = (_entry(each.file, content + _other_folders(each, columns)) for each, content in contents)
        for entry in heapq.merge(entries, _manifest(planned.source)):
            found.update(entry)
    for name, content in _public(planned):
        found.update(_entry(name, content))
    return found.hexdigest()


def resolve_path(path: str) -> str:
    """Resolves links, dots and trailing slashes in a path; links are kept on filesystems that aren't local."""
    if is_local(path):
        return os.path.realpath(path.removeprefix("file://"))
    return path.rstrip("/")


def _entry(name: str, content: str) -> bytes:
    return f"\n{name}\t{content}".encode(errors="surrogateescape")


def _public(planned: PlannedFit) -> Iterator[tuple[str, str]]:
    """Digests of a job's input besides its rows; those of a window's private state are verified."""
    if planned.server is not None:
        yield "server", planned.server.digest
    if planned.client_list is not None:
        yield "roll", planned.client_list.digest_before()
    if planned.previous is not None:
        yield "previous", planned.previous.saved.digest


def _manifest(source: Source) -> Iterator[bytes]:
    """The entry for a prepared folder's manifest, which must be the one used for the listing."""
    listed = _listed(source).manifest
    if listed is None:
        return
    path = join(source.path.rstrip("/"), MANIFEST_FILE)
    rule, remedy = f"{path} must not change after the job listed it", "run the job again"
    refusal = Refusal(kind=InputError, rule=rule, remedy=remedy)
    content = untrusted.read_bytes(path, refusal)
    if PreparedManifest.from_json(content, path) != listed:
        raise refusal.because("another one")
    yield _entry(resolve_path(path), hashlib.sha256(content).hexdigest())


def _other_folders(each: ListedFile, columns: tuple[str, ...]) -> str:
    """Values that rows take from the folders of a link; empty if the real file's folders give the same ones."""

    def folders(path: str) -> list[str]:
        return [part for part in path.split("/")[:-1] if "=" in part]

    def values(path: str) -> list[tuple[str, str | None]]:
        return [(name, hive.folder_value(path, name)) for name in columns if hive.has_folder(path, name)]

    if folders(each.path) == folders(each.file) or values(each.path) == values(each.file):
        return ""
    return "\t" + json.dumps(values(each.path))


def _columns(source: Source, contract: TableContract) -> Iterator[str]:
    """Names and types of the columns that are read."""
    if next(iter(_listed(source)), None) is None:
        return
    path, schema = first_schema(source, contract.types)
    schema = hive.with_field(schema, path, contract.client_id)
    for name in contract.columns:
        yield f"{name}\t{find(schema, name, path).type}"


def _listed(source: Source) -> FileList:
    """The files that the job has listed, by path."""
    if source.listed is None:
        raise unlisted_refusal()
    return source.listed.files


def settings_digest(config: FitConfig) -> str:
    """SHA-256 (64 hex digits) of the settings, independent of the spelling of paths and of the ledger."""
    content = {name: each for name, each in content_of(config).items() if name not in _NO_MATTER}
    for section, name in _PLACES:
        holder = content[section] if section else content
        if holder and holder[name] is not None:
            holder[name] = resolve_path(holder[name])
    return hashlib.sha256(canonical(content).encode()).hexdigest()
