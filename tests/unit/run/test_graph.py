"""Graphs are built and run in a notebook as elsewhere, quickly, and canceled if nobody waits for them."""

import concurrent.futures
import os
import threading

import apache_beam as beam
import pytest
from apache_beam import pipeline as beam_pipeline
from apache_beam.transforms import userstate

from dapple_dp.pipelines.run import graph
from dapple_dp.pipelines.run.graph import ADAPTED, run_graph
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import InputError


class SeenError(Exception):
    """Error that Beam raises here while it looks for a notebook."""


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


def test_a_beam_without_what_is_replaced_builds_all_the_same(monkeypatch):
    """Another version may have moved what is private."""
    monkeypatch.delattr(beam_pipeline, "alter_label_if_ipython")
    monkeypatch.delattr(userstate, "get_dofn_specs")
    with ADAPTED:
        assert "alter_label_if_ipython" not in vars(beam_pipeline)
        assert "get_dofn_specs" not in vars(userstate)
    assert "alter_label_if_ipython" not in vars(beam_pipeline)
    assert "get_dofn_specs" not in vars(userstate)


class _Counting(beam.DoFn):
    """Has state of its own, and what it is given."""

    COUNT = userstate.CombiningValueStateSpec("count", sum)

    def __init__(self, given=None):
        self.given = given

    def process(self, keyed, count=beam.DoFn.StateParam(COUNT)):  # noqa: B008 - Beam's way to name state
        count.add(1)
        yield keyed


class _Other:
    LATER = userstate.CombiningValueStateSpec("later", sum)

    def method(self, later=beam.DoFn.StateParam(LATER)):  # noqa: B008 - Beam's way to name state
        later.add(1)


def test_each_class_of_steps_is_inspected_once(monkeypatch):
    inspected, own = [], userstate.get_dofn_specs
    monkeypatch.setattr(userstate, "get_dofn_specs", lambda step: inspected.append(step) or own(step))
    steps = [_Counting(), _Counting(), beam.Map(abs).fn, beam.Map(str).fn, _Counting()]
    inspected.clear()
    with ADAPTED:
        found = [userstate.get_dofn_specs(each) for each in steps]
    assert inspected == [steps[0], steps[2]]
    assert found == [own(each) for each in steps]
    assert own(steps[0])[0] == {_Counting.COUNT}


def test_a_step_that_holds_a_method_is_inspected_by_itself():
    holding = _Counting(_Other().method)
    with ADAPTED:
        found = [userstate.get_dofn_specs(each)[0] for each in (_Counting(), holding, _Counting())]
    assert found == [{_Counting.COUNT}, {_Counting.COUNT, _Other.LATER}, {_Counting.COUNT}]


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
