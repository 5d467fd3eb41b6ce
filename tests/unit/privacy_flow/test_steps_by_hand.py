"""Objects, registered types and steps of a graph by hand: what is known, what is refused, and what is passed on."""

import contextlib
import dataclasses
import enum
import functools
import importlib
import math
import types
from typing import NamedTuple

import numpy as np
import pytest
from apache_beam.transforms.sideinputs import default_window_mapping_fn
from apache_beam.transforms.window import FixedWindows

from dapple_dp.schemas.core.plan import Mechanism, PrivacyUnit
from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core import known_objects
from dapple_dp.transforms.core.allow_list import Level, Role, Rule
from dapple_dp.transforms.core.audited_types import CONTRACTS
from dapple_dp.transforms.core.known_objects import KnownObjects, is_a, is_state, type_name
from dapple_dp.transforms.on_beam.steps import OF_OTHERS, Step, Trace, check_levels, keyed, path_to, trace_of
from dapple_dp.transforms.privacy import extensions
from tests.scenes.gaussian_rounds import round_of

GAUSSIAN = Mechanism.DISCRETE_GAUSSIAN


class Bounded:
    """A type that the tests register."""


MOVES: list = []


def neighbor_test(rng):
    MOVES.append(rng.integers(1 << 30))
    return ANSWERS[len(MOVES) - 1 if len(MOVES) <= len(ANSWERS) else -1]


ANSWERS: list = []


@pytest.fixture
def registration(monkeypatch):
    monkeypatch.setattr(known_objects, "REGISTERED", {})
    MOVES.clear()

    def register(*answers):
        ANSWERS[:] = answers
        return extensions.register_audited(Bounded, neighbor_test=neighbor_test)

    return register


def test_a_registered_type_says_how_far_it_was_moved(registration):
    found = registration((0.0, 2.0), (1.5, 2.0), (2.0, 4.0), (0.5, 2.0))
    assert (found.largest, len(MOVES), len(set(MOVES))) == (0.75, 200, 200)
    assert MOVES[:2] == [np.random.default_rng(seed).integers(1 << 30) for seed in (0, 1)]
    assert known_objects.marks() == [
        {
            "type": f"{__name__}:Bounded",
            "neighbor_test": f"{__name__}:neighbor_test",
            "runs": 200,
            "largest_part_of_bound": 0.75,
        }
    ]
    assert list(known_objects.REGISTERED) == [Bounded]
    assert type_name(Bounded) == f"{__name__}:Bounded"
    assert KnownObjects().stranger([Bounded()]) is None


def test_marks_of_registered_types_are_by_name(registration, monkeypatch):
    """Whoever registers them in another order has the same `privacy.json`."""
    one = registration((0.0, 1.0), (1.0, 1.0))
    last, first = (dataclasses.replace(one, name=name).to_json() for name in ("m:Last", "m:First"))
    monkeypatch.setattr(known_objects, "REGISTERED", {Unknown: last, Bounded: first})
    assert [each["type"] for each in known_objects.marks()] == ["m:First", "m:Last"]


@pytest.mark.parametrize(
    ("answer", "holds"),
    [((2.0, 2.0), True), ((2.0001, 2.0), False), ((-1e-9, 2.0), False), ((1.0, math.inf), False), ((0.0, 0.0), False),
     ((math.nan, 2.0), False), ((0.0, 2.0), False), ((1e-12, 2.0), True)],
)  # fmt: skip
def test_a_neighbor_test_must_move_within_its_bound(registration, answer, holds):
    if holds:
        registration(answer)
    else:
        with pytest.raises(PrivacyFlowError, match="must move"):
            registration(answer)
        assert Bounded not in known_objects.REGISTERED


def test_a_bound_is_tested_to_the_last_run(registration):
    with pytest.raises(PrivacyFlowError, match="by at most their sensitivity"):
        registration(*[(1.0, 2.0)] * 199, (3.0, 2.0))


def test_what_has_no_name_is_not_registered(registration):
    for kind, test in [(Bounded, lambda rng: (1, 1)), (type("Local", (), {}), neighbor_test), (registration, print)]:
        with pytest.raises(PrivacyFlowError, match="must be defined at the top of a module"):
            extensions.register_audited(kind, neighbor_test=test)
    with pytest.raises(PrivacyFlowError, match="is already audited"):
        extensions.register_audited(TableContract, neighbor_test=neighbor_test)


# Objects.


class Wider(TableContract):
    """Could be registered."""


def test_an_object_is_of_a_listed_type_or_of_one_that_is_derived_from_it():
    contract = TableContract(features=("x",), n_features=1)
    same_name = type("TableContract", (), {"__module__": TableContract.__module__})
    assert is_a(contract, CONTRACTS)
    assert is_a(Wider(features=("x",), n_features=1), CONTRACTS)
    for value in (same_name(), TableContract, "TableContract", (contract,), None):
        assert not is_a(value, CONTRACTS)


class Unknown:
    pass


class Member(enum.Enum):
    A = 1


def stranger(*values):
    return KnownObjects().stranger(values)


def test_plain_values_and_containers_of_them_are_known():
    plain = [None, True, 1, 1.5, 1j, "a", b"b", range(2), ..., np.bool_(True), np.str_("a"), np.bytes_(b"a")]
    plain += [kind(1) for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)]
    plain += [np.float32(1), np.float64(1), np.zeros(3), np.array(["a"]), np.array([None, (1, "a")], dtype=object)]
    assert stranger(*plain) is None
    assert stranger([{1: (2, {3})}, frozenset({4})]) is None


@pytest.mark.parametrize(
    "value",
    [
        Unknown(), [Unknown()], (1, [Unknown()]), {1: Unknown()}, {Unknown(): 1}, {Unknown()}, np.array([Unknown()]),
        functools.partial(len, Unknown()), functools.partial(max, key=Unknown()), np.float16(1), np.datetime64("2026"),
        Member.A, lambda: 1, len, type("Text", (str,), {})("a"), type("Items", (list,), {})([1]), Unknown,
    ],
)  # fmt: skip
def test_everything_else_is_a_stranger_however_deep(value):
    assert stranger(1, value, 2) is not None


def test_an_audited_object_holds_what_it_declares_and_nothing_else():
    spec = round_of(sums=1)
    assert stranger(spec, GAUSSIAN, PrivacyUnit.CLIENT) is None
    assert stranger(dataclasses.replace(spec, path=Unknown())) is not None
    known = KnownObjects()
    assert known.stranger([spec, spec]) is None
    assert sum(each is spec for each in known.objects()) == 1
    assert any(each is spec.releases[0] for each in known.objects())
    forged = str.__new__(Mechanism, "discrete_gaussian")
    assert "is not a member" in stranger(forged)
    assert not is_state(spec)
    partial = functools.partial(print)
    partial.extra = 1
    assert stranger(partial) == "a partial application with an attribute of its own"


SIDE = {"pvalue", "_window_mapping_fn"}


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("pvalue:AsDict", SIDE),
        ("pvalue:AsIter", SIDE),
        ("pvalue:AsList", SIDE),
        ("pvalue:AsSingleton", SIDE | {"default_value"}),
        ("utils.shared:Shared", {"_key"}),
        ("transforms.trigger:AfterCount", {"count"}),
        ("transforms.trigger:Repeatedly", {"underlying"}),
        ("transforms.window:FixedWindows", {"size", "offset"}),
        ("transforms.window:SlidingWindows", {"size", "period", "offset"}),
    ],
)
def test_objects_of_beam_have_these_attributes_and_no_others(name, attributes):
    module, _, kind = f"apache_beam.{name}".partition(":")
    found = object.__new__(getattr(importlib.import_module(module), kind))
    vars(found).update(dict.fromkeys(attributes, 1))
    assert stranger(found) is None
    vars(found)["process"] = 1
    assert stranger(found) == f"one of {module}:{kind} with an attribute that its type does not declare"


def test_windows_of_side_inputs_are_found_by_beam_alone():
    class OwnWindows(FixedWindows):
        pass

    mapping = default_window_mapping_fn(FixedWindows(60))
    assert stranger(mapping) is None
    assert "OwnWindows, which is no audited type" in stranger(default_window_mapping_fn(OwnWindows(60)))
    elsewhere = types.FunctionType(mapping.__code__, {"list": print}, "mapping", None, mapping.__closure__)
    other = types.FunctionType((lambda window: window).__code__, mapping.__globals__)
    for function in (elsewhere, other):
        assert stranger(function).endswith("which is not audited")


# Steps.


def trace(level=Level.PRIVATE, **more):
    return Trace(**{"level": level, "tagged": level, "inside": level, "label": "before"} | more)


def step(role=Role.STEP, mains=(), sides=(), transform=None, **rule):
    rule = Rule(**{"takes": Level.PRIVATE} | rule, role=role)
    node = types.SimpleNamespace(full_label="Step", transform=transform or types.SimpleNamespace())
    return Step(node=node, rule=rule, mains=tuple(mains), sides=tuple(sides))


def test_levels_are_in_order_of_what_they_hide():
    assert [each.name for each in sorted(Level)] == ["PUBLIC", "MASKED_RELEASE", "MASKED", "PRIVATE"]
    assert [int(each) for each in sorted(Level)] == [0, 1, 2, 3]


@pytest.mark.parametrize("takes", list(Level))
@pytest.mark.parametrize("given", list(Level))
def test_a_step_takes_its_level_and_what_is_less_private(takes, given):
    found = step(mains=[trace(given)], takes=takes)
    if given <= takes:
        check_levels(found, trusted=False)
    else:
        with pytest.raises(PrivacyFlowError, match="let the sum pass the noise stage first"):
            check_levels(found, trusted=True)


@pytest.mark.parametrize("given", list(Level))
def test_sides_are_public_but_for_private_steps_of_the_trusted_zone(given):
    def holds(trusted, **more):
        with contextlib.suppress(PrivacyFlowError):
            check_levels(step(sides=[trace(given)], **more), trusted=trusted)
            return True
        return False

    is_public = given is Level.PUBLIC
    assert holds(False) is is_public
    assert holds(True)
    assert holds(True, role=Role.TRUSTED)
    assert holds(True, role=Role.STATISTIC) is is_public
    assert holds(True, takes=Level.MASKED) is is_public


def test_defaults_make_a_main_input_a_side_input():
    combine = types.SimpleNamespace(has_defaults=True)
    with pytest.raises(PrivacyFlowError, match="as a side input"):
        check_levels(step(mains=[trace()], transform=combine), trusted=False)
    check_levels(step(mains=[trace()], transform=types.SimpleNamespace(has_defaults=False)), trusted=False)


def test_trusted_steps_stay_in_trusted_jobs():
    check_levels(step(Role.TRUSTED), trusted=True)
    with pytest.raises(PrivacyFlowError, match="stay out of a job whose outputs are public"):
        check_levels(step(Role.TRUSTED), trusted=False)


def test_what_a_step_gives_follows_from_its_rule_and_its_inputs():
    origin = ((None, "plan"),)
    one = trace(copies=2, origin=origin, summed=True, shares="law", label="one")
    public = trace(Level.PUBLIC, label="public", copies=7)
    given = trace_of(step(Role.CARRY, [one, public]))
    assert (given.level, given.tagged, given.inside) == (Level.PRIVATE,) * 3
    assert (given.copies, given.origin, given.summed, given.shares) == (2, origin, True, "law")
    assert given.path == "one -> Step"
    both = trace_of(step(Role.SUM, [trace(copies=2, gathered=True), trace(copies=3, gathered=True)]))
    assert (both.copies, both.gathered, both.summed, both.shares) == (5, False, True, None)
    assert trace_of(step(Role.SUM, [one, trace(gathered=True)])).summed is False
    assert trace_of(step(Role.SUM, [public])).summed is False
    assert trace_of(step(Role.CARRY, [trace(gathered=True)])).gathered is False
    assert trace_of(step(Role.CARRY, [trace()], gathers=True)).gathered is True
    assert trace_of(step(Role.CARRY, [one, trace(summed=False)])).summed is False
    assert trace_of(step(Role.COPY, [one])).copies == 3
    assert trace_of(step(Role.STEP, [one])).origin is None
    assert trace_of(step(Role.STEP, [one])).shares is None
    assert trace_of(step(Role.MESSAGES, [one])).origin == OF_OTHERS
    noised = trace_of(step(Role.NOISE, [one], gives=Level.PUBLIC))
    assert (noised.level, noised.tagged, noised.inside, noised.copies) == (
        Level.PUBLIC,
        Level.PRIVATE,
        Level.PRIVATE,
        1,
    )
    released = trace_of(step(Role.STEP, [one], gives=Level.PUBLIC))
    assert (released.level, released.tagged, released.inside) == (Level.PUBLIC, Level.PUBLIC, Level.PRIVATE)
    source = trace_of(step(gives=Level.PRIVATE))
    assert (source.level, source.copies, source.parent, source.path) == (Level.PRIVATE, 1, None, "Step")
    assert trace_of(step(mains=[public])).parent is None
    assert trace_of(step(mains=[public], sides=[trace(Level.MASKED)])).level is Level.MASKED
    assert (trace().copies, trace().summed) == (1, False)


def test_a_statistic_remembers_the_plans_of_its_rounds():
    rounds = {"b": FakeRound("second", None, None), "a": FakeRound("first", None, None)}
    found = trace_of(step(Role.STATISTIC, [trace()], transform=types.SimpleNamespace(rounds=rounds)))
    assert found.origin == (("a", "first"), ("b", "second"))
    found = trace_of(step(Role.STATISTIC, [trace()], transform=types.SimpleNamespace(round=rounds["a"], other=1)))
    assert found.origin == ((None, "first"),)
    found = trace_of(step(Role.STATISTIC, [trace()], transform=types.SimpleNamespace(measured=lambda: "own")))
    assert found.origin == ((None, "own"),)
    assert keyed([{"x": 1, "y": "a"}, {}, 3], lambda each: isinstance(each, int)) == ((None, 3),)
    named, other = {"b": ["second"], "a": ["first"]}, ["other"]
    beside = keyed([named, *named.values(), other], lambda each: isinstance(each, list))
    assert beside == (("a", ["first"]), ("b", ["second"]), (None, ["other"]))
    assert path_to(None, "Step") == "Step"
    assert path_to(trace(), "Step") == "before -> Step"


class FakeRound(NamedTuple):
    plan: str
    statistic: None
    step: None
