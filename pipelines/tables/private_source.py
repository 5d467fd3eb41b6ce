"""Access to private rows: a job lists their files once, and everything it calls public is compared with that list.

No other module of `pipelines` finds private files. `ListShards` refuses a source that doesn't come from here.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings.vocabulary import VocabularySection
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import CsvConfig, CsvForm, DataConfig
from dapple_dp.transforms.files.file_bytes import files_in
from dapple_dp.transforms.files.formats.csv_file import CsvFile
from dapple_dp.transforms.files.signals.measures import INPUT_BYTES, INPUT_FILES, MEASURES
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.tables.file_seal import FileSeal, open_sealed
from dapple_dp.transforms.tables.listing import FileList, OneListing
from dapple_dp.transforms.tables.prepared_files import read_manifest
from dapple_dp.transforms.tables.shard_rows import n_listed
from dapple_dp.transforms.tables.source import Source, find_files

if TYPE_CHECKING:
    from dapple_dp.pipelines.tables.epoch_clients import EpochClientList

LISTING_FILE = "files.jsonl"
"""Listing in a private staging folder; deleted before anything is published."""
_DATA = "data.path"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRows:
    """Rows before they are grouped by client, and the contract for reading them.

    Attributes:
      data: data section of the job.
      source: listed files of the rows; for a table, the files of one snapshot.
      contract: contract for reading them; by client if clients must be whole.
      counted: whether they were counted, before invalid ones were dropped.
      client_list: client list of an epoch whose clients count only in some windows; None if all rows count.
    """

    data: DataConfig
    source: Source
    contract: TableContract
    counted: bool = False
    client_list: "EpochClientList | None" = None


class PublicInput(NamedTuple):
    """A setting that names public input.

    Attributes:
      section: section of the settings; empty for the top level.
      name: name within the section.
      is_release: whether it is a release's folder or file; otherwise rows like the private ones.
    """

    section: str
    name: str
    is_release: bool = True

    @property
    def setting(self) -> str:
        """Name of the setting in messages."""
        return f"{self.section}.{self.name}".lstrip(".")

    def path(self, config: Any) -> str | None:
        """Path in the settings; None if the job doesn't have it."""
        holder = getattr(config, self.section, None) if self.section else config
        found = getattr(holder, self.name, None)
        return found if isinstance(found, str) else None


PUBLIC = (
    PublicInput("server_data", "path", is_release=False),
    PublicInput("evaluation", "path", is_release=False),
    PublicInput("names", "vocabulary", is_release=False),
    PublicInput("recurring", "previous"),
    PublicInput("evaluate", "reference"),
    PublicInput("reports", "parameters"),
    PublicInput("", "model"),
)
"""All settings that name public files, except those of encodings; a test compares them with the schemas."""


def without_files(data: DataConfig) -> Source:
    """Source of rows in memory; refuses requests for files."""
    return Source(path=data.path)


def _resolved(data: DataConfig) -> Source:
    """Files of a job; for a table, those of one snapshot."""
    if data.table is None:
        return Source(path=data.path, partitions=data.partition_values())
    from dapple_dp.transforms.tables.snapshots import resolve

    return resolve(data)


def private_source(config: Any, listed: Source | None = None) -> Source:
    """Private files of a job, listed on first use; listing them refuses public input that is among them.

    A job without remaining budget is refused before its files are listed, so nothing is listed here.

    Args:
      config: settings of the job, with a section `data`.
      listed: source of the first part, for a job of several parts.

    Raises:
      ConfigError: if the library that reads a table's log isn't installed, or a part has other data.
      InputError: if the snapshot can't be used. Listing also raises it if there are no files, one isn't a regular file,
        two are the same, or one is called public.
    """
    if listed is None:
        found, windows = _resolved(config.data), getattr(config, "folders", None)
        listed = _with_listing(dataclasses.replace(found, one_of=windows, csv=config.data.csv_form.text))
    source = listed
    if source.path != config.data.path or source.listed is None:
        raise ConfigError(f"{_DATA} must be the same in all parts of a job, got {config.data.path}; run two jobs.")
    for each, path in _called_public(config):
        source.listed.check(functools.partial(_check_apart, public=each, path=path))
    return source


def _called_public(config: Any) -> Iterator[tuple[PublicInput, str]]:
    """Yields the public inputs of a job with their paths: settings in `PUBLIC`, and vocabularies of encodings."""
    for each in PUBLIC:
        path = each.path(config)
        if path is not None:
            yield each, path
    for column, encoding in (getattr(config, "encode", None) or {}).items():
        if isinstance(encoding, VocabularySection) and encoding.vocabulary is not None:
            yield PublicInput(f"encode.{column}", "vocabulary", is_release=False), encoding.vocabulary


def check_public(source: Source) -> None:
    """Compares public input with the private files, for a job that publishes without reading rows.

    Does nothing if the private files can't be reached.
    """
    try:
        next(source.found(), None)
    except InputError:
        return
    if source.listed is not None:
        _ = source.listed.files


def evaluation_source(path: str, csv: CsvConfig | None = None) -> Source:
    """Source of evaluation rows; see `PUBLIC` for what they are compared with."""
    return _with_listing(Source(path=path, csv=CsvForm.of(csv).text), "evaluation.path")


def grouped_source(folder: str, one_of: tuple[str, tuple[str, ...]] | None = None) -> Source:
    """Source of a private copy, listed by the manifest written with it.

    Args:
      folder: folder of the copy.
      one_of: partition column and dates of a copy of windows, which has no manifest.
    """
    return _with_listing(Source(path=folder, one_of=one_of))


@contextlib.contextmanager
def staged_listing(source: Source, folder: str) -> Iterator[Source]:
    """Yields the source in a form for graphs, with its listing in a private folder until the end.

    Args:
      source: source from `private_source`; its files are listed now if they aren't yet.
      folder: existing private folder that workers share.
    """
    if source.listed is None:
        raise ConfigError(f"{_DATA} must have been listed before it is read, got {source.path}; see private_source.")
    path = join(folder, LISTING_FILE)
    files = source.listed.files
    try:
        # A graph must not contain file names, or a manifest with row counts.
        yield dataclasses.replace(source, files=None, listed=None, listing=files.write(path), sampled=files.sampled)
    finally:
        with contextlib.suppress(OSError):
            STORE.delete(path)


def _with_listing(source: Source, setting: str = _DATA) -> Source:
    return dataclasses.replace(source, listed=OneListing(functools.partial(_find, source, setting)))


def _find(source: Source, setting: str) -> FileList:
    """Lists files; those of a prepared folder come from its manifest."""
    manifest = None if source.files is not None else read_manifest(source.path)
    files = FileList.of(source.found(manifest), setting, manifest, source.csv)
    files.check_csv()
    MEASURES.add(INPUT_FILES, value=len(files))
    if MEASURES.listener is not None:
        MEASURES.add(INPUT_BYTES, value=sum(FileSeal.of_text(file.seal).size for file in files))
    return files


def rows_on(data: DataConfig, column: str, date: str, most: int) -> int:
    """Counts the rows in a dated folder for the operator; stops once there are `most`.

    Args:
      data: data section of a job.
      column: name of the date in folder names.
      date: date of the folder.
      most: number of rows to stop at, at least 1.

    Raises:
      InputError: if a file can't be read.
    """
    result, there = 0, find_files(data.path, data.partition_values(), one_of=(column, (date,)))
    files = FileList.of(there, _DATA, csv=data.csv_form.text)
    files.check_csv()
    for path, real, seal, csv in files:
        with open_sealed(real, seal, path, csv) as (file, _):
            result += file.count_rows() if isinstance(file, CsvFile) else n_listed(file)
        if result >= most:
            break
    return result


def _check_apart(private: FileList, public: PublicInput, path: str) -> None:
    """Refuses public input that is private input, too."""
    common = private.common(_files_of(path, public))
    copied = None if public.is_release or common is not None else private.copied(find_files(path, {}, public.setting))
    if copied is not None:
        raise InputError(
            f"{public.setting} must be public and no copy of {_DATA}, got {copied[0]}, which has the bytes of "
            f"{copied[1]}; name files that may be shown to everybody."
        )
    if common is not None:
        raise InputError(
            f"{public.setting} must be public and no file of {_DATA}, got {common[0]}, which is {common[1]}; name "
            "files that may be shown to everybody."
        )


def _files_of(path: str, public: PublicInput) -> Iterable[str]:
    """Files that a setting names; missing ones are refused elsewhere."""
    if not public.is_release:
        return (each.path for each in find_files(path, {}, public.setting))
    try:
        return ([path] if STORE.exists(path) else []) + [file.path for file in files_in(path)]
    except OSError:
        return ()
