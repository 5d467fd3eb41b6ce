"""An object store in memory, as a Beam filesystem, that may or may not make files under a condition."""

import contextlib
import fnmatch
import io
import re
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from apache_beam.io.filesystem import BeamIOError, CompressionTypes, FileMetadata, FileSystem

from dapple_dp.transforms.files.places import beam

SCHEME = "testing-store"


class _Writer(io.BytesIO):
    """A file that is there when it is closed."""

    def __init__(self, path: str):
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            Store.objects[self._path] = self.getvalue()
        super().close()


class Store(FileSystem):
    """Objects by path, for `testing-store://`. As in Google's, a folder does not exist and cannot be deleted."""

    objects: dict[str, bytes] = {}  # noqa: RUF012 - shared by all instances that Beam makes

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *(path.strip("/") for path in paths)])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path, content in sorted(self.objects.items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(content), 0.0)

    def create(self, path: str, mime_type: str = "", compression_type: str = CompressionTypes.AUTO) -> Any:
        return _Writer(path)

    def open(self, path: str, mime_type: str = "", compression_type: str = CompressionTypes.AUTO) -> Any:
        if path not in self.objects:
            raise BeamIOError(f"no such object: {path}")
        return io.BytesIO(self.objects[path])

    def copy(self, sources: list[str], destinations: list[str]) -> None:
        for source, destination in zip(sources, destinations, strict=True):
            self.objects[destination] = self.objects[source]

    def rename(self, sources: list[str], destinations: list[str]) -> None:
        self.copy(sources, destinations)
        for source in sources:
            del self.objects[source]

    def exists(self, path: str) -> bool:
        return path in self.objects

    def size(self, path: str) -> int:
        return len(self.objects[path])

    def last_updated(self, path: str) -> float:
        return 0.0

    def checksum(self, path: str) -> str:
        return ""

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, len(self.objects[path]), 0.0)

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)


def names(pattern: str = "*") -> list[str]:
    """Paths below the store's root that match a shell pattern."""
    paths = [path.removeprefix(f"{SCHEME}://") for path in Store.objects]
    return sorted(path for path in paths if re.fullmatch(fnmatch.translate(pattern), path))


_LOCK = threading.Lock()


def _create(path: str, content: bytes) -> None:
    """A conditional create."""
    with _LOCK:
        if path in Store.objects:
            raise FileExistsError(path)
        Store.objects[path] = content


@contextlib.contextmanager
def store(*, conditional: bool = True) -> Iterator[str]:
    """An empty store; its root. Without `conditional` it cannot tell which of two writers was first."""
    Store.objects.clear()
    able = {SCHEME: _create} if conditional else {}
    with mock.patch.dict(beam.CONDITIONAL, able):
        yield f"{SCHEME}://"
    Store.objects.clear()
