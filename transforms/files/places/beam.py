"""Files on Beam's filesystems, by their exact names: `gs://`, `azfs://`, `hdfs://` and schemes that users register.

Nothing else may call Beam's `FileSystems`, whose `delete` and `match` take patterns. Beam's modules are imported with
the first request.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.files.places.store import ListedFile, Store, StoredFile, scheme_of


class _BeamStore:
    """`Store` on Beam's filesystems; never passes them a name that they could expand."""

    def exists(self, path: str) -> bool:
        return bool(_system(path).exists(path))

    def stat(self, path: str) -> StoredFile:
        entry = _system(path).metadata(path)
        return StoredFile(entry.size_in_bytes, str(entry.last_updated_in_seconds or ""))

    def open(self, path: str) -> BinaryIO:
        opened: BinaryIO = _system(path).open(path, *_as_is())
        return opened

    def get(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    def create(self, path: str) -> BinaryIO:
        made: BinaryIO = _system(path).create(path, *_as_is())
        return made

    def put(self, path: str, content: bytes) -> None:
        with self.create(path) as file:
            file.write(content)

    def put_new(self, path: str, content: bytes) -> None:
        scheme = scheme_of(path)
        if scheme not in CONDITIONAL:
            raise ConfigError(
                f"{path} must be on a local disk, gs://, s3://, azfs:// or hdfs://, where a file can be made by one "
                f"run only, got {scheme}://; choose another place."
            )
        _check_name(path)
        CONDITIONAL[scheme](path, content)

    def delete(self, *paths: str) -> None:
        for path in paths:
            _check_name(path)
        system = _system(paths[0])
        try:
            if scheme_of(paths[0]) == "gs":  # its `delete` expands patterns
                failed = [path for path, error in system._gcsIO().delete_batch(list(paths)) if error]
                if failed:
                    raise OSError(f"{failed[0]} cannot be deleted")
            else:
                system.delete(list(paths))
        except OSError:
            if any(map(self.exists, paths)):
                raise

    def rename(self, path: str, other: str) -> None:
        _check_name(other)
        _system(path).rename([path], [other])

    def list(self, prefix: str) -> Iterator[ListedFile]:
        system = _system(prefix)
        for entry in system._list(prefix.rpartition("/")[0] if system.has_dirs() else prefix):
            if entry.path.startswith(prefix):
                yield ListedFile(entry.path, entry.size_in_bytes, str(entry.last_updated_in_seconds or ""))

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        system = _system(path)
        if system.has_dirs() and not system.exists(path):
            system.mkdirs(path)


STORE: Store = _BeamStore()


def set_options(options: Any) -> None:
    """Passes the flags of a job to Beam's filesystems; some need them before its first pipeline is built."""
    _filesystems().set_options(options)


def given_flags(names: Sequence[str]) -> tuple[Any, ...]:
    """Returns the flags for `s3://` that a job or a worker's harness gave to Beam's filesystems; None if unset."""
    from apache_beam.options.pipeline_options import PipelineOptions, S3Options

    options = _filesystems()._pipeline_options
    if options is None or isinstance(options, PipelineOptions):
        view = (options or PipelineOptions([])).view_as(S3Options)
        return tuple(getattr(view, name) for name in names)
    return tuple(options.get(name) for name in names)


def _filesystems() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _system(path: str) -> Any:
    """Returns Beam's filesystem of a path; raises ValueError if there is none, and the errors of `_check_name`."""
    _check_name(path)
    return _filesystems().get_filesystem(path)


def _check_name(path: str) -> None:
    """Raises ConfigError for a name that Beam would cut at a line feed or that HDFS's client would expand."""
    if "\n" in path or (scheme_of(path) == "hdfs" and "#LATEST" in path):
        raise ConfigError(
            f"A name on a store must not contain a line feed, nor #LATEST on HDFS, got {path!r}; choose another name."
        )


def _as_is() -> tuple[str, str]:
    """Returns Beam's content type and compression for bytes that are stored unchanged, whatever the name ends with."""
    from apache_beam.io.filesystem import CompressionTypes

    return "application/octet-stream", CompressionTypes.UNCOMPRESSED


def _on_google(path: str, content: bytes) -> None:
    """Creates an object; generation 0 means that none may exist."""
    from apache_beam.io.gcp.gcsio import GcsIO, parse_gcs_path
    from google.api_core.exceptions import GoogleAPIError, PreconditionFailed

    bucket, name = parse_gcs_path(path)
    try:
        GcsIO().client.bucket(bucket).blob(name).upload_from_string(content, if_generation_match=0)
    except PreconditionFailed as error:
        raise FileExistsError(path) from error
    except GoogleAPIError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_azure(path: str, content: bytes) -> None:
    """Creates a blob; without overwriting, it is sent with If-None-Match: *."""
    from apache_beam.io.azure.blobstorageio import parse_azfs_path
    from azure.core.exceptions import AzureError, ResourceExistsError

    container, name = parse_azfs_path(path)
    # The client that Beam writes with, so that its flags for endpoint and credentials apply.
    service = _system(path)._blobstorageIO().client
    try:
        service.get_blob_client(container, name).upload_blob(content, overwrite=False)
    except ResourceExistsError as error:
        raise FileExistsError(path) from error
    except AzureError as error:
        raise OSError(f"{path} cannot be written") from error


def _on_hadoop(path: str, content: bytes) -> None:
    """Creates a file; the name node refuses if one exists, since Beam doesn't ask it to overwrite."""
    from hdfs import HdfsError

    try:
        with STORE.create(path) as file:
            file.write(content)
    except HdfsError as error:
        if STORE.exists(path):
            raise FileExistsError(path) from error
        raise OSError(f"{path} cannot be written") from error


CONDITIONAL: dict[str, Callable[[str, bytes], None]] = {
    "gs": _on_google,
    "azfs": _on_azure,
    "hdfs": _on_hadoop,
}
"""Functions that create a file only if none exists, atomically, by scheme."""
