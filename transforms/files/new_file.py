"""Durable local files: content is flushed before its name, so a power cut leaves a whole file or none."""

import contextlib
import errno
import os
import secrets
import stat


def create(path: str, content: bytes, mode: int = 0o600) -> None:
    """Creates a file, by default for its owner only; content and name are durable on return.

    Raises:
      FileExistsError: if something is there, a dangling link too.
      OSError: if it cannot be written.
    """
    _write(path, content, mode)
    flush(os.path.dirname(path))


def put_in_place(path: str, content: bytes, mode: int = 0o600) -> None:
    """Writes a whole file on a local disk, or replaces one; a killed process leaves the old file or the new one.

    Args:
      path: durable on return.
      content: of the file.
      mode: of the file, by default for its owner only.

    Raises:
      OSError: if it cannot be written.
    """
    made = f"{path}.{secrets.token_hex(8)}"
    create(made, content, mode)
    rename(made, path)


def rename(path: str, other: str) -> None:
    """Renames a local file that is on the disk, replacing any other; the name is durable on return."""
    os.replace(path, other)
    flush(os.path.dirname(other))


def link_in_place(path: str, content: bytes, mode: int) -> None:
    """Creates a whole file on a local disk, which nobody sees half written, unless the file exists.

    A killed process leaves the content under a second name. So keys are created by `create`, which has
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
    """Creates a local folder and its missing parents; their names are durable on return.

    Args:
      path: of the folder; an existing one is no error.
      mode: of the folder; its parents get the default.

    Raises:
      OSError: if one can't be created.
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
    """Creates a file whose content is on the disk on return; its name may not be."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def flush(path: str) -> None:
    """Flushes the content of a local file, or the names in a local folder, to the disk; does nothing for pipes.

    Raises:
      OSError: if flushing fails.
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


_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)
"""Errors of file systems that can't flush a single folder."""
