"""A stream that lets a file's columns be checked before Arrow reads them, with one request to the store for both."""

import io
from typing import Any


class HeldStream(io.RawIOBase):
    """A stream that keeps ranges of its file until they are read.

    Args:
      source: an open, seekable file of a store.
    """

    def __init__(self, source: Any):
        self._source = source
        self._place = 0
        self._held: dict[int, bytes] = {}

    def hold(self, start: int, n_bytes: int) -> None:
        """Reads a range and keeps it, unless it is kept already."""
        if start not in self._held or len(self._held[start]) < n_bytes:
            self._source.seek(start)
            self._held[start] = bytes(self._source.read(n_bytes))

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position; only the end needs a request."""
        if whence == io.SEEK_END:
            self._place = self._source.seek(offset, io.SEEK_END)
        else:
            self._place = offset + (self._place if whence == io.SEEK_CUR else 0)
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        """Returns bytes from the current position on; drops a kept range once it is read as a whole."""
        result = self._from_held(size)
        if result is None:
            self._source.seek(self._place)
            result = bytes(self._source.read(size))
        self._place += len(result)
        return result

    def _from_held(self, size: int) -> bytes | None:
        for start, content in self._held.items():
            offset = self._place - start
            if offset >= 0 and 0 < size <= len(content) - offset:
                return self._held.pop(start) if size == len(content) else content[offset : offset + size]
        return None

    def close(self) -> None:
        """Closes the file as well."""
        if not self.closed:
            self._held.clear()
            self._source.close()
        super().close()
