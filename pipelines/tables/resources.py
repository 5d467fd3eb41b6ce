"""Memory, cores and disk that a job uses within the limits of its control group."""

import contextlib
import logging
import secrets
from collections.abc import Iterator

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

from dapple_dp.pipelines.run.options import MOST_CORES, check_limits, runs_in_process, shuffles_in_memory
from dapple_dp.schemas.errors import RunnerError
from dapple_dp.transforms.files.stores import is_local
from dapple_dp.transforms.rounds import machine
from dapple_dp.transforms.rounds.row_cache import CACHES, NO_LIMITS, WorkerLimits, disk_of, memory_of
from dapple_dp.transforms.tables.file_seal import FileSeal
from dapple_dp.transforms.tables.listing import OneListing

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def worker_limits(options: PipelineOptions) -> Iterator[WorkerLimits]:
    """Yields the worker limits of a run; caches in this process are freed at the end.

    Without `--cores`, workers in this process use all cores available to it, if memory suffices for as many threads;
    other workers leave the cores to their runner.

    Raises:
      ConfigError: for numbers out of range.
    """
    if runs_in_process(options):
        _LOGGER.info("this job runs in one process without Beam, and keeps all rows in memory")
        yield NO_LIMITS
        return
    given = check_limits(options)
    alone = shuffles_in_memory(options) and options.view_as(DirectOptions).direct_num_workers == 1
    cores = given.cores or (machine.threads(MOST_CORES) if alone else 0)
    limits = WorkerLimits(run=secrets.token_hex(8), cores=cores, cache_bytes=given.cache_megabytes << 20)
    if alone:
        _LOGGER.info("%s", _plan(limits, chosen=given.cores is not None))
    with CACHES.held(limits.run):
        yield limits


def check_room(listed: OneListing | None, folder: str) -> None:
    """Refuses to copy rows to a disk with less free space than their files take.

    Args:
      listed: files whose rows are copied.
      folder: folder of the copy; stores are assumed to have enough space.

    Raises:
      RunnerError: if there is too little space.
    """
    if listed is None or not is_local(folder):
        return
    if sum(FileSeal.of_text(file.seal).size for file in listed.files) > machine.free_disk(folder, left=False):
        raise RunnerError(
            "The disk of --output is too small for a copy of the rows that is grouped by client; make room, or put "
            "--output on a larger disk."
        )


def _plan(limits: WorkerLimits, *, chosen: bool) -> str:
    """Describes the resources of the job and the reason; depends only on the machine, not on rows."""
    reason = "all available cores" if limits.cores >= machine.cores() else "since memory is short"
    threads = f"{limits.cores} thread{'s' * (limits.cores != 1)} ({'--cores' if chosen else reason})"
    if not limits.cache_bytes:
        return f"this job uses {threads} and reads rows again in every round (--cache_megabytes 0)"
    folder, on_disk = disk_of(limits.cache_bytes)
    free = machine.free_memory()
    of = "" if free is None else f" of {free >> 20} available"
    return (
        f"this job uses {threads} and keeps rows in memory, up to {memory_of(limits.cache_bytes) >> 20} MiB{of}, then "
        f"up to {on_disk >> 20} MiB in {folder}, a sixth of which stays free"
    )
