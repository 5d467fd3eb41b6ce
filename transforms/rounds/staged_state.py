"""Stages large public arrays of a state in a file that steps read, outside of the graph and the broadcast.

A graph that holds them is too large for most runners, and every worker would get them in every round.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.formats.arrays_file import arrays_to_bytes
from dapple_dp.transforms.files.stores import join

STATE_FILE = "initial.npz"
_LARGE = 1 << 16
"""Bytes of the largest array that stays in the state."""
_ASSIGNER = "assigner"
_READ = ("centers", "anchors")
"""Arrays that statistics read, too: the points that rows are compared with."""


class StagedArrays(NamedTuple):
    """Place of the large arrays of the first state.

    Attributes:
      path: of an npz file in the staging folder.
      digest: SHA-256 of that file, 64 hex digits.
    """

    path: str
    digest: str


@contextlib.contextmanager
def staged_state(state: Any, folder: str) -> Iterator[tuple[Any, StagedArrays | None]]:
    """Yields a state that fits into graphs. The file stays for further attempts of the run.

    Args:
      state: before the first round; public.
      folder: private; exists, and workers share it.

    Yields:
      The state without its large arrays, and the place of these; the state itself and None if it has none.
    """
    arrays = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    large = {name: value for name, value in arrays.items() if type(value) is np.ndarray and value.nbytes > _LARGE}
    assigner = arrays.get(_ASSIGNER)
    if type(assigner) is Assigner and assigner.projection is None and assigner.centers.nbytes > _LARGE:
        large[_ASSIGNER] = assigner.centers
    if not large:
        yield state, None
        return
    path, content = join(folder, STATE_FILE), arrays_to_bytes(large)
    write_bytes(path, content)
    light = {name: None if name == _ASSIGNER else _absent(value) for name, value in large.items()}
    try:
        yield dataclasses.replace(state, **light), StagedArrays(path, hashlib.sha256(content).hexdigest())
    finally:
        _arrays.cache_clear()


def with_arrays(round_: Round, staged: StagedArrays | None) -> Round:
    """Returns a round whose step restores the arrays where it runs, and drops them again; unchanged without any."""
    return round_ if staged is None else round_._replace(step=functools.partial(_staged_step, round_.step, staged))


def _staged_step(step: Callable[[Any, Releases], Any], staged: StagedArrays, state: Any, releases: Releases) -> Any:
    return drop_arrays(step(restore(state, staged), releases), staged)


def begin(state: Any, staged: StagedArrays) -> Any:
    """Returns the first state with the arrays that its statistic reads: the points that rows are assigned to."""
    arrays = _arrays(staged)
    read: dict[str, Any] = {name: arrays[name] for name in _READ if name in arrays}
    if _ASSIGNER in arrays:
        read[_ASSIGNER] = Assigner(arrays[_ASSIGNER])
    return dataclasses.replace(state, **read) if read else state


def restore(state: Any, staged: StagedArrays) -> Any:
    """Returns a state with its staged arrays."""
    found = {name: value for name, value in _arrays(staged).items() if _is_absent(getattr(state, name, None), value)}
    return dataclasses.replace(state, **found) if found else state


def drop_arrays(state: Any, staged: StagedArrays) -> Any:
    """Returns a state without staged arrays; those that a step has changed, or that statistics read, stay."""
    file = {name: value for name, value in _arrays(staged).items() if name not in _READ}
    names = [name for name, value in file.items() if getattr(state, name, None) is value]
    return dataclasses.replace(state, **{name: _absent(getattr(state, name)) for name in names}) if names else state


def _absent(array: NDArray[Any]) -> NDArray[Any]:
    """Returns a placeholder for an array: as many rows, but no columns; an empty array for a vector."""
    return np.zeros((len(array), 0), dtype=array.dtype) if array.ndim > 1 else array[:0].copy()


def _is_absent(value: Any, array: NDArray[Any]) -> bool:
    """Returns whether a value is the placeholder of an array."""
    return type(value) is np.ndarray and value.shape == _absent(array).shape


@functools.lru_cache(maxsize=2)
def _arrays(staged: StagedArrays) -> dict[str, NDArray[Any]]:
    """Reads the arrays of a file, once per process; raises InputError if the file has changed."""
    rule = "the public points in the staging folder must not change"
    refusal = Refusal(kind=InputError, rule=rule, remedy="use a folder that the workers and the launcher share")
    content = untrusted.read_bytes(staged.path, refusal)
    if hashlib.sha256(content).hexdigest() != staged.digest:
        raise refusal.because("other ones")
    arrays = untrusted.arrays_of(content, refusal)
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
