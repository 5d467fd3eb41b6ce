"""Derivation of run keys: every job gets the key that draws noise here, and no two runs share one.

A kept key never draws noise itself. Otherwise two runs would draw the same noise for the same sums: equal releases
would reveal that no row has changed, and different ones that some row has. The key that draws is derived from the kept
key, the run and a random nonce (`transforms/core/keys.py`). The nonce is durable before the first draw, in the run's
staging folder or in the ledger. A resumed run finds its nonce and repeats its noise; any other run has another nonce.

`run_graph` refuses a graph that holds a key from anywhere else.
"""

import contextlib
import contextvars
import dataclasses
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dapple_dp.pipelines.run.failures import FULL_DISK, is_full_disk
from dapple_dp.pipelines.run.folder import KEY_FILE, NONCE_FILE, absolute
from dapple_dp.schemas.errors import ConfigError, PrivacyFlowError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.privacy import key_files

if TYPE_CHECKING:
    import apache_beam as beam

_LOGGER = logging.getLogger(__name__)
_LEFT: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("_LEFT", default=())
HoldKey = Callable[..., contextlib.AbstractContextManager[str]]
"""Takes the place of a kept key and its name in errors; yields the place of the key that draws."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunNonce:
    """Random value that makes the keys of a run unique. It isn't secret: no key follows from it without the kept key.

    Attributes:
      run: id of the run.
      raw: random bytes.
    """

    run: str
    raw: bytes

    @classmethod
    def new(cls, run: str) -> "RunNonce":
        """Makes a new random nonce."""
        return cls(run=run, raw=secrets.token_bytes(keys.NONCE_BYTES))

    def place(self, uri: str) -> str:
        """Returns the place of the run's key, derived from the kept key at `uri`."""
        return run_place(absolute(uri), self.run, self.raw)


def run_place(uri: str, run: str, nonce: bytes) -> str:
    """Calls `dapple_dp.transforms.core.keys.run_place`; tests that know the drawing key replace it."""
    return keys.run_place(uri, run, nonce)


@contextlib.contextmanager
def run_keys(folder: str) -> Iterator[HoldKey]:
    """Yields a function that holds keys for a run of this process; its nonce stays in `folder` until the end.

    Args:
      folder: existing private folder of this run alone, named by its id.

    Yields:
      A function that creates a missing key and deletes it afterwards; existing keys are used and kept.

    Raises:
      ConfigError: if the folder has a nonce, because another attempt has begun there.
    """
    nonce = RunNonce.new(_name(folder))
    path = join(folder, NONCE_FILE)
    _write(path, nonce.raw)

    @contextlib.contextmanager
    def hold(uri: str, setting: str = "key_uri") -> Iterator[str]:
        if made := not STORE.exists(uri):
            key_files.create_key(uri, setting)
        try:
            yield nonce.place(uri)
        except BaseException:
            if made:
                end_key(uri, None, setting)
            raise
        if made:
            end_key(uri, folder, setting)

    try:
        yield hold
    finally:
        with contextlib.suppress(OSError):
            STORE.delete(path)


@contextlib.contextmanager
def own_key(folder: str, kept: str | None = None) -> Iterator[str]:
    """Yields the place of a run's key, for a run of this process.

    Args:
      folder: existing private folder of this run alone.
      kept: place of a key that is kept if it exists; None for a new one in the folder.
    """
    with run_keys(folder) as hold, hold(kept or join(folder, KEY_FILE)) as place:
        yield place


def run_key(place: str) -> RunKey:
    """Reads the key of this run, for rounds in memory.

    Args:
      place: place from `run_keys` or `RunNonce.place`.

    Raises:
      PrivacyFlowError: for the place of a kept key.
      ConfigError: if the key doesn't exist.
    """
    if not keys.is_run_place(place):
        raise PrivacyFlowError(f"rounds must have the key of one run, got the kept key at {place}; ask for its place.")
    return RunKey(key_files.read_key(place))


def memory_key() -> RunKey:
    """Makes a key that is only in memory; no other attempt can repeat its noise."""
    return RunKey(secrets.token_bytes(keys.KEY_BYTES))


def resumed_nonce(folder: str, run: str, *, begun: bool) -> RunNonce:
    """Reads the nonce of a resumable run from its staging folder, where it is created once.

    Args:
      folder: existing private folder of the run.
      run: id of the run.
      begun: whether noise may have been drawn.

    Raises:
      ConfigError: if noise may have been drawn, and the nonce is missing or damaged.
    """
    path = join(folder, NONCE_FILE)
    rule, remedy = f"{path} must be the nonce of the interrupted run", "restore it, or start over with another --run_id"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy=remedy)
    found = untrusted.read_bytes(path, refusal, keys.NONCE_BYTES) if STORE.exists(path) else b""
    if len(found) != keys.NONCE_BYTES and begun:
        raise refusal.because(f"{len(found)} bytes")
    if len(found) != keys.NONCE_BYTES:
        _forget_torn(path)
        found = secrets.token_bytes(keys.NONCE_BYTES)
        _write(path, found)
    return RunNonce(run=run, raw=found)


def end_key(uri: str, staging: str | None, setting: str = "key_uri") -> None:
    """Deletes a key that was created for a finished run.

    If that fails, the release is kept: the log and the command's summary ask for manual deletion.

    Args:
      uri: place of the key.
      staging: folder that becomes the output; None for a failed run.
      setting: name of the key in messages.

    Raises:
      ConfigError: if the key would move to the output with its folder.
    """
    try:
        key_files.delete_key(uri, setting)
    except (ConfigError, OSError):
        if staging is not None and is_local(uri) and os.path.dirname(absolute(uri)) == absolute(staging.rstrip("/")):
            raise
        _LEFT.set((*_LEFT.get(), uri))
        _LOGGER.warning("warning: the key %s could not be deleted; delete it by hand, since it reveals the noise", uri)


def keys_left() -> tuple[str, ...]:
    """Returns the keys that could not be deleted in this context, in the order of their runs."""
    return _LEFT.get()


def made_key(uri: str, setting: str = "key_uri") -> str:
    """Creates a kept key if it is missing, and returns its absolute path; the caller adds its own nonce."""
    with key_files.kept_key(uri, setting):
        return absolute(uri)


def check_held_keys(pipeline: "beam.Pipeline") -> None:
    """Refuses a graph that would draw with a kept key.

    Raises:
      PrivacyFlowError: if a step holds a key that doesn't belong to one run.
    """
    # Imported late, since runs in memory have no graph and need no Beam.
    from dapple_dp.transforms.on_beam.workers import held_keys

    for label, function in held_keys(pipeline):
        if function.of_a_run and function.place and not keys.is_run_place(function.place):
            raise PrivacyFlowError(
                f"{label} must hold the key of one run, got the kept key at {function.place}; ask "
                "pipelines/run/run_keys.py for its place."
            )


def _write(path: str, nonce: bytes) -> None:
    """Writes the nonce durably, before anything is drawn."""
    try:
        STORE.put_new(path, nonce)
    except FileExistsError as error:
        raise ConfigError(
            f"--run_id must be new, got that of an attempt that left {path}; choose another one."
        ) from error
    except OSError as error:
        if is_full_disk(error):
            raise FULL_DISK from error
        raise ConfigError(
            f"--output must be where private files can be made, got {path}; choose another place."
        ) from error


def _forget_torn(path: str) -> None:
    """Removes a nonce file that a killed process left incomplete."""
    if STORE.exists(path):
        STORE.delete(path)


def _name(folder: str) -> str:
    return os.path.basename(folder.rstrip("/"))
