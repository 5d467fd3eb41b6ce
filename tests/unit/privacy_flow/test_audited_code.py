"""Audited code, and the list of it."""

import functools
import importlib
import inspect

import apache_beam as beam
import pytest

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleaseSpec
from dapple_dp.transforms.core.allow_list import AUDITED, DECLARED, LISTED, Level, Role
from dapple_dp.transforms.core.known_objects import name_of
from dapple_dp.transforms.core.stated_sensitivity import L1, STATED, Stated
from dapple_dp.transforms.masked.pairwise_rounds import PairwiseReleases
from dapple_dp.transforms.on_beam import noise_stage, steps
from dapple_dp.transforms.on_beam.exact_sums import SumVectorsFn
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.staged_state import begin


def resolved(name):
    module, _, path = name.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))


@pytest.mark.parametrize("name", [*AUDITED, *STATED])
def test_every_name_on_the_list_is_that_of_something(name):
    assert name_of(resolved(name)) == name


@pytest.mark.parametrize("name", STATED)
def test_a_statistic_gets_its_options_by_name_alone(name):
    """The audit finds weights, and clipping in L1, among the keywords of a partial application, and nowhere else."""
    block, state, *options = inspect.signature(resolved(name)).parameters.values()
    assert (block.name, state.name) == ("block", "state")
    assert all(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in options)


def test_a_name_has_one_rule():
    assert sum(len(names.split()) for _, _, names in LISTED) == len(AUDITED)


def test_declared_mechanisms_are_of_their_base_class():
    declared = [resolved(name) for name, rule in AUDITED.items() if rule == DECLARED]
    assert len(declared) >= 2
    assert all(issubclass(each, DeclaredMechanism) for each in declared)


def test_only_noise_masks_and_declared_mechanisms_lower_a_level():
    """All that is given private data and gives anything less: by hand."""
    lowering = {name for name, rule in AUDITED.items() if rule.gives is not None and rule.gives < rule.takes}
    drawing = {name for name in lowering if AUDITED[name].role in (Role.NOISE, Role.JOIN, Role.DECLARED)}
    masking = {name for name in lowering if AUDITED[name].gives is Level.MASKED}
    assert lowering - drawing - masking == {
        "dapple_dp.transforms.masked.clients:_UnmaskFn",
        "dapple_dp.transforms.masked.pairwise_legs:_unmask",
    }
    assert all(AUDITED[name].takes is Level.MASKED_RELEASE for name in lowering - drawing - masking)


def local(element):
    return element


def test_code_is_what_stands_in_its_module_under_its_name():
    def local(element):
        return element

    local.__qualname__ = "local"
    assert name_of(local) is None
    assert name_of(noise_stage._AddNoiseFn) == "dapple_dp.transforms.on_beam.noise_stage:_AddNoiseFn"
    assert (
        name_of(
            type("_AddNoiseFn", (noise_stage._AddNoiseFn,), {"__module__": "dapple_dp.transforms.on_beam.noise_stage"})
        )
        is None
    )
    assert name_of(functools.partial(local, 1)) is None
    assert name_of(lambda element: element) is None
    assert name_of(None) is None


@pytest.mark.parametrize("make", [beam.Map, beam.FlatMap, beam.MapTuple, beam.FlatMapTuple])
def test_the_function_inside_of_beams_wrappers_decides(make):
    assert steps.code_of(make(begin)) is begin
    assert steps.code_of(make(local)) is local


def test_a_wrapper_that_only_looks_like_beams_decides_itself():
    def Map(fn):  # noqa: N802
        return lambda x: [fn(x), fn]

    wrapper = Map(local)
    assert steps.code_of(beam.FlatMap(wrapper)) is wrapper


def test_functions_of_dofns_and_combines_are_their_classes():
    assert steps.code_of(beam.ParDo(noise_stage._AddNoiseFn("plan", KeyFile("key")))) is noise_stage._AddNoiseFn
    assert steps.code_of(beam.CombineGlobally(SumVectorsFn(3))) is SumVectorsFn
    assert steps.code_of(beam.CombinePerKey(SumVectorsFn(3))) is SumVectorsFn
    assert name_of(steps.code_of(beam.CombinePerKey(sum))) not in AUDITED


def test_what_a_step_was_handed_is_found_in_containers_and_partial_functions():
    step = beam.Map(begin, {"a": (functools.partial(local, print),)}, each=[len])
    found = [each for each in steps.handed(step) if callable(each) and not isinstance(each, functools.partial)]
    assert found == [local, print, len]


@pytest.mark.parametrize("name", steps._CONVERTERS)
def test_a_wrapper_with_one_converter_runs_something_else(name):
    step = beam.Map(local)
    assert not steps.is_altered(step)
    setattr(step.fn, name, None)
    assert not steps.is_altered(step)
    setattr(step.fn, name, print)
    assert steps.is_altered(step)


def test_fields_that_hold_functions_are_no_methods():
    masked = PairwiseReleases(round=None, state=None, contract=None, key_uri="", masking=None, deliver=local)
    assert not steps.is_altered(masked)
    masked.expand = local
    assert steps.is_altered(masked)


def spec(mechanism=Mechanism.DISCRETE_GAUSSIAN, geometry=Geometry.VECTOR):
    return ReleaseSpec(name="sums", shape=(3, 4), mechanism=mechanism, sensitivity=1, share=1.0, geometry=geometry)


def test_required_sensitivities_by_hand():
    """A vector of norm 10 in four dimensions has L1 norm 20 at most; turned around it moves the sum by 20 in L2."""
    vectors, counts = Stated(bound=10, vectors=True, rows=True, l1=L1.ALWAYS), Stated(bound=10, l1=L1.ALWAYS)
    laplace = Mechanism.DISCRETE_LAPLACE
    assert vectors.required(spec(), replaces=False) == 10
    assert vectors.required(spec(), replaces=True) == 20
    assert vectors.required(spec(laplace), replaces=False) == 20
    assert vectors.required(spec(laplace), replaces=True) == 40
    assert counts.required(spec(laplace), replaces=False) == 10
    assert counts.required(spec(laplace), replaces=True) == 20
    # Out of one bin and into another: sqrt(200), rounded up.
    assert counts.required(spec(), replaces=True) == 15
    assert Stated(bound=10, interval=True).required(spec(), replaces=True) == 10
    assert Stated(bound=10, symmetric=True).required(spec(geometry=Geometry.SYMMETRIC), replaces=False) == 10
    assert Stated(bound=10, symmetric=True).required(spec(laplace), replaces=False) == float("inf")
    assert vectors.required(spec(geometry=Geometry.SYMMETRIC), replaces=False) == float("inf")
