"""Protocols of more rounds than one graph should hold: chunks of rounds, a checkpoint after each, and resuming.

A run that was stopped goes on under its --run_id from the last checkpoint. Rounds after it are run again under the same
key, and give the same bytes again: nothing is spent twice.
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
from dapple_dp.transforms.files import gate
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
from dapple_dp.transforms.privacy.key_files import create_key, read_key

_LOGGER = logging.getLogger(__name__)
MOST_ROUNDS_ON_FLINK = 22
_ON_A_JOB_SERVER = ("flinkrunner", "portablerunner")
"""As Beam reads names: in letters of any case, or the path of the class."""
_ROUNDS_ON_A_JOB_SERVER = 10
LARGE_BYTES = 8 << 30
"""Rows of which one machine reads so many in a round that a pipeline of its own costs less than a hundredth of it."""

InProcess = Callable[[Arrays], GraphPrivacy]
"""Takes the state before the first round, leaves what is released, and returns what was spent."""


def rounds_of_a_graph(options: PipelineOptions, n_rounds: int, wanted: int | None, n_bytes: int) -> int:
    """How many rounds go into one graph of a job.

    Args:
      options: for Beam.
      n_rounds: of the job.
      wanted: by the job; None for all of them, but ten on a cluster for Flink, and one where one machine reads
        `LARGE_BYTES` or more.
      n_bytes: of the rows in memory, about.
    """
    if wanted is None and _is_on_a_job_server(options):
        wanted = _ROUNDS_ON_A_JOB_SERVER
    elif wanted is None and n_bytes >= LARGE_BYTES and shuffles_in_memory(options):
        wanted = 1
    return n_rounds if wanted is None else min(wanted, n_rounds)


def _is_on_a_job_server(options: PipelineOptions) -> bool:
    return str(options.view_as(StandardOptions).runner).rpartition(".")[2].lower() in _ON_A_JOB_SERVER


def check_rounds(options: PipelineOptions, n_rounds: int, setting: str) -> None:
    """Refuses more rounds than a job server for Flink gets to the end of.

    Flink's optimizer walks every way from the end of a graph to its start. A round uses the state before it twice, so
    each further one doubles their number, and the job server would be busy for hours without a word.

    Args:
      options: for Beam.
      n_rounds: of the job, in one graph.
      setting: that says how many.

    Raises:
      ConfigError: if they are too many.
    """
    if _is_on_a_job_server(options) and n_rounds > MOST_ROUNDS_ON_FLINK:
        raise ConfigError(
            f"{setting} must leave at most {MOST_ROUNDS_ON_FLINK} rounds to one pipeline on a Flink cluster, since "
            f"Flink plans twice as long for each further one, got {n_rounds}; lower it or take another runner."
        )


class ChunkedProtocol(Protocol):
    """A protocol whose rounds 1 to `n_rounds` can be run in chunks.

    Every noise that a round draws must follow from the run key, the round and who draws it, so that a round that is
    run again is the same release.
    """

    n_rounds: int
    asks_last: bool
    """Whether the arrays after the last round are asked for; else the graph of that round leaves what is released."""

    def initial(self) -> Arrays:
        """The state before the first round; public."""
        ...

    def add_rounds(self, root: beam.Pipeline, arrays: Arrays, first: int, last: int) -> beam.PCollection:
        """Adds rounds `first` to `last` to an empty pipeline that starts from `arrays`; one element, of `Arrays`.

        It is not looked at after the last round where nobody asks for it.
        """
        ...

    def promise(self, first: int, last: int) -> Promise:
        """What the graph of these rounds keeps."""
        ...

    def events(self, n_rounds: int) -> Sequence[Mapping[str, Any]]:
        """What so many rounds spend, as JSON."""
        ...

    def rounds_done(self, arrays: Arrays) -> int:
        """The round that arrays say they are after; raises ValueError or KeyError if they are none of this protocol."""
        ...


def plan_digest(events: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of what a whole run spends."""
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
    """Runs the rounds that are left.

    Args:
      protocol: of the run.
      folder: private, of the run; holds its checkpoint if it was interrupted.
      binding: of the run.
      options: for Beam.
      rounds_per_pipeline: rounds of one graph, at least 1; no matter for results.
      in_process: runs all rounds without Beam; None to run them in graphs.

    Returns:
      The run after its last round; the arrays are those of the last record.

    Raises:
      ConfigError: if the run cannot go on from the checkpoint.
      DappleError: what stopped the run; what is done stays.
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
    """The state of a run that was interrupted, or that before the first round."""
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
    """Refuses a checkpoint whose parts contradict each other: rounds would be left out, or run more than once."""
    with refusal.covers():
        same = state.rounds == protocol.rounds_done(state.arrays) and 0 <= state.rounds <= protocol.n_rounds
        if not same or plan_digest(state.events) != plan_digest(protocol.events(state.rounds)):
            raise MalformedError("another number of rounds")


def _build(
    root: beam.Pipeline, protocol: ChunkedProtocol, arrays: Arrays, first: int, last: int, path: str | None
) -> None:
    """Adds a chunk of rounds to a pipeline, which leaves its arrays at `path`, if they are kept."""
    found = protocol.add_rounds(root, arrays, first, last)
    if path is not None:
        _ = found | "Save" >> beam.Map(write_arrays, path)


@contextlib.contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """The staging folder of a run of chunks, new or of the interrupted run of the same id; no other process has it.

    If what follows fails before the first round, the folder goes and nothing has been written; later it stays, since
    noise may have been drawn, and the same command with this --run_id goes on.

    Raises:
      ConfigError: if the folder cannot be made, or the run goes on in another process.
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
    """Whether there is a checkpoint, so that noise may have been drawn under the run's key."""
    return STORE.exists(folder.path(MANIFEST_FILE))


def check_version(folder: RunFolder, kind: type[DappleError], otherwise: str) -> None:
    """Refuses to continue a run whose rounds an older version recorded in another format; nothing is changed.

    Args:
      folder: of the run, taken up.
      kind: of the error.
      otherwise: what else can be done, in words that follow "or".

    Raises:
      DappleError: of that kind.
    """
    version = CheckpointFolder(folder.staging).older_version()
    if version is not None:
        newest = version.partition(" ")[0]
        raise kind(
            f"run_id {folder.run_id} was begun by dapple-dp {version}, whose rounds this version cannot continue; "
            f"install dapple-dp {newest} and repeat the command to finish it, or {otherwise}."
        )


def rounds_recorded(folder: RunFolder) -> int:
    """After how many rounds the run goes on."""
    return CheckpointFolder(folder.staging).rounds()


def clear_rounds(folder: str) -> None:
    """Removes from a staging folder what rounds of a run leave for a further attempt: it is over.

    The record goes first. Without it nobody goes on from what is left.
    """
    CheckpointFolder(folder).clear()
    remove_files(f"{folder}/", is_of_rounds)


def run_key(folder: RunFolder, key_uri: str | None) -> str:
    """The place of the run's noise key, and of no other run's.

    It is derived from the key that is given, or from one in the staging folder, which is made before the first round.

    Raises:
      ConfigError: if the key or the nonce of an interrupted run, or a given key, is missing.
    """
    uri = key_uri or folder.path(KEY_FILE)
    if key_uri is None and not has_begun(folder) and not STORE.exists(uri):
        create_key(uri)
    read_key(uri)
    return resumed_nonce(folder.staging, folder.run_id, begun=has_begun(folder)).place(uri)


def is_sealed(folder: RunFolder) -> bool:
    """Whether an interrupted run had written all of its outputs."""
    return STORE.exists(folder.path(MANIFEST))


def sealed_manifest(folder: RunFolder) -> dict[str, Any]:
    """The manifest of a sealed run; raises ConfigError for another file."""
    rule = f"{folder.path(MANIFEST)} must be the manifest of the interrupted run"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="start over with another --run_id")
    content = gate.read_bytes(folder.path(MANIFEST), refusal)
    json_schema.parse_as(content, RunManifest, refusal)
    return json_schema.parse_as(content, dict[str, Any], refusal)


def finish(folder: RunFolder) -> dict[str, Any]:
    """Makes the folder of a sealed run its output, without key, checkpoint and what else its manifest does not name.

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
