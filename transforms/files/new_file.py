"""Files that are made once: of several writers exactly one succeeds, on a local disk and on stores that can say so.

To look whether a file is there and then to write it lets two writers believe that each was first. A local disk has
O_EXCL; Google's and Amazon's stores and HDFS take a condition with the write. Any other place is refused.
"""

import os
import secrets
from collections.abc import Callable

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError
from transforms.files import stores

stores.share_clients()


def create(path: str, content: bytes) -> None:
    """Writes a whole file that nobody has written; on a local disk for its owner only, and durable on return.

    Args:
      path: on a local disk, gs://, s3:// or hdfs://.
      content: of the file.

    Raises:
      FileExistsError: if something is there, a dangling link too.
      OSError: if it cannot be written; a filesystem may raise BeamIOError.
      ConfigError: if the place cannot tell who was first.
    """
    scheme = FileSystems.get_scheme(path)
    if scheme in (None, "file"):
        _on_disk(path, content)
    elif scheme in CONDITIONAL:
        CONDITIONAL[scheme](path, content)
    else:
        raise ConfigError(
            f"{path} must be on a local disk, gs://, s3:// or hdfs://, where a file can be made by one run only, got "
            f"{scheme}://; choose another place."
        )


def _on_disk(path: str, content: bytes) -> None:
    """Content and name are on the disk when this returns."""
    path = path.removeprefix("file://")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _flush_names(path)


def put_in_place(path: str, content: bytes) -> None:
    """Writes a whole file on a local disk, whether there is one or not: whoever is killed leaves the old or the new.

    Args:
      path: for its owner only, and durable on return.
      content: of the file.

    Raises:
      OSError: if it cannot be written.
    """
    made = f"{path}.{secrets.token_hex(8)}"
    _on_disk(made, content)
    os.replace(made, path)
    _flush_names(path)


def _flush_names(path: str) -> None:
    """The name of a file is on the disk when this returns."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _on_google(path: str, content: bytes) -> None:
    """Generation 0 is that of an object that is not there."""
    from apache_beam.io.gcp.gcsio import GcsIO, parse_gcs_path
    from google.api_core.exceptions import GoogleAPIError, PreconditionFailed

    bucket, name = parse_gcs_path(path)
    try:
        GcsIO().client.bucket(bucket).blob(name).upload_from_string(content, if_generation_match=0)
    except PreconditionFailed as error:
        raise FileExistsError(path) from error
    except GoogleAPIError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_amazon(path: str, content: bytes) -> None:
    """An object with any tag is one that is there; a conflict is another writer at the same moment."""
    from botocore.exceptions import BotoCoreError, ClientError

    # The client that Beam writes by: a key must go where Beam writes, whatever flags say of endpoint and credentials.
    store = stores.amazon(path)
    bucket, _, name = path.removeprefix("s3://").partition("/")
    try:
        store.put_object(Bucket=bucket, Key=name, Body=content, IfNoneMatch="*")
    except ClientError as error:
        taken = error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
        raise (FileExistsError(path) if taken else OSError(f"{path} cannot be written")) from error
    except BotoCoreError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_hadoop(path: str, content: bytes) -> None:
    """The name node makes a file only where none is, unless it is told to overwrite; Beam does not tell it."""
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(content)


CONDITIONAL: dict[str, Callable[[str, bytes], None]] = {"gs": _on_google, "s3": _on_amazon, "hdfs": _on_hadoop}
"""How a file is made once, by scheme; these take the place of a look and a write."""
