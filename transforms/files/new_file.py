"""Files that are made once: of several writers exactly one succeeds, on a local disk and on stores that can say so.

To look whether a file is there and then to write it lets two writers believe that each was first. A local disk has
O_EXCL; Google's, Amazon's and Azure's stores and HDFS take a condition with the write. Any other place is refused.

On a local disk a file is flushed before its name is: a power cut leaves all of it or nothing that is believed.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError, ProtocolError
from schemas.settings.refusal import Refusal
from transforms.files import gate, stores

stores.share_clients()


def create(path: str, content: bytes) -> None:
    """Writes a whole file that nobody has written; on a local disk for its owner only, and durable on return.

    Args:
      path: on a local disk, gs://, s3://, azfs:// or hdfs://.
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
            f"{path} must be on a local disk, gs://, s3://, azfs:// or hdfs://, where a file can be made by one run "
            f"only, got {scheme}://; choose another place."
        )


def _on_disk(path: str, content: bytes) -> None:
    """Content and name are on the disk when this returns."""
    path = path.removeprefix("file://")
    _write(path, content, 0o600)
    flush(os.path.dirname(path))


def put_in_place(path: str, content: bytes) -> None:
    """Writes a whole file on a local disk, whether there is one or not: a killed one leaves the old or the new.

    Args:
      path: for its owner only, and durable on return.
      content: of the file.

    Raises:
      OSError: if it cannot be written.
    """
    made = f"{path}.{secrets.token_hex(8)}"
    _on_disk(made, content)
    rename(made, path)


def rename(path: str, other: str) -> None:
    """Gives a local file that is on the disk another name, which is durable on return, and takes it from any other."""
    os.replace(path, other)
    flush(os.path.dirname(other))


def link_in_place(path: str, content: bytes, mode: int) -> None:
    """Makes a whole file on a local disk, which nobody sees half written, unless there is one.

    A process that is killed on the way leaves the content under a second name. So keys are made by `create`, which has
    none.

    Args:
      path: durable on return.
      content: of the file.
      mode: of the file.

    Raises:
      FileExistsError: if something is there.
      OSError: if it cannot be written.
    """
    part = f"{path}.{secrets.token_hex(8)}.part"
    try:
        _write(part, content, mode)
        os.link(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        flush(os.path.dirname(path))


def make_folders(path: str, mode: int = 0o777) -> None:
    """Makes a local folder, and those above it that are missing; their names are durable on return.

    Args:
      path: of the folder; one that is there is no error.
      mode: of the folder; those above it are as others.

    Raises:
      OSError: if one cannot be made.
    """
    if not path or os.path.isdir(path):
        return
    make_folders(os.path.dirname(path))
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    flush(os.path.dirname(path))


def _write(path: str, content: bytes, mode: int) -> None:
    """Makes a file; its content is on the disk when this returns, and its name may not be."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def flush(path: str) -> None:
    """Content of a local file, or names in a local folder, are on the disk when this returns; pipes have none.

    Raises:
      OSError: if they cannot be.
    """
    try:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        os.sync()
        return
    try:
        if stat.S_IFMT(os.fstat(descriptor).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
        os.sync()
    finally:
        os.close(descriptor)


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


def _on_azure(path: str, content: bytes) -> None:
    """A blob that may not be overwritten is sent with If-None-Match: *."""
    from apache_beam.io.azure.blobstorageio import parse_azfs_path
    from azure.core.exceptions import AzureError, ResourceExistsError

    container, name = parse_azfs_path(path)
    # The client that Beam writes by, whatever flags say of endpoint and credentials.
    service = FileSystems.get_filesystem(path)._blobstorageIO().client
    try:
        service.get_blob_client(container, name).upload_blob(content, overwrite=False)
    except ResourceExistsError as error:
        raise FileExistsError(path) from error
    except AzureError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_hadoop(path: str, content: bytes) -> None:
    """The name node makes a file only where none is, unless it is asked to overwrite; Beam does not say it."""
    from hdfs import HdfsError

    try:
        with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(content)
    except HdfsError as error:
        if FileSystems.exists(path):
            raise FileExistsError(path) from error
        raise OSError(f"{path} cannot be written") from error


_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)
"""What file systems say that cannot flush a folder on its own."""
CONDITIONAL: dict[str, Callable[[str, bytes], None]] = {
    "gs": _on_google,
    "s3": _on_amazon,
    "azfs": _on_azure,
    "hdfs": _on_hadoop,
}
"""How a file is made once, by scheme; these take the place of a look and a write."""


def write_once(path: str, content: bytes, *, private: bool = False) -> None:
    """Writes a file whole, durable on a local disk; one that is there already must be its equal.

    Args:
      path: on any Beam filesystem.
      content: of the file.
      private: whether a local file is for its owner only.

    Raises:
      ProtocolError: if something else is there.
      ConfigError: if the place cannot tell who was first.
    """
    try:
        if stores.is_local(path):
            make_folders(os.path.dirname(path))
            link_in_place(path, content, 0o600 if private else 0o666)
        else:
            create(path, content)
    except FileExistsError:
        rule, remedy = f"{path} must be written once", "a mask covers one message only"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy=remedy)
        if gate.read_bytes(path, refusal, len(content)) != content:
            raise refusal.because("other content for it") from None
