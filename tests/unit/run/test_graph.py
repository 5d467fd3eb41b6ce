"""Graphs are built and run in a notebook as elsewhere, canceled if nobody waits, ended if a worker ends."""

import base64
import bz2
import concurrent.futures
import os
import signal
import threading

import apache_beam as beam
import pytest
from apache_beam import pipeline as beam_pipeline
from apache_beam.coders import VarIntCoder
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators

from pipelines.run import graph
from pipelines.run.graph import run_graph
from pipelines.run.options import beam_options
from schemas.errors import InputError, RunnerError
from schemas.privacy.flow import Promise, Zone
from tests.scenes import lake

STATE = beam.DoFn.StateParam(userstate.ReadModifyWriteStateSpec("read", VarIntCoder()))


class SeenError(Exception):
    """What Beam raises here where it looks for a notebook."""


@pytest.fixture
def in_notebook(monkeypatch):
    """Beam believes that it is in a notebook, and has no pandas."""

    def alter(transform, pvalueish):
        raise SeenError

    monkeypatch.setattr(beam_pipeline, "is_in_ipython", lambda: True)
    monkeypatch.setattr(beam_pipeline, "alter_label_if_ipython", alter)
    return vars(beam_pipeline).copy()


def test_a_notebook_changes_nothing(in_notebook):
    built = []

    def build(root):
        built.append(root)
        _ = root | "Public" >> beam.Create([1], reshuffle=False)

    run_graph(build, beam_options([]), Promise(zone=Zone.TRUSTED))
    (root,) = built
    assert not os.path.exists(root.local_tempdir)
    assert vars(beam_pipeline) == in_notebook


def test_a_graph_that_fails_leaves_beam_as_it_was(in_notebook):
    def build(root):
        raise InputError("it must be another one, got this one; take that one.")

    with pytest.raises(InputError, match="take that one"):
        run_graph(build, beam_options([]), Promise(zone=Zone.TRUSTED))
    assert vars(beam_pipeline) == in_notebook


def test_graphs_of_two_threads_leave_beam_as_it_was(in_notebook):
    """The first to begin ends first, while the second still builds."""
    begun, ended = threading.Event(), threading.Event()

    def first(root):
        assert begun.wait(600)

    def second(root):
        begun.set()
        assert ended.wait(600)
        _ = root | "Public" >> beam.Create([1], reshuffle=False)

    def run_first():
        run_graph(first, beam_options([]), Promise(zone=Zone.TRUSTED))
        ended.set()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        one = pool.submit(run_first)
        other = pool.submit(run_graph, second, beam_options([]), Promise(zone=Zone.TRUSTED))
        one.result(600)
        other.result(600)
    assert vars(beam_pipeline) == in_notebook


def test_beam_itself_looks_for_notebooks(in_notebook):
    """The guard has something to guard against."""
    with pytest.raises(SeenError):
        _ = beam.Pipeline(options=beam_options([])) | beam.Create([1])


class _Step(beam.DoFn):
    def __init__(self, number):
        self.number = number

    def process(self, row, window=beam.DoFn.WindowParam, state=STATE):
        yield row


class _Other(_Step):
    def process(self, row, at=beam.DoFn.TimestampParam):
        yield row


def test_arguments_of_methods_are_those_that_beam_finds():
    """Of a class and one below it, of objects that differ, of functions in steps, and again."""
    own, steps = core.get_function_args_defaults, [_Step(1), _Other(1), _Step(2), beam.ParDo(lambda row, n=3: [row]).fn]
    for step in steps * 2:
        for name in ("process", "start_bundle", "display_data"):
            assert graph._arguments(getattr(step, name)) == own(getattr(step, name))
    assert graph._arguments(own) == own(own)
    graph._arguments(steps[0].process)[0].clear()
    assert graph._arguments(steps[2].process)[0] == ["row", "window", "state"]


def test_beam_finds_state_with_remembered_arguments():
    with graph._OTHER_BEAM:
        for _ in range(2):
            assert userstate.is_stateful_dofn(_Step(1))
            assert not userstate.is_stateful_dofn(_Other(1))
    assert core.get_function_args_defaults is graph._OWN_ARGUMENTS


MULTI = "--direct_running_mode=multi_processing"


@pytest.mark.parametrize(
    ("flags", "stays"),
    [
        ([], True),
        (["--runner=DirectRunner"], True),
        (["--direct_num_workers=2", "--direct_running_mode=multi_threading"], True),
        (["--direct_num_workers=2", MULTI], False),
        ([MULTI], False),
        (["--runner=DirectRunner", "--environment_type=PROCESS"], False),
        (["--runner=PrismRunner"], False),
        (["--runner=FlinkRunner"], False),
        (["--runner=PortableRunner", "--job_endpoint=localhost:1"], False),
    ],
)
def test_only_pickles_that_stay_in_this_process_are_packed_otherwise(flags, stays):
    """Workers of other processes know Beam's own packing only."""

    def is_beams():
        packed = pickler.dumps({"n": 1})
        assert pickler.loads(packed) == {"n": 1}
        return base64.b64decode(packed).startswith(b"BZh")

    with graph._OTHER_BEAM, concurrent.futures.ThreadPoolExecutor(1) as other:
        beams = pickler.dumps("of another thread, or earlier")
        with graph._packed_lightly(beam_options(flags)):
            assert is_beams() is not stays
            assert other.submit(is_beams).result()
            assert pickler.loads(beams) == "of another thread, or earlier"
            mine = pickler.dumps("of a thread that stays")
        assert is_beams()
        assert other.submit(pickler.loads, mine).result() == "of a thread that stays"
    assert cloudpickle_pickler.bz2 is bz2


def test_a_graph_is_built_and_run_as_its_runner_packs():
    seen = []

    def build(root):
        seen.append(graph._STAYS_HERE.get())
        _ = root | beam.Create([1], reshuffle=False)

    run_graph(build, beam_options([]), Promise(zone=Zone.TRUSTED))
    assert seen == [True]
    assert not graph._STAYS_HERE.get()


def test_types_are_checked_as_ever_and_beam_is_itself_afterwards():
    """Only the account of where a type was declared is left out."""
    own = (core._check_fn_use_yield_and_return, decorators.traceback)

    def build(root):
        numbers = root | beam.Create([1]).with_output_types(int)
        _ = numbers | beam.Map(len).with_input_types(str)

    with pytest.raises(Exception, match="'<class 'str'>' but was applied to a PCollection of type '<class 'int'>'"):
        run_graph(build, beam_options([]), Promise(zone=Zone.TRUSTED))
    assert (core._check_fn_use_yield_and_return, decorators.traceback) == own


class _Running:
    """A job that is waited for, and may be canceled."""

    def __init__(self, error):
        self.error = error
        self.canceled = 0

    def wait_until_finish(self):
        raise self.error

    def cancel(self):
        self.canceled += 1
        raise OSError("a server that is gone")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("lost")])
def test_a_job_is_canceled_when_nobody_waits_for_it_any_more(error):
    """A cluster goes on with it otherwise, with the key of a run that has ended for its user."""
    running = _Running(error)
    with pytest.raises(type(error)):
        graph._wait(running)
    assert running.canceled == 1


class _Still(graph._WatchedWorker):
    """A process that stands still, and so does whoever waits for its end."""

    def __init__(self):
        self.over = threading.Event()

    def _close(self):
        self.over.wait(600)


def test_who_interrupts_a_run_does_not_wait_for_a_process_that_stands_still(monkeypatch):
    monkeypatch.setattr(graph, "_HASTE_SECONDS", 0.1)
    worker = _Still()
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        worker.close()
    assert not worker.over.is_set()
    worker.over.set()
    worker.close()


@pytest.mark.slow
# Beam's threads lose the streams and the end of a worker that is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_process_that_ends_ends_the_job_in_a_sentence():
    """Beam itself waits for ever for what it would have said."""

    def end(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    def build(root):
        numbers = root | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(end)
        _ = numbers | beam.GroupBy(lambda number: number % 2)

    flags = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    said = "all worker processes must stay until the job is over, got one that ended"
    with graph._OTHER_BEAM, pytest.raises(RunnerError, match=said):
        lake.run_unchecked(build, beam_options(flags))
