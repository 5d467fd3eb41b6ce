"""A disk that loses what was not flushed: what is on it is recorded, and put back as a power cut would leave it.

A file has the content of its last flush, or is empty if it had none; a folder has the names of its last flush. Worse
than that is a disk that loses what was not flushed and yet removes what was removed: keys would be gone, and what they
were given up for as well. Databases flush on their own: their files stay as they were at the last commit.
"""

import contextlib
import os
import pathlib
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from dapple_dp.pipelines.ledger import store

Tree = dict[str, bytes | None]
"""Content of files, and None for folders, by their paths below the root."""


class Cut(NamedTuple):
    """State after a power cut.

    Attributes:
      after: the call that had returned.
      tree: what is on the disk.
      entries: how many entries the ledger has.
    """

    after: str
    tree: Tree
    entries: int


class Disk:
    """All that happens below a folder.

    Args:
      root: is there, with all that is in it, for good.
      ledger: a database below it; None if there is none.
    """

    def __init__(self, root: pathlib.Path, ledger: pathlib.Path | None = None):
        self._root, self._ledger = root, ledger
        self._lock = threading.RLock()
        self._names: dict[int, dict[str, int]] = {}
        self._content: dict[int, bytes] = {}
        self._kinds: dict[int, bool] = {}
        self._held: dict[int, int] = {}
        self.cuts: list[Cut] = []
        for folder, _, files in os.walk(root):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                self._flushed(os.open(path, os.O_RDONLY))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Follows what this process does."""
        with contextlib.ExitStack() as stack:
            for name in ("fsync", "unlink", "remove", "rmdir", "rename", "replace", "link"):
                stack.enter_context(mock.patch.object(os, name, self._told(getattr(os, name))))
            for step in ("reserve", "start", "commit", "void"):
                stack.enter_context(mock.patch.object(store.Ledger, step, self._told(getattr(store.Ledger, step))))
            try:
                yield
            finally:
                for descriptor in self._held.values():
                    os.close(descriptor)

    def restore(self, cut: Cut) -> None:
        """Puts back what a power cut has left."""
        for entry in self._root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name, content in sorted(cut.tree.items()):
            path = self._root / name
            if content is None:
                path.mkdir(mode=0o700)
            else:
                path.write_bytes(content)
                path.chmod(0o600)

    def _told(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A call after which the power may be cut."""

        def told(*args: Any, **more: Any) -> Any:
            found = function(*args, **more)
            with self._lock:
                if function.__name__ == "fsync":
                    self._flushed(os.open(f"/proc/self/fd/{args[0]}", os.O_RDONLY))
                self._note(f"{function.__name__} {args[:2]}")
            return found

        return told

    def _flushed(self, descriptor: int) -> None:
        """Takes note of a file or folder that is on the disk now; it is held, so that its number stays its own."""
        state = os.fstat(descriptor)
        number, is_folder = state.st_ino, stat.S_ISDIR(state.st_mode)
        if number in self._held:
            os.close(descriptor)
        else:
            self._held[number] = descriptor
        self._kinds[number] = is_folder
        if is_folder:
            found = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(self._held[number])}
            self._names[number] = {name: inode for name, (inode, _) in found.items()}
            for name, (inode, of_folder) in found.items():
                self._kinds[inode] = of_folder
                if inode not in self._held:
                    self._held[inode] = os.open(name, os.O_RDONLY, dir_fd=self._held[number])
        else:
            self._content[number] = os.pread(self._held[number], state.st_size, 0)

    def _note(self, after: str) -> None:
        """Takes note of what a power cut leaves now, if that is new."""
        top, entries, books = os.stat(self._root).st_ino, 0, {}
        if self._ledger is not None:
            entries = len(store.Ledger(str(self._ledger)).entries())
            books = {str(self._ledger.relative_to(self._root)): self._ledger.read_bytes()}
        for removes in (False, True):
            tree = dict(self._below(top, "", removes=removes)) | books
            if all(tree != cut.tree for cut in self.cuts):
                self.cuts.append(Cut(after, tree, entries))

    def _below(self, number: int, place: str, *, removes: bool) -> Iterator[tuple[str, bytes | None]]:
        """The files in a folder; without files that were removed, if that is on the disk at once."""
        for name, inode in self._names.get(number, {}).items():
            path = os.path.join(place, name)
            if removes and not os.fstat(self._held[inode]).st_nlink:
                continue
            if self._kinds[inode]:
                yield path, None
                yield from self._below(inode, path, removes=removes)
            else:
                yield path, self._content.get(inode, b"")
