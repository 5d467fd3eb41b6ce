"""Local files that last: content is flushed before a name is, so a power cut leaves a whole file or none."""

import contextlib
import errno
import os
import secrets
import stat


def create(path: str, content: bytes) -> None:
    """Writes a whole file that nobody has written, for its owner only; content and name are durable on return.

    Raises:
      FileExistsError: if something is there, a dangling link too.
      OSError: if it cannot be written.
    """
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
    create(made, content)
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


_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)
"""What file systems say that cannot flush a folder on its own."""
