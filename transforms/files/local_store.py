"""Files on a local disk, or on one that is mounted like it."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.files.places.store import (
    ListedFile,
    Store,
    StoredFile,
    is_gone,
    local_path,
)


class _LocalStore:
    """`Store` on a disk: written files are durable on return."""

    def exists(self, path: str) -> bool:
        try:
            os.stat(local_path(path))
        except (OSError, ValueError) as error:
            if is_gone(error):
                raise
            return False
        return True

    def stat(self, path: str) -> StoredFile:
        found = os.stat(local_path(path))
        return StoredFile(found.st_size, str(found.st_mtime))

    def open(self, path: str) -> BinaryIO:
        return open(local_path(path), "rb")

    def get(self, path: str) -> bytes:
        with open(local_path(path), "rb") as file:
            return file.read()

    def create(self, path: str) -> BinaryIO:
        return open(local_path(path), "wb")

    def put(self, path: str, content: bytes) -> None:
        path = local_path(path)
        folder = os.path.dirname(path)
        new_file.make_folders(folder)
        with open(path, "wb") as file:
            file.write(content)
        new_file.flush(path)
        new_file.flush(folder)

    def put_new(self, path: str, content: bytes) -> None:
        new_file.create(local_path(path), content)

    def delete(self, *paths: str) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(local_path(path))

    def rename(self, path: str, other: str) -> None:
        new_file.rename(local_path(path), local_path(other))

    def list(self, prefix: str) -> Iterator[ListedFile]:
        """Lists files; leaves out those that are deleted meanwhile, and dangling links."""
        prefix = local_path(prefix)
        top = os.path.dirname(prefix)
        for folder, _, names in os.walk(top or "."):
            for name in names:
                path = os.path.join(folder, name).removeprefix("" if top else "./")
                if path.startswith(prefix):
                    with contextlib.suppress(OSError):
                        found = os.stat(path)
                        yield ListedFile(path, found.st_size, str(found.st_mtime))

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        new_file.make_folders(local_path(path), mode)


STORE: Store = _LocalStore()
