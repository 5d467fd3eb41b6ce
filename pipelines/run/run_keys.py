"""The gate of keys: every job passes it to get the place of a key that draws in this run, and in no other.

A kept key never draws. Under it two runs would draw the same noise for the same sums, so equal releases would reveal
that no row has changed, and differing ones that some row has. What draws is derived from the kept key, the run and a
random nonce (`transforms/core/keys.py`). The nonce is durable before the first draw, in the run's staging folder or
in the ledger. A run that is taken up finds its nonce and repeats its noise. Any other run has another nonce.
`run_graph` refuses a graph in which a key is held that has not come this way.
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
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.privacy import key_files

if TYPE_CHECKING:
    import apache_beam as beam

_LOGGER = logging.getLogger(__name__)
_LEFT: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("_LEFT", default=())
HoldKey = Callable[..., contextlib.AbstractContextManager[str]]
"""Takes the place of a kept key, and what it is called in errors; gives the place of the key that draws."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunNonce:
    """What makes the keys of a run its own. It is not secret: without the kept key it gives no key.

    Attributes:
      run: its id.
      raw: random.
    """

    run: str
    raw: bytes

    @classmethod
    def new(cls, run: str) -> "RunNonce":
        """A nonce that no run has had."""
        return cls(run=run, raw=secrets.token_bytes(keys.NONCE_BYTES))

    def place(self, uri: str) -> str:
        """The place of the run's key, derived from the kept key at `uri`."""
        return run_place(absolute(uri), self.run, self.raw)


def run_place(uri: str, run: str, nonce: bytes) -> str:
    """`dapple_dp.transforms.core.keys.run_place`, where tests that know the key that draws put another function."""
    return keys.run_place(uri, run, nonce)


@contextlib.contextmanager
def run_keys(folder: str) -> Iterator[HoldKey]:
    """What holds the keys of a run that is over when its process is; its nonce is in `folder` until then.

    Args:
      folder: of this run only, private; exists. Its name is the id of the run.

    Yields:
      Makes a key that is missing, and deletes it afterwards; one that exists is used and kept.

    Raises:
      ConfigError: if the folder has a nonce: another attempt has begun there.
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
    """The place of the key of a run that is over when its process is.

    Args:
      folder: of this run only, private; exists.
      kept: the place of a key that stays if it exists; None for a new one in the folder.
    """
    with run_keys(folder) as hold, hold(kept or join(folder, KEY_FILE)) as place:
        yield place


def run_key(place: str) -> RunKey:
    """The key at a place of this run, for rounds in memory.

    Args:
      place: that `run_keys` or `RunNonce.place` gave.

    Raises:
      PrivacyFlowError: for the place of a kept key.
      ConfigError: if there is no key.
    """
    if not keys.is_run_place(place):
        raise PrivacyFlowError(f"rounds must have the key of one run, got the kept key at {place}; ask for its place.")
    return RunKey(key_files.read_key(place))


def memory_key() -> RunKey:
    """A new key that is nowhere but in memory, and gone when its run is over; no other attempt repeats its noise."""
    return RunKey(secrets.token_bytes(keys.KEY_BYTES))


def resumed_nonce(folder: str, run: str, *, begun: bool) -> RunNonce:
    """The nonce of a run that other processes may take up; it is in the staging folder and is made there once.

    Args:
      folder: of the run, private; exists.
      run: its id.
      begun: whether noise may have been drawn.

    Raises:
      ConfigError: if noise may have been drawn under a nonce that is gone or damaged.
    """
    path = join(folder, NONCE_FILE)
    rule, remedy = f"{path} must be the nonce of the interrupted run", "restore it, or start over with another --run_id"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy=remedy)
    found = gate.read_bytes(path, refusal, keys.NONCE_BYTES) if STORE.exists(path) else b""
    if len(found) != keys.NONCE_BYTES and begun:
        raise refusal.because(f"{len(found)} bytes")
    if len(found) != keys.NONCE_BYTES:
        _forget_torn(path)
        found = secrets.token_bytes(keys.NONCE_BYTES)
        _write(path, found)
    return RunNonce(run=run, raw=found)


def end_key(uri: str, staging: str | None, setting: str = "key_uri") -> None:
    """Deletes a key that was made for a run which is over.

    One that cannot be deleted costs no release: the log asks a person to do it, and so does the summary of the command.

    Args:
      uri: of the key.
      staging: folder that becomes the output; None if the run has failed.
      setting: what messages call the key.

    Raises:
      ConfigError: for a key that would be moved to the output with its folder.
    """
    try:
        key_files.delete_key(uri, setting)
    except (ConfigError, OSError):
        if staging is not None and is_local(uri) and os.path.dirname(absolute(uri)) == absolute(staging.rstrip("/")):
            raise
        _LEFT.set((*_LEFT.get(), uri))
        _LOGGER.warning("warning: the key %s could not be deleted; delete it by hand, since it reveals the noise", uri)


def keys_left() -> tuple[str, ...]:
    """Keys that could not be deleted in this context, in the order in which their runs ended."""
    return _LEFT.get()


def made_key(uri: str, setting: str = "key_uri") -> str:
    """`uri`, where a kept key is now; the caller holds its own nonce against it."""
    with key_files.kept_key(uri, setting):
        return absolute(uri)


def check_held_keys(pipeline: "beam.Pipeline") -> None:
    """Refuses a graph that would draw under a kept key.

    Raises:
      PrivacyFlowError: if a step holds a key that is not of one run.
    """
    # Keys of runs in memory are held by no graph, and need no Beam.
    from dapple_dp.transforms.on_beam.workers import held_keys

    for label, function in held_keys(pipeline):
        if function.of_a_run and function.place and not keys.is_run_place(function.place):
            raise PrivacyFlowError(
                f"{label} must hold the key of one run, got the kept key at {function.place}; ask "
                "pipelines/run/run_keys.py for its place."
            )


def _write(path: str, nonce: bytes) -> None:
    """Makes the file of a nonce, durable before anything is drawn."""
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
    """Removes what a process left that was killed while it wrote the nonce."""
    if STORE.exists(path):
        STORE.delete(path)


def _name(folder: str) -> str:
    return os.path.basename(folder.rstrip("/"))
