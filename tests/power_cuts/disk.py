"""A disk that records what was asked of it, and says what a power cut could leave.

What was flushed is there: the content of a file by a flush of the file, its name by a flush of its folder. Of all that
was not, anything may be there. A rename within a folder is there or not; between folders the old name may stay, and the
file is under one of them at least. Metadata of a journal would rule out some of these states; other file systems would
not.
"""

import hashlib
import os
import pathlib
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.power_cuts import trace
from tests.power_cuts.trace import Call


class Entry(NamedTuple):
    """A file or folder under a name.

    Attributes:
      mode: its permissions.
      content: of a file; None for a folder; the target of a link.
      kind: "file", "folder" or "link".
      origin: the file in the copy of the disk of which this is the untouched content.
    """

    mode: int
    content: bytes | None
    kind: str
    origin: str | None = None


Tree = dict[str, Entry]
"""All that is on the disk, by paths below its root, folders before what is in them."""


def digest(tree: Tree) -> str:
    """Distinguishes trees."""
    found = hashlib.sha256()
    for path, entry in sorted(tree.items()):
        found.update(repr((path, entry.mode, entry.kind, entry.content)).encode())
    return found.hexdigest()


class _Node:
    def __init__(self, kind: str, mode: int, origin: str | None = None):
        self.kind, self.mode, self.origin = kind, mode, origin
        self.content, self.flushed = b"", b""
        self.names: dict[str, _Node] = {}
        self.flushed_names: dict[str, _Node] = {}


class _Data(NamedTuple):
    """Bytes that go into a file; None and a size cut it or make it longer."""

    node: _Node
    offset: int
    content: bytes | None

    def to(self, before: bytes) -> bytes:
        if self.content is None:
            return before[: self.offset].ljust(self.offset, b"\0")
        end = self.offset + len(self.content)
        return before[: self.offset].ljust(self.offset, b"\0") + self.content + before[end:]


class _Names(NamedTuple):
    """Names of one folder that come and go together; `first` must be there before."""

    node: _Node
    edits: tuple[tuple[str, _Node | None], ...]
    first: Any = None


class Disk:
    """All below a folder.

    Args:
      root: with all that is in it for good; a real path.
      copy: of the folder as it is now, which stays.
      elsewhere: folders below it whose changes last at once, being on machines that keep their power.
    """

    def __init__(self, root: pathlib.Path, copy: pathlib.Path, elsewhere: Sequence[str] = ()):
        self._root, self._elsewhere = str(root), tuple(str(root / each) for each in elsewhere)
        self._top = self._known(root, copy)
        self._pending: list[_Data | _Names] = []
        self._positions: dict[tuple[int, int], int] = {}
        self._appends: set[tuple[int, int]] = set()
        self._groups: dict[int, int] = {}

    def _known(self, path: pathlib.Path, copy: pathlib.Path) -> _Node:
        state = copy.lstat()
        if copy.is_symlink():
            node = _Node("link", 0o777)
            node.content = node.flushed = os.fsencode(os.readlink(copy))
        elif copy.is_dir():
            node = _Node("folder", stat.S_IMODE(state.st_mode))
            node.names = {each.name: self._known(path / each.name, each) for each in sorted(copy.iterdir())}
            node.flushed_names = dict(node.names)
        else:
            node = _Node("file", stat.S_IMODE(state.st_mode), str(copy))
            node.content = node.flushed = copy.read_bytes()
        return node

    # What a cut leaves.

    def trees(self, last: int) -> Iterator[tuple[str, Tree]]:
        """Possible disks after a cut now: nothing that was not flushed, all of it, and each single one of the last few.

        Args:
          last: how many are the last few.
        """
        none = self._tree([])
        yield "nothing", none
        if self._pending:
            yield "all", self._tree(self._pending)
        for each in reversed(self._pending):
            chosen = [each]
            while isinstance(chosen[0], _Names) and chosen[0].first in self._pending:
                chosen.insert(0, chosen[0].first)
            tree = self._tree(chosen)
            if last and tree != none:
                yield "one change", tree
                last -= 1

    def now(self) -> Tree:
        """The tree while the power is on."""
        return self._tree(self._pending)

    def _tree(self, changes: Sequence[_Data | _Names]) -> Tree:
        names: dict[_Node, dict[str, _Node]] = {}
        data: dict[_Node, bytes] = {}
        for each in changes:
            if isinstance(each, _Data):
                data[each.node] = each.to(data.get(each.node, each.node.flushed))
                continue
            held = names.setdefault(each.node, dict(each.node.flushed_names))
            for name, node in each.edits:
                if node is None:
                    held.pop(name, None)
                else:
                    held[name] = node
        return dict(self._below(self._top, "", names, data))

    def _below(self, node: _Node, place: str, names: dict, data: dict) -> Iterator[tuple[str, Entry]]:
        for name, child in names.get(node, node.flushed_names).items():
            path = f"{place}{name}"
            if child.kind == "folder":
                yield path, Entry(child.mode, None, "folder")
                yield from self._below(child, f"{path}/", names, data)
            else:
                yield path, Entry(child.mode, data.get(child, child.flushed), child.kind, child.origin)

    # What happens.

    def tell(self, call: Call) -> bool:
        """Carries out a call; returns whether it changed what a cut would leave.

        Raises:
          NotImplementedError: for a call on the disk that cannot be followed.
        """
        if call.name in ("clone", "clone3", "fork", "vfork"):
            same = any("CLONE_THREAD" in each for each in call.args)
            self._groups[call.result] = self._group(call) if same else call.result
            return False
        before = len(self._pending), id(self._pending)
        done = getattr(self, f"_on_{_SAME.get(call.name, call.name)}", None)
        if done is None:
            return False
        return bool(done(call)) or before != (len(self._pending), id(self._pending))

    def _group(self, call: Call) -> int:
        return self._groups.get(call.thread, call.thread)

    def _change(self, change: _Data | _Names, path: str) -> None:
        """Something changes while the power is on."""
        if isinstance(change, _Data):
            change.node.content = change.to(change.node.content)
            change.node.origin = None
        else:
            for name, node in change.edits:
                if node is None:
                    change.node.names.pop(name, None)
                else:
                    change.node.names[name] = node
        if any(path == each or path.startswith(f"{each}/") for each in self._elsewhere):
            change.node.flushed, change.node.flushed_names = change.node.content, dict(change.node.names)
        self._pending = [*self._pending, change]
        if any(path == each or path.startswith(f"{each}/") for each in self._elsewhere):
            self._pending = self._pending[:-1]

    def _flush(self, node: _Node) -> bool:
        node.flushed, node.flushed_names = node.content, dict(node.names)
        lasting = [each for each in self._pending if each.node is node]
        self._pending = [each for each in self._pending if each.node is not node]
        for each in lasting:
            if isinstance(each, _Names) and each.first in self._pending:
                self._flush(each.first.node)
        return bool(lasting)

    def _is_here(self, path: str | None) -> bool:
        return path is not None and path.startswith(f"{self._root}/")

    def _node(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for name in path[len(self._root) :].split("/"):
            if name and node is not None:
                node = node.names.get(name)
        return node

    def _parent(self, path: str) -> tuple[_Node, str]:
        folder, _, name = path.rpartition("/")
        node = self._node(folder)
        if node is None:
            raise NotImplementedError(f"a folder that is not known: {folder}")
        return node, name

    @staticmethod
    def _path(folder: str | None, name: str) -> str | None:
        """The path of a name in a folder."""
        path = os.fsdecode(trace.text_of(name))
        base = trace.path_of(folder) if folder is not None else None
        if not path.startswith("/"):
            return os.path.normpath(os.path.join(base, path)) if base else None
        return os.path.normpath(path)

    def _set(self, path: str, node: _Node | None, first: _Names | None = None) -> _Names:
        parent, name = self._parent(path)
        change = _Names(parent, ((name, node),), first)
        self._change(change, path)
        return change

    # Opened files.

    def _on_openat(self, call: Call) -> bool:
        folder, name, flags, *more = call.args if call.name == "openat" else (None, *call.args, "O_WRONLY|O_CREAT")
        if call.name == "creat":
            flags, more = "O_WRONLY|O_CREAT|O_TRUNC", call.args[1:]
        path = self._path(folder, name)
        opened = (self._group(call), call.result & 0xFFFFFFFF)
        self._positions[opened] = 0
        self._appends.discard(opened)
        if not self._is_here(path):
            return False
        assert path is not None
        node = self._node(path)
        if "O_APPEND" in flags:
            self._appends.add(opened)
        if node is None:
            if "O_CREAT" not in flags:
                return False
            self._set(path, _Node("file", int(more[0].split("=")[0], 8) & ~0o022))
        elif "O_TRUNC" in flags and node.content:
            self._change(_Data(node, 0, None), path)
        return False

    _on_open = _on_creat = _on_openat

    def _of(self, argument: str) -> tuple[_Node, str] | None:
        path = trace.path_of(argument.split(")")[0] + (")" if "(deleted)" in argument else ""))
        if not self._is_here(path):
            return None
        assert path is not None
        node = self._node(path)
        return None if node is None else (node, path)

    def _opened(self, call: Call) -> tuple[int, int]:
        return self._group(call), trace.number_of(call.args[0])

    def _on_lseek(self, call: Call) -> bool:
        self._positions[self._opened(call)] = call.result
        return False

    def _written(self, call: Call, content: bytes) -> bool:
        found, opened = self._of(call.args[0]), self._opened(call)
        if found is None or not content:
            return False
        node, path = found
        at = len(node.content) if opened in self._appends else self._positions.get(opened, 0)
        self._positions[opened] = at + len(content)
        self._change(_Data(node, at, content), path)
        return True

    def _on_write(self, call: Call) -> bool:
        return self._of(call.args[0]) is not None and self._written(call, trace.text_of(call.args[1])[: call.result])

    def _on_writev(self, call: Call) -> bool:
        if self._of(call.args[0]) is None:
            return False
        return self._written(call, trace.parts_of(", ".join(call.args[1:]))[: call.result])

    def _on_pwrite64(self, call: Call) -> bool:
        found = self._of(call.args[0])
        if found is not None:
            self._change(_Data(found[0], int(call.args[3]), trace.text_of(call.args[1])[: call.result]), found[1])
        return False

    def _on_sendfile(self, call: Call) -> bool:
        if self._of(call.args[0]) is None or not call.result:
            return False
        source = self._of(call.args[1])
        if source is None:
            raise NotImplementedError(f"a copy from {trace.path_of(call.args[1])}, which is not on the disk")
        at = int(call.args[2].strip("[]").split("]")[0]) if call.args[2] != "NULL" else 0
        return self._written(call, source[0].content[at : at + call.result])

    def _on_copy_file_range(self, call: Call) -> bool:
        if call.result and (self._of(call.args[0]) or self._of(call.args[2])):
            raise NotImplementedError("copy_file_range")
        return False

    _on_splice = _on_copy_file_range

    def _on_mmap(self, call: Call) -> bool:
        flags = " ".join(call.args)
        if "MAP_SHARED" in flags and "PROT_WRITE" in flags and self._of(call.args[4]) is not None:
            raise NotImplementedError(f"memory that is mapped to {trace.path_of(call.args[4])}")
        return False

    def _on_ftruncate(self, call: Call) -> bool:
        found = self._of(call.args[0])
        if found is not None:
            self._change(_Data(found[0], int(call.args[1]), None), found[1])
        return False

    def _on_truncate(self, call: Call) -> bool:
        path = self._path(None, call.args[0])
        if self._is_here(path):
            assert path is not None
            node = self._node(path)
            assert node is not None
            self._change(_Data(node, int(call.args[1]), None), path)
        return False

    def _on_fallocate(self, call: Call) -> bool:
        if self._of(call.args[0]) is not None:
            raise NotImplementedError("fallocate")
        return False

    def _on_fchmod(self, call: Call) -> bool:
        found = self._of(call.args[0])
        if found is not None:
            found[0].mode = int(call.args[1], 8)
        return found is not None

    def _on_fsync(self, call: Call) -> bool:
        path = trace.path_of(call.args[0])
        found = (self._top, path) if path == self._root else self._of(call.args[0])
        return found is not None and self._flush(found[0])

    _on_fdatasync = _on_fsync

    def _on_sync(self, call: Call) -> bool:
        while self._pending:
            self._flush(self._pending[0].node)
        return True

    _on_syncfs = _on_sync

    # Names.

    def _on_chmod(self, call: Call) -> bool:
        name, mode = call.args[:2] if call.name == "chmod" else call.args[1:3]
        path = self._path(None if call.name == "chmod" else call.args[0], name)
        node = self._node(path) if path is not None and self._is_here(path) else None
        if node is not None:
            node.mode = int(mode, 8)
        return node is not None

    def _on_mkdir(self, call: Call) -> bool:
        name, mode = call.args[-2:]
        path = self._path(None if call.name == "mkdir" else call.args[0], name)
        if self._is_here(path):
            assert path is not None
            self._set(path, _Node("folder", int(mode, 8) & ~0o022))
        return False

    def _on_symlink(self, call: Call) -> bool:
        target, name = call.args[0], call.args[-1]
        path = self._path(None if call.name == "symlink" else call.args[1], name)
        if self._is_here(path):
            assert path is not None
            node = _Node("link", 0o777)
            node.content = node.flushed = trace.text_of(target)
            self._set(path, node)
        return False

    def _on_unlink(self, call: Call) -> bool:
        path = self._path(call.args[0], call.args[1]) if call.name == "unlinkat" else self._path(None, call.args[0])
        if self._is_here(path):
            assert path is not None
            self._set(path, None)
        return False

    _on_rmdir = _on_unlink

    def _on_link(self, call: Call) -> bool:
        old, new = self._two(call)
        if self._is_here(new):
            assert new is not None
            node = None if old is None else self._node(old)
            if node is None:
                raise NotImplementedError(f"a link to {old}, which is not on the disk")
            self._set(new, node)
        return False

    def _two(self, call: Call) -> tuple[str | None, str | None]:
        if call.name in ("rename", "link"):
            return self._path(None, call.args[0]), self._path(None, call.args[1])
        return self._path(call.args[0], call.args[1]), self._path(call.args[2], call.args[3])

    def _on_rename(self, call: Call) -> bool:
        old, new = self._two(call)
        if not self._is_here(old) and not self._is_here(new):
            return False
        if old is None or new is None or not (self._is_here(old) and self._is_here(new)):
            raise NotImplementedError(f"a rename of {old} to {new}, of which one is not on the disk")
        node = self._node(old)
        assert node is not None, old
        (before, old_name), (after, new_name) = self._parent(old), self._parent(new)
        if before is after:
            self._change(_Names(before, ((old_name, None), (new_name, node))), new)
        else:
            self._set(old, None, first=self._set(new, node))
        return False


_SAME = {
    "fchmodat": "chmod",
    "linkat": "link",
    "mkdirat": "mkdir",
    "pwritev": "writev",
    "pwritev2": "writev",
    "renameat": "rename",
    "renameat2": "rename",
    "symlinkat": "symlink",
    "unlinkat": "unlink",
}


def write(tree: Tree, root: pathlib.Path) -> None:
    """Makes a folder hold a tree and nothing else."""
    clear(root)
    for name, entry in tree.items():
        path = root / name
        if entry.kind == "folder":
            path.mkdir()
        elif entry.kind == "link":
            path.symlink_to(os.fsdecode(entry.content or b""))
        elif entry.origin is not None:
            shutil.copy2(entry.origin, path)
        else:
            path.write_bytes(entry.content or b"")
        if entry.kind != "link":
            path.chmod(entry.mode)


def clear(root: pathlib.Path) -> None:
    """Removes all that is in a folder."""
    for each in root.iterdir():
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def found(root: pathlib.Path) -> Tree:
    """Returns what a folder holds."""
    held = {}
    for path in sorted(root.rglob("*")):
        mode, name = stat.S_IMODE(path.lstat().st_mode), str(path.relative_to(root))
        if path.is_symlink():
            held[name] = Entry(0o777, os.fsencode(os.readlink(path)), "link")
        elif path.is_dir():
            held[name] = Entry(mode, None, "folder")
        else:
            held[name] = Entry(mode, path.read_bytes(), "file")
    return held
