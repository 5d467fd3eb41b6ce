"""Runs long protocols in chunks of rounds with a checkpoint after each, and resumes them.

A stopped run resumes with its --run_id from the last checkpoint. Later rounds run again with the same key and give the
same bytes, so nothing is spent twice.
"""

import contextlib
import functools
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from dapple_dp.pipelines.run.folder import KEY_FILE, MANIFEST, RunFolder, is_of_rounds
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import shuffles_in_memory
from dapple_dp.pipelines.run.run_keys import end_key, resumed_nonce
from dapple_dp.schemas.core.plan import GraphPrivacy, Promise
from dapple_dp.schemas.errors import ConfigError, DappleError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.settings.run_manifest import RunManifest
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.checkpoint import (
    MANIFEST_FILE,
    Arrays,
    Checkpoint,
    CheckpointFolder,
    RunBinding,
    read_state,
    write_arrays,
)
from dapple_dp.transforms.files.file_bytes import remove_files
from dapple_dp.transforms.files.signals.measures import MEASURES, ROUND_SECONDS
from dapple_dp.transforms.files.signals.progress import duration
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.privacy.key_files import make_key, read_key

_LOGGER = logging.getLogger(__name__)
MOST_ROUNDS_ON_FLINK = 22
_ON_A_JOB_SERVER = ("flinkrunner", "portablerunner")
"""Runner names as Beam compares them: in any case, or the path of the class."""
_ROUNDS_ON_A_JOB_SERVER = 10
LARGE_BYTES = 8 << 30
"""Bytes of rows above which a separate pipeline costs less than a hundredth of a round on one machine."""

InProcess = Callable[[Arrays], GraphPrivacy]
"""Takes the state before the first round, writes the releases, and returns the spending."""


def rounds_of_a_graph(options: PipelineOptions, n_rounds: int, wanted: int | None, n_bytes: int) -> int:
    """Number of rounds to put into one graph of a job.

    Args:
      options: Beam options.
      n_rounds: number of rounds of the job.
      wanted: number set in the job. None means all rounds, but ten on a job server for Flink, and one if a single
        machine reads `LARGE_BYTES` or more.
      n_bytes: approximate bytes of the rows in memory.
    """
    if wanted is None and _is_on_a_job_server(options):
        wanted = _ROUNDS_ON_A_JOB_SERVER
    elif wanted is None and n_bytes >= LARGE_BYTES and shuffles_in_memory(options):
        wanted = 1
    return n_rounds if wanted is None else min(wanted, n_rounds)


def _is_on_a_job_server(options: PipelineOptions) -> bool:
    return str(options.view_as(StandardOptions).runner).rpartition(".")[2].lower() in _ON_A_JOB_SERVER


def check_rounds(options: PipelineOptions, n_rounds: int, setting: str) -> None:
    """Refuses more rounds than Flink can plan.

    Flink's optimizer follows every path from the end of a graph to its start. A round uses the previous state twice, so
    each further round doubles the number of paths, and the job server would hang for hours.

    Args:
      options: Beam options.
      n_rounds: number of rounds in one graph.
      setting: setting that determines the number.

    Raises:
      ConfigError: if there are too many.
    """
    if _is_on_a_job_server(options) and n_rounds > MOST_ROUNDS_ON_FLINK:
        raise ConfigError(
            f"{setting} must leave at most {MOST_ROUNDS_ON_FLINK} rounds to one pipeline on a Flink cluster, where "
            f"each further round doubles the planning time, got {n_rounds}; lower it or use another runner."
        )


class ChunkedProtocol(Protocol):
    """A protocol whose rounds 1 to `n_rounds` can run in chunks.

    All noise of a round must be a function of the run key, the round and the drawing stage, so that a repeated round
    gives the same release.
    """

    n_rounds: int
    asks_last: bool
    """True if the arrays after the last round are needed; otherwise its graph writes the releases."""

    def initial(self) -> Arrays:
        """Returns the public state before the first round."""
        ...

    def add_rounds(self, root: beam.Pipeline, arrays: Arrays, first: int, last: int) -> beam.PCollection:
        """Adds rounds `first` to `last`, starting from `arrays`, to a pipeline; returns one element of `Arrays`.

        The element is ignored after the last round unless `asks_last` is set.
        """
        ...

    def promise(self, first: int, last: int) -> Promise:
        """Promise that the graph of these rounds must keep."""
        ...

    def events(self, n_rounds: int) -> Sequence[Mapping[str, Any]]:
        """Privacy events of the first `n_rounds` rounds, as JSON."""
        ...

    def rounds_done(self, arrays: Arrays) -> int:
        """Returns the number of rounds in the arrays; raises ValueError or KeyError if they are malformed."""
        ...


def plan_digest(events: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of the privacy events of a whole run."""
    canonical = json.dumps(list(events), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def run_chunks(
    protocol: ChunkedProtocol,
    folder: str,
    binding: RunBinding,
    options: PipelineOptions,
    rounds_per_pipeline: int,
    in_process: InProcess | None = None,
) -> Checkpoint:
    """Runs the remaining rounds.

    Args:
      protocol: protocol of the run.
      folder: private folder of the run; holds the checkpoint of an interrupted run.
      binding: digests that a resumed run must share.
      options: Beam options.
      rounds_per_pipeline: rounds per graph, at least 1; doesn't change results.
      in_process: runs all rounds without Beam; None to run graphs.

    Returns:
      The checkpoint after the last round; its arrays are the last recorded ones.

    Raises:
      ConfigError: if the run can't be resumed from the checkpoint.
      DappleError: if the run fails; finished rounds are kept.
    """
    checkpoints = CheckpointFolder(folder)
    plan = list(protocol.events(protocol.n_rounds))
    state = _begun(checkpoints, protocol, binding, plan)
    if in_process is not None:
        rounds_per_pipeline = protocol.n_rounds
        if state.rounds:
            raise ConfigError(
                "this run was begun with Beam, so --runner=InProcess can't resume it; leave the flag out."
            )
    start, done_before = time.monotonic(), state.rounds
    while state.rounds < protocol.n_rounds:
        first, last = state.rounds + 1, min(state.rounds + rounds_per_pipeline, protocol.n_rounds)
        path = checkpoints.arrays_path(last)
        kept = protocol.asks_last or last < protocol.n_rounds
        add = functools.partial(_build, protocol=protocol, arrays=state.arrays, first=first, last=last)
        build = functools.partial(add, path=path if kept else None)
        with MEASURES.timed(ROUND_SECONDS, f"{first} to {last}"):
            if in_process is None:
                found = run_graph(build, options, protocol.promise(first, last))
            else:
                found = in_process(state.arrays)
        state = Checkpoint(
            rounds=last,
            binding=binding,
            plan={"events": plan},
            events=protocol.events(last),
            arrays=read_state(path) if kept else state.arrays,
            extended=(*state.extended, *(each for each in found.extended if each not in state.extended)),
        )
        if kept:
            checkpoints.save(state)
        left = (time.monotonic() - start) * (protocol.n_rounds - last) / (last - done_before)
        _LOGGER.info("rounds %d to %d of %d are done, %s left", first, last, protocol.n_rounds, duration(left))
    return state


def _begun(
    checkpoints: CheckpointFolder, protocol: ChunkedProtocol, binding: RunBinding, plan: list[Mapping[str, Any]]
) -> Checkpoint:
    """Loads the checkpoint of an interrupted run, or saves one before the first round."""
    state = checkpoints.latest()
    if state is None:
        state = Checkpoint(rounds=0, binding=binding, plan={"events": plan}, events=(), arrays=protocol.initial())
        checkpoints.save(state)
    state.check(binding)
    _check_state(state, protocol, checkpoints.refusal)
    if state.rounds:
        _LOGGER.info("going on after round %d of %d", state.rounds, protocol.n_rounds)
    return state


def _check_state(state: Checkpoint, protocol: ChunkedProtocol, refusal: Refusal) -> None:
    """Refuses an inconsistent checkpoint, which would skip or repeat rounds."""
    with refusal.covers():
        same = state.rounds == protocol.rounds_done(state.arrays) and 0 <= state.rounds <= protocol.n_rounds
        if not same or plan_digest(state.events) != plan_digest(protocol.events(state.rounds)):
            raise MalformedError("another number of rounds")


def _build(
    root: beam.Pipeline, protocol: ChunkedProtocol, arrays: Arrays, first: int, last: int, path: str | None
) -> None:
    """Adds a chunk of rounds to a pipeline, which writes its arrays to `path`, if given."""
    found = protocol.add_rounds(root, arrays, first, last)
    if path is not None:
        _ = found | "Save" >> beam.Map(write_arrays, path)


@contextlib.contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """Opens a new staging folder, or that of an interrupted run with the same id, for this process alone.

    After an error before the first round the folder is removed, and nothing has been written. Later it is kept, since
    noise may have been drawn, and the same command with this --run_id resumes the run.

    Raises:
      ConfigError: if the folder can't be created, or another process is running the run.
    """
    folder.take_up()
    if not is_sealed(folder):
        check_version(folder, ConfigError, "start over with another --run_id")
    try:
        yield
    except BaseException:
        if is_sealed(folder) or has_begun(folder):
            _LOGGER.info("what is done stays; the same command with --run_id %s resumes", folder.run_id)
        else:
            folder.discard()
        raise
    finally:
        folder.release()


def has_begun(folder: RunFolder) -> bool:
    """Returns whether there is a checkpoint, so that noise may have been drawn with the run's key."""
    return STORE.exists(folder.path(MANIFEST_FILE))


def check_version(folder: RunFolder, kind: type[DappleError], otherwise: str) -> None:
    """Refuses to resume a run whose rounds were recorded by an older version in another format; changes nothing.

    Args:
      folder: folder of the run, already taken over.
      kind: type of the error.
      otherwise: alternative for the message, following "or".

    Raises:
      DappleError: of that type.
    """
    version = CheckpointFolder(folder.staging).older_version()
    if version is not None:
        newest = version.partition(" ")[0]
        raise kind(
            f"run_id {folder.run_id} was begun by dapple-dp {version}, whose rounds this version cannot continue; "
            f"install dapple-dp {newest} and repeat the command to finish it, or {otherwise}."
        )


def rounds_recorded(folder: RunFolder) -> int:
    """Number of recorded rounds, after which the run resumes."""
    return CheckpointFolder(folder.staging).rounds()


def clear_rounds(folder: str) -> None:
    """Removes the recorded rounds of a finished run from its staging folder.

    The checkpoint goes first; without it no attempt resumes from the rest.
    """
    CheckpointFolder(folder).clear()
    remove_files(f"{folder}/", is_of_rounds)


def run_key(folder: RunFolder, key_uri: str | None) -> str:
    """Returns the place of the run's noise key, which no other run has.

    The key is derived from the given one, or from one in the staging folder, which is created before the first round.

    Raises:
      ConfigError: if a given key, or the key or nonce of an interrupted run, is missing.
    """
    uri = key_uri or folder.path(KEY_FILE)
    if key_uri is None and not has_begun(folder):
        make_key(uri)
    read_key(uri)
    return resumed_nonce(folder.staging, folder.run_id, begun=has_begun(folder)).place(uri)


def is_sealed(folder: RunFolder) -> bool:
    """Returns whether an interrupted run had written all of its outputs."""
    return STORE.exists(folder.path(MANIFEST))


def sealed_manifest(folder: RunFolder) -> dict[str, Any]:
    """Reads the manifest of a sealed run; raises ConfigError if it is invalid."""
    rule = f"{folder.path(MANIFEST)} must be the manifest of the interrupted run"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="start over with another --run_id")
    content = untrusted.read_bytes(folder.path(MANIFEST), refusal)
    json_schema.parse_as(content, RunManifest, refusal)
    return json_schema.parse_as(content, dict[str, Any], refusal)


def finish(folder: RunFolder) -> dict[str, Any]:
    """Makes the folder of a sealed run its output, without key, checkpoint and unlisted files.

    Returns:
      The manifest.
    """
    manifest = sealed_manifest(folder)
    end_key(folder.path(KEY_FILE), folder.staging)
    clear_rounds(folder.staging)
    names = [*manifest["files"], MANIFEST]
    folder.keep_only(names)
    folder.move(names)
    return manifest
