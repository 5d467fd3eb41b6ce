"""What a run says of its input: a keyed digest that means nothing to those without the key."""

import glob
import hashlib
import hmac
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from pipelines.prepared_fit import PreparedFit
from schemas.columns import find
from schemas.config import config_digest
from schemas.table import TableContract
from transforms import hive
from transforms.keys import read_key
from transforms.read import open_parquet
from transforms.source import Source


def keyed_fingerprint(prepared: PreparedFit, key_uri: str) -> str:
    """HMAC of the input's files, sizes, times of change and schema, and of the config, under the run key.

    Without the key it says nothing about the input; with it, it tells whether the input is the same. The schema is
    that of the columns the job reads, in the first file: every other file was checked against the same contract
    when it was read, and one footer more per file would cost as much as listing the row groups again.

    Raises:
      InputError: if the files are gone.
    """
    return source_fingerprint(prepared.source, prepared.contract, config_digest(prepared.config), key_uri)


def source_fingerprint(source: Source, contract: TableContract, digest: str, key_uri: str) -> str:
    """`keyed_fingerprint` of a job with these files, this contract and this digest of its config."""
    files = source.list_files()
    entries = [digest, *_columns(files[0], contract), *map(_state, files)]
    return hmac.new(read_key(key_uri), "\n".join(entries).encode(), hashlib.sha256).hexdigest()


def _columns(path: str, contract: TableContract) -> Iterator[str]:
    """Names and types of the columns that are read."""
    with open_parquet(path) as file:
        schema = hive.with_field(file.schema_arrow, path, contract.client_id)
    for name in contract.columns:
        yield f"{name}\t{find(schema, name, path).type}"


def _state(path: str) -> str:
    """Path, size and time of change of a file."""
    try:
        found = FileSystems.match([glob.escape(path)])[0].metadata_list[0]
    except (BeamIOError, IndexError):
        return path
    return f"{path}\t{found.size_in_bytes}\t{found.last_updated_in_seconds}"
