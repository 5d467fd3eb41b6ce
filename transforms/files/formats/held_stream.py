"""A file of a store whose columns are looked at before Arrow reads them, by one request for both."""

import io
from typing import Any


class HeldStream(io.RawIOBase):
    """A stream that keeps ranges of its file until they are read.

    Args:
      source: an open file of a store, which can be sought in.
    """

    def __init__(self, source: Any):
        self._source = source
        self._place = 0
        self._held: dict[int, bytes] = {}

    def hold(self, start: int, n_bytes: int) -> None:
        """Reads a range, unless it is held."""
        if start not in self._held or len(self._held[start]) < n_bytes:
            self._source.seek(start)
            self._held[start] = bytes(self._source.read(n_bytes))

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The place from which the next bytes come."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place; asks for nothing but the end."""
        if whence == io.SEEK_END:
            self._place = self._source.seek(offset, io.SEEK_END)
        else:
            self._place = offset + (self._place if whence == io.SEEK_CUR else 0)
        return self._place

    def read(self, size: int = -1, /) -> bytes:
        """Bytes from this place on; a range that is read as a whole is held no longer."""
        found = self._from_held(size)
        if found is None:
            self._source.seek(self._place)
            found = bytes(self._source.read(size))
        self._place += len(found)
        return found

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
