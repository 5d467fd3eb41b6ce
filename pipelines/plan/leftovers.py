"""`dapple tools clean`: finds folders that killed runs left beside their outputs, with keys and copies of rows.

A job in a Flink cluster continues after its driver is killed. It is found by the name of its run, and stopped before
the folder is removed.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run import on_flink
from dapple_dp.pipelines.run.folder import KEY_FILE, MANIFEST, NONCE_FILE, SECRET_FILE, VERSIONS_FILE
from dapple_dp.pipelines.run.on_flink import FlinkJob
from dapple_dp.pipelines.tables.private_source import LISTING_FILE
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.privacy.ledger_entry import RunStatus, run_states
from dapple_dp.schemas.settings.run_manifest import RELEASED_FILES
from dapple_dp.transforms.files.checkpoint import MANIFEST_FILE
from dapple_dp.transforms.files.claims import is_locked
from dapple_dp.transforms.tables.staging_names import parsed

_OURS = {KEY_FILE, NONCE_FILE, SECRET_FILE, VERSIONS_FILE, MANIFEST, MANIFEST_FILE, LISTING_FILE, *RELEASED_FILES}
_IN_COPY = re.compile(
    rf"{re.escape(LISTING_FILE)}|split\.json|(before|called)\.npz|[0-9a-f]{{16}}(\.jsonl|-[0-9]+)|\.rows-[0-9a-f.]+|"
    r".*(\.parquet|manifest\.json)|\..*\.parquet\.[0-9a-f]{16}"
)
"""File names in a private copy of rows, from the listing of files to the rows grouped by client."""
_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Leftover:
    """A folder that a run may have left behind.

    Attributes:
      path: path of the folder.
      run_id: id of the run.
      hours: hours since the last change in it.
      kept: reason to keep it unless it is abandoned; "" if it is useless.
      alien: reason to never remove it; "" if it may be removed.
      jobs: names of the run's jobs that still run in the cluster.
    """

    path: str
    run_id: str
    hours: float
    kept: str
    alien: str
    jobs: tuple[str, ...] = ()

    def goes(self, given: SimpleNamespace) -> bool:
        """Returns whether the folder is removed."""
        return given.delete and not self.alien and (given.abandon or not self.kept)


def run(given: SimpleNamespace) -> dict[str, Any]:
    """Runs the command; returns the summary that is printed last.

    Raises:
      ConfigError: if the folder doesn't exist on a local disk.
      LedgerRefusedError: if the ledger can't be read.
      RunnerError: if the named cluster doesn't answer, or a job there doesn't stop.
    """
    if not os.path.isdir(given.folder):
        raise ConfigError(
            f"the folder must be one on a local disk, got {given.folder}; give the folder of the outputs."
        )
    states = None if given.ledger is None else run_states(Ledger(given.ledger).entries())
    going = () if given.flink_master is None else on_flink.running_jobs(given.flink_master)
    every = [_with_jobs(leftover, going) for leftover in _leftovers(given.folder, states)]
    found = [each for each in every if each.hours >= given.hours]
    stopped = _stopped(given, [job for job in going if any(_stops(each, job, given) for each in found)])
    deleted = [each.path for each in found if each.goes(given) and _removed(each.path)]
    for each in found:
        sys.stdout.write(_line(each, each.path in deleted, stopped) + "\n")
    if not found:
        sys.stdout.write(f"No run has left anything in {given.folder} for {given.hours:g} hours or longer.\n")
    known = {name for each in every for name in each.jobs}
    others = [job.name for job in going if job.name not in known]
    sys.stdout.writelines(f"{name}: goes on in the cluster; no folder here is of its run.\n" for name in others)
    jobs = {"stopped": stopped, "others": others} if given.flink_master is not None else {}
    return {"folder": given.folder, "found": [dataclasses.asdict(each) for each in found], "deleted": deleted} | jobs


def _with_jobs(found: _Leftover, going: Sequence[FlinkJob]) -> _Leftover:
    """Adds the running jobs of a folder's run."""
    return dataclasses.replace(found, jobs=tuple(job.name for job in going if job.is_of(found.run_id)))


def _stops(found: _Leftover, job: FlinkJob, given: SimpleNamespace) -> bool:
    """Returns whether to stop a job with its folder: nobody waits for it, even if its run could be resumed."""
    return given.delete and not found.alien and job.name in found.jobs


def _stopped(given: SimpleNamespace, jobs: Sequence[FlinkJob]) -> list[str]:
    if jobs:
        on_flink.stop(given.flink_master, jobs)
    return [job.name for job in jobs]


def _leftovers(folder: str, states: Mapping[str, RunStatus] | None) -> Iterator[_Leftover]:
    """Yields folders named like a staging folder, in order of their names."""
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        name = parsed(entry.name)
        if name is None or not name.output:
            continue
        if entry.is_symlink() or not entry.is_dir():
            yield _Leftover(path=entry.path, run_id=name.run, hours=0.0, kept="", alien="it is no folder")
            continue
        names = set(os.listdir(entry.path))
        staging = entry.path.removesuffix(".clients") if name.is_copy else entry.path
        yield _Leftover(
            path=entry.path,
            run_id=name.run,
            hours=max(0.0, time.time() - _last_change(entry.path)) / _SECONDS,
            kept=_kept(staging, name.run, states),
            alien=_alien(entry.path, staging, names, copy=name.is_copy),
        )


def _alien(path: str, staging: str, names: set[str], *, copy: bool) -> str:
    """Reason to never remove a folder; "" if it belongs to a run and nobody works in it."""
    if is_locked(path) or is_locked(staging):
        return "a run is under way in it, or it is another user's"
    ours = any(map(_IN_COPY.fullmatch, names)) if copy else names & _OURS
    if names and not ours:
        return "no run has written what is in it"
    return ""


def _kept(staging: str, run_id: str, states: Mapping[str, RunStatus] | None) -> str:
    """Explains how a run could still be used; "" if it can't."""
    status = None if states is None else states.get(run_id)
    if status is not None and status.committed is not None and os.path.exists(os.path.join(staging, MANIFEST)):
        return "its release is complete: the same command with this --run_id puts it in place for free"
    again = status is not None and status.release is not None and os.path.exists(os.path.join(staging, KEY_FILE))
    if again or (status is not None and status.state == "reserved"):
        return "its budget is spent: the same command with this --run_id resumes it for free"
    if os.path.exists(os.path.join(staging, MANIFEST_FILE)):
        return "it has a checkpoint: the same command with this --run_id resumes it"
    unknown = states is None and not os.path.exists(os.path.join(staging, NONCE_FILE))
    if unknown and any(os.path.exists(os.path.join(staging, name)) for name in (KEY_FILE, MANIFEST)):
        return "a ledger may hold it: give --ledger"
    return ""


def _last_change(path: str) -> float:
    """Latest change of a folder or anything in it, in seconds since 1970."""
    times = [os.lstat(path).st_mtime]
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            with contextlib.suppress(OSError):
                times.append(os.lstat(os.path.join(place, name)).st_mtime)
    return max(times)


def _removed(path: str) -> bool:
    """Removes a folder while no run can resume in it; returns False if a run was faster.

    A run starts under the lock of its output's parent folder, and works under the lock of its staging folder.
    """
    with contextlib.ExitStack() as stack:
        try:
            places = {os.path.dirname(path): 0, path.removesuffix(".clients"): os.O_NOFOLLOW, path: os.O_NOFOLLOW}
            for place, flag in places.items():
                with contextlib.suppress(FileNotFoundError):
                    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | flag)
                    stack.callback(os.close, folder)
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        except BlockingIOError:
            return False
        except OSError as error:
            raise InputError(f"{path} could not be removed; check its permissions.") from error
    return True


def _line(found: _Leftover, deleted: bool, stopped: Sequence[str] = ()) -> str:
    head = f"{found.path}: run {found.run_id}, untouched for {found.hours:.0f} hours"
    for job in found.jobs:
        head += f", {job} is stopped" if job in stopped else f", {job} goes on in the cluster"
    if deleted:
        return f"{head}; removed."
    if found.alien:
        return f"{found.path}: left alone, since {found.alien}."
    if found.kept:
        return f"{head}; {found.kept}, or --delete --abandon removes it."
    return f"{head}; it holds keys or rows and is of no use: --delete removes it."
