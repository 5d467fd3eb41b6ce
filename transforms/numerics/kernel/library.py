"""The compiled library next to this file, if it was built here from the sources next to it.

`setup.py` builds it if there is a C compiler. It doesn't use Python's API, so one library serves all
versions of Python.
"""

import ctypes
import functools
import hashlib
import logging
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

SWITCH = "DAPPLE_KERNEL"
"""Variable that chooses an implementation with the same integers: `numpy`, `baseline`, `avx2` or `avx512`."""
LEVELS = {"numpy": 0, "baseline": 1, "avx2": 3, "avx512": 4}
_FOLDER = pathlib.Path(__file__).parent
_NAME = "_rows.so"
_log = logging.getLogger(__name__)


class Library(NamedTuple):
    """A loaded library.

    Attributes:
      add_rows: `dapple_add_rows` of rows.c.
      quantize: `dapple_quantize` of lattice.c.
      lanes: centers of a tile by level and number of centers.
      scratch: numbers of its scratch space by number of features.
      scale: `dapple_scale` of lattice.c.
      add_scatter: `dapple_add_scatter` of scatter.c.
      scatter_scratch: numbers of its scratch space by number of features.
      level: vector instructions that it uses here, a value of `LEVELS` above 0.
    """

    add_rows: Callable[..., int]
    quantize: Callable[..., None]
    scale: Callable[..., None]
    lanes: Callable[[int, int], int]
    scratch: Callable[[int], int]
    add_scatter: Callable[..., int]
    scatter_scratch: Callable[[int], int]
    level: int

    @classmethod
    def of(cls, path: pathlib.Path, most: int) -> "Library | None":
        """Loads a library; returns None if it was built from other sources, or isn't a library.

        Args:
          path: of the library.
          most: highest level that it may use.
        """
        try:
            found = ctypes.CDLL(str(path))
            found.dapple_sources.restype = ctypes.c_char_p
            if found.dapple_sources() != sources_digest().encode():
                return None
        except (OSError, AttributeError):
            return None
        for name, arguments in _ARGUMENTS.items():
            getattr(found, name).argtypes, getattr(found, name).restype = arguments, _NUMBER
        found.dapple_quantize.restype = found.dapple_scale.restype = None
        return cls(
            add_rows=found.dapple_add_rows,
            quantize=found.dapple_quantize,
            scale=found.dapple_scale,
            lanes=found.dapple_lanes,
            scratch=found.dapple_scratch,
            add_scatter=found.dapple_add_scatter,
            scatter_scratch=found.dapple_scatter_scratch,
            level=min(found.dapple_level(), most),
        )


_POINTER, _NUMBER, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_ADD_ROWS: list[Any] = [_NUMBER, _NUMBER, _POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER, _NUMBER, _NUMBER]
_ADD_ROWS += [_REAL, _REAL, _NUMBER, *[_POINTER] * 6]
_QUANTIZE: list[Any] = [_NUMBER, _POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER, *[_REAL] * 4, *[_POINTER] * 3]
_ARGUMENTS: dict[str, list[Any]] = {
    "dapple_add_rows": _ADD_ROWS,
    "dapple_add_scatter": [_NUMBER, _POINTER, _NUMBER, _NUMBER, _REAL, _POINTER, _POINTER],
    "dapple_lanes": [_NUMBER, _NUMBER],
    "dapple_level": [],
    "dapple_quantize": _QUANTIZE,
    "dapple_scale": [_NUMBER, _POINTER, _NUMBER, _NUMBER, _NUMBER, _POINTER, _NUMBER, _POINTER],
    "dapple_scatter_scratch": [_NUMBER],
    "dapple_scratch": [_NUMBER],
}


def sources_digest() -> str:
    """Returns the SHA-256 of the C sources, as `setup.py` passes it to the compiler."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_FOLDER.glob("*.c")))).hexdigest()


@functools.cache
def library() -> Library | None:
    """Returns the library of this process; None if NumPy does the work."""
    most = LEVELS.get(os.environ.get(SWITCH, ""), max(LEVELS.values()))
    found = Library.of(_FOLDER / _NAME, most) if most else None
    if found is None:
        _log.info("Rows are added up by NumPy, three times slower, because the compiled kernel is missing.")
    return found
