"""What a run says of its input: a keyed digest that means nothing to those without the key."""

import concurrent.futures
import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from pipelines.kmeans.plan.planned_fit import PlannedFit
from schemas.errors import InputError
from schemas.settings.digest import config_digest
from schemas.tables.columns import find
from schemas.tables.contract import TableContract
from schemas.tables.prepared_layout import MANIFEST_FILE
from transforms.privacy.keys import read_key
from transforms.tables import hive
from transforms.tables.listing import ListedFile
from transforms.tables.read import first_schema, unlisted
from transforms.tables.source import Source

_READERS = 4
_CHUNK = 1 << 22


def keyed_fingerprint(planned: PlannedFit, key_uri: str) -> str:
    """HMAC of the listing of the input and of its schema, and of the config, under the run key.

    Without the key it says nothing about the input; with it, it tells whether the input is the same. The schema is
    that of the columns the job reads, in the first file: every other file was checked against the same contract
    when it was read, and one footer more per file would cost as much as listing the row groups again.

    Raises:
      InputError: if the first file is gone.
    """
    return source_fingerprint(planned.source, planned.contract, config_digest(planned.config), key_uri)


def source_fingerprint(source: Source, contract: TableContract, digest: str, key_uri: str) -> str:
    """`keyed_fingerprint` of a job with these files, this contract and this digest of its config."""
    found = hmac.new(read_key(key_uri), "\n".join([digest, *_columns(source, contract)]).encode(), hashlib.sha256)
    for each in _listed(source):
        found.update(f"\n{each.path}\t{each.seal}".encode(errors="surrogateescape"))
    return found.hexdigest()


def content_fingerprint(planned: PlannedFit, digest: str, key_uri: str) -> str:
    """HMAC of every octet of the input and of what is public under the run key, times of change left out.

    Public are the server data and the run that this one follows.

    Files count under their resolved paths, of which rows take values of partitions. Cost: one more pass over the files,
    by the launcher.

    Args:
      planned: the job.
      digest: of the settings.
      key_uri: where the run key is.

    Raises:
      InputError: if a file cannot be read.
    """
    config = planned.config
    files = [each.file for each in _listed(planned.source)]
    listing = FileSystems.join(config.data.path.rstrip("/"), MANIFEST_FILE)
    files += [listing] if planned.source.snapshot is None and FileSystems.exists(listing) else []
    with concurrent.futures.ThreadPoolExecutor(_READERS) as pool:
        contents = list(pool.map(_content, files))
    entries = sorted(f"{resolved(path)}\t{content}" for path, content in zip(files, contents, strict=True))
    if planned.server is not None:
        entries.append(f"server\t{planned.server.digest}")
    if planned.roll is not None:
        entries.append(f"roll\t{planned.roll.digest_before()}")
    if planned.halves is not None:
        entries.append(f"halves\t{planned.halves.digest_before()}")
    if planned.previous is not None:
        entries.append(f"previous\t{planned.previous.saved.digest}")
    return hmac.new(read_key(key_uri), "\n".join([digest, *entries]).encode(), hashlib.sha256).hexdigest()


def resolved(path: str) -> str:
    """A path as it is spelled without links, dots and trailing slashes; one of another filesystem keeps its links."""
    if FileSystems.get_scheme(path) in (None, "file"):
        return os.path.realpath(path.removeprefix("file://"))
    return path.rstrip("/")


def _content(path: str) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, BeamIOError) as error:
        raise InputError(f"{path} must be readable; check the permissions and that nobody rewrites it.") from error
    return digest.hexdigest()


def _columns(source: Source, contract: TableContract) -> Iterator[str]:
    """Names and types of the columns that are read."""
    if next(iter(_listed(source)), None) is None:
        return
    path, schema = first_schema(source)
    schema = hive.with_field(schema, path, contract.client_id)
    for name in contract.columns:
        yield f"{name}\t{find(schema, name, path).type}"


def _listed(source: Source) -> Iterable[ListedFile]:
    """The files that the job has listed, by path."""
    if source.listed is None:
        raise unlisted()
    return source.listed.files
