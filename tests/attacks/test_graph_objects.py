"""Objects that a step is handed decide as much as its code: a lookalike of any of them stops the job.

The first graphs once passed the checker and ran, with up to 1,000 times the influence of a row or without noise.
"""

import collections
import ctypes
import dataclasses
import enum
import functools
import sys
import types

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import GlobalWindows

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Mechanism, ReleasePlan
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydConfig
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.known_objects import KnownObjects
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.lloyd.rounds import means_statistic
from dapple_dp.transforms.masked import noise_stages
from dapple_dp.transforms.on_beam import noise_stage
from dapple_dp.transforms.on_beam.round import ServerFn, _StatisticFn
from dapple_dp.transforms.privacy.key_files import KeyFile, read_key
from dapple_dp.transforms.rounds.row_cache import WorkerLimits
from dapple_dp.transforms.rounds.shard_sums import ShardSums
from dapple_dp.transforms.rounds.staged_state import StagedArrays, begin
from dapple_dp.transforms.tables.read import ListShards
from tests.scenes.graphs import HostileGraphs, Scene, refused

UNKNOWN = "must be handed objects of audited types, got "
hostile = HostileGraphs()


class ManyTimes:
    """No contract, but it has what a statistic asks of one: every row 1,000 times."""

    by_client, columns, n_features, client_id = False, ("x",), 4, None

    def to_block(self, table, where):
        points = np.array(table["x"].to_pylist())
        return ClientBlock(np.repeat(points, 1000, axis=0))


class ManyTimesContract(TableContract):
    """A contract by its class."""

    def to_block(self, table, where):
        block = super().to_block(table, where)
        return ClientBlock(np.repeat(block.points, 1000, axis=0), block.offsets)


class Louder(functools.partial):
    """A partial application by its class, around an audited statistic."""

    def __call__(self, *args, **kwargs):
        return 1000 * super().__call__(*args, **kwargs)


class Quiet(ReleasePlan):
    """Accounted for by its multiplier, drawn by its scale."""

    noise_scale = 2048.0


class Unclipped(Frame):
    """A frame that does not clip."""

    def quantize(self, points, bits):
        return np.trunc(points * 2.0**bits)


class Greedy(Assigner):
    """Counts every row in every cluster."""

    def labels(self, rows):
        return np.zeros(len(rows) * 50, dtype=np.int64)


class Unlimited(WorkerLimits):
    """May keep whatever it likes."""


class EveryRowTwice(ShardSums):
    """Adds up what its contract has never bounded."""


class AnyArrays(StagedArrays):
    """Lies somewhere else."""


class Encoder:
    """Nobody knows its class."""

    columns = ()
    n_features = 4


def altered(value, **fields):
    """A copy of a frozen object with fields that its constructor would refuse."""
    found = dataclasses.replace(value)
    for name, each in fields.items():
        object.__setattr__(found, name, each)
    return found


def as_class(kind, value):
    """The same fields in an object of another class."""
    return kind(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


def with_contract(scene, contract):
    return scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(ShardSums(contract), scene.first), AsSingleton(scene.state)
    )


def with_state(scene, **fields):
    state = scene.root | "Own" >> beam.Create([altered(scene.job.initial, **fields)], reshuffle=False)
    return scene.statistics(state=state)


def with_release(scene, change):
    """The first release of the job's first round, changed the same way for statistic and noise stage."""
    plan = scene.first.plan
    plan = dataclasses.replace(plan, releases=(change(plan.releases[0]), *plan.releases[1:]))
    return scene.exact() | "Noise" >> scene.noise(plan)


@hostile(UNKNOWN + "one of test_graph_objects:ManyTimes", "Statistic")
def contract_that_is_none(scene):
    return with_contract(scene, ManyTimes())


@hostile(UNKNOWN + "one of test_graph_objects:ManyTimesContract", "Statistic")
def contract_of_a_subclass(scene):
    return with_contract(scene, as_class(ManyTimesContract, scene.job.contract))


@hostile(UNKNOWN + "one of test_graph_objects:EveryRowTwice", "Statistic")
def reader_of_a_subclass(scene):
    fn = _StatisticFn(EveryRowTwice(scene.job.contract), scene.first)
    return scene.shards | "Statistic" >> beam.ParDo(fn, AsSingleton(scene.state))


@hostile(UNKNOWN + "one of test_graph_objects:Unlimited", "Statistic")
def limits_of_a_subclass(scene):
    fn = _StatisticFn(ShardSums(scene.job.contract, Unlimited()), scene.first)
    return scene.shards | "Statistic" >> beam.ParDo(fn, AsSingleton(scene.state))


@hostile(UNKNOWN + "one of test_graph_objects:AnyArrays", "Begin")
def arrays_of_a_subclass(scene):
    return scene.state | "Begin" >> beam.Map(begin, AnyArrays("initial.npz", "0" * 64))


@hostile(UNKNOWN + "one of test_graph_objects:Louder", "Statistic")
def partial_application_of_a_subclass(scene):
    return scene.statistics(each=scene.first._replace(statistic=Louder(scene.first.statistic)))


@hostile("must list every file once, got some several times", "Often")
def files_listed_fifty_times(scene):
    source = dataclasses.replace(scene.job.source, files=tuple(scene.job.source.list_files()) * 50)
    return scene.root | "Often" >> ListShards(source=source, contract=scene.job.contract)


@hostile("must create public values, got references to rows", "Own")
def shards_created_fifty_times(scene):
    shards = [ShardRef(path, 0, 40) for path in scene.job.source.list_files()] * 50
    return scene.statistics(shards=scene.root | "Own" >> beam.Create(shards))


@hostile(UNKNOWN + "one of test_graph_objects:Quiet", "Noise")
def plan_that_is_drawn_by_another_scale(scene):
    return with_release(scene, lambda release: as_class(Quiet, release))


@hostile(UNKNOWN + "one of test_graph_objects:Unclipped", "Own")
def frame_that_does_not_clip(scene):
    return with_state(scene, frame=Unclipped(*scene.job.initial.frame))


@hostile(UNKNOWN + "one of test_graph_objects:Encoder", "Statistic")
def encoder_of_an_unknown_class(scene):
    return with_contract(scene, altered(scene.job.contract, encoder=Encoder()))


@hostile("must start from a state whose privacy unit is record, got a state of the other unit", "Statistic")
def state_of_the_other_unit(scene):
    settings = altered(scene.job.initial.settings, unit=Clients())
    state = scene.root | "Own" >> beam.Create([altered(scene.job.initial, settings=settings)], reshuffle=False)
    return scene.statistics(state=state)


@hostile("must be given public data and releases as a side input, got exact private data", "Server")
def exact_sum_in_a_side_input_of_the_server(scene):
    exact = scene.exact()
    return exact | "Noise" >> scene.noise() | "Server" >> beam.ParDo(ServerFn(scene.first), AsSingleton(exact))


@hostile("must draw a planned release that was not drawn before", "Again")
def two_noise_stages_of_one_plan(scene):
    exact = scene.exact()
    _ = exact | "Noise" >> scene.noise()
    return exact | "Again" >> noise_stage.AddNoise(plan=scene.first.plan, key_source=KeyFile(scene.world.secret))


class Changing(tuple):
    """Looks like a round, and runs another statistic after the check."""

    _fields = ("plan", "statistic", "step")
    plan = property(lambda self: self[0])
    statistic = property(lambda self: self[1])
    step = property(lambda self: self[2])


@hostile(UNKNOWN + "one of test_graph_objects:Changing", "Statistic")
def tuple_that_looks_like_a_round(scene):
    return scene.statistics(each=Changing(scene.first))


# Attacks of our own


class Twofold(str):
    """Looks itself up under one name and is written as another."""

    def __format__(self, spec):
        return "dapple_dp.schemas.tables.contract"


class Disguised(ManyTimesContract):
    """Calls itself by both names."""


@hostile(UNKNOWN + "one of ", "Statistic")
def class_with_a_module_of_two_names(scene):
    sys.modules["hostile"] = types.ModuleType("hostile")
    sys.modules["hostile"].TableContract = Disguised
    Disguised.__module__, Disguised.__qualname__ = Twofold("hostile"), "TableContract"
    step = beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state))
    step.fn._reader = ShardSums(as_class(Disguised, scene.job.contract))
    return scene.shards | "Statistic" >> step


@hostile("must run audited code, got dapple_dp.transforms.rounds.staged_state:begin", "Begin")
def wrapper_that_runs_another_function(scene):
    step = beam.Map(begin, StagedArrays("initial.npz", "0" * 64))
    step.fn.process = lambda state, staged: [state]
    return scene.state | "Begin" >> step


@hostile("must run audited code, got dapple_dp.transforms.on_beam.round:ServerFn", "Server")
def server_step_of_an_instance_alone(scene):
    step = scene.server()
    step.fn.process = lambda releases, state: [releases]
    return scene.exact() | "Noise" >> scene.noise() | "Server" >> step


@hostile("must run audited code, got dapple_dp.transforms.on_beam.round:_StatisticFn", "Statistic")
def hook_of_pickles_on_an_instance(scene):
    step = beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state))
    step.fn.__dict__["__reduce_ex__"] = functools.partial(print, ManyTimes)
    return scene.shards | "Statistic" >> step


@hostile("must run audited code, got dapple_dp.transforms.on_beam.noise_stage:_AddNoiseFn", "Noise")
def second_function_of_a_step(scene):
    step = beam.ParDo(noise_stage._AddNoiseFn(scene.first.plan, KeyFile(scene.world.key)))
    step.dofn = noise_stages._AddFurtherNoiseFn(scene.first.plan, KeyFile(scene.world.key))
    return scene.exact() | "Noise" >> step


@hostile(UNKNOWN + "a partial application with an attribute of its own", "Statistic")
def attribute_of_a_partial_application(scene):
    statistic = functools.partial(scene.first.statistic.func, **scene.first.statistic.keywords)
    statistic.__reduce_ex__ = ManyTimes
    step = beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state))
    step.fn._round = scene.first._replace(statistic=statistic)
    return scene.shards | "Statistic" >> step


class LoudSingleton(AsSingleton):
    """Broadcasts something else than the state."""

    @staticmethod
    def _from_runtime_iterable(it, options):
        return "something else"


@hostile(UNKNOWN + "one of test_graph_objects:LoudSingleton", "Statistic")
def view_of_a_side_input(scene):
    return scene.shards | "Statistic" >> beam.ParDo(
        _StatisticFn(ShardSums(scene.job.contract), scene.first), LoudSingleton(scene.state)
    )


@hostile(UNKNOWN + "one of test_graph_objects:Unclipped", "Statistic")
def default_of_a_side_input(scene):
    state = AsSingleton(scene.state, default_value=Unclipped(*scene.job.initial.frame))
    return scene.shards | "Statistic" >> beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), state)


@hostile("must be handed audited functions, got TableContract.to_block", "Statistic")
def bound_method_of_an_audited_object(scene):
    return scene.statistics(each=scene.first._replace(statistic=scene.job.contract.to_block))


@hostile("must be handed audited functions, got means_statistic", "Statistic")
def copy_of_an_audited_function(scene):
    copy = types.FunctionType(means_statistic.__code__, {"of_unit": ManyTimes}, "means_statistic")
    copy.__module__, copy.__qualname__ = means_statistic.__module__, means_statistic.__qualname__
    step = beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state))
    step.fn._round = scene.first._replace(statistic=copy)
    return scene.shards | "Statistic" >> step


@hostile(UNKNOWN + "one of dapple_dp.schemas.core.plan:Mechanism that is not a member", "Noise")
def member_that_its_enumeration_does_not_list(scene):
    law = str.__new__(Mechanism, "discrete_gaussian")
    law.__dict__.update(_name_="DISCRETE_GAUSSIAN", _value_="discrete_gaussian")
    step = beam.ParDo(noise_stage._AddNoiseFn(scene.first.plan, KeyFile(scene.world.key)))
    release = scene.first.plan.releases[0]
    fake = dataclasses.replace(release, spec=dataclasses.replace(release.spec, mechanism=law))
    step.fn._plan = dataclasses.replace(scene.first.plan, releases=(fake, *scene.first.plan.releases[1:]))
    return scene.exact() | "Noise" >> step


@hostile("must have a mechanism, a geometry, a whole sensitivity", "")
def text_that_equals_a_mechanism(scene):
    return with_release(
        scene, lambda release: altered(release, spec=altered(release.spec, mechanism="discrete_gaussian"))
    )


class Small(float):
    """A multiplier that is small when a scale is computed from it."""

    def __mul__(self, other):
        return 1.0

    __rmul__ = __mul__


@hostile(UNKNOWN + "one of test_graph_objects:Small", "Noise")
def multiplier_that_computes_otherwise(scene):
    return with_release(scene, lambda release: altered(release, noise_multiplier=Small(release.noise_multiplier)))


class KnownKey(KeyFile):
    """Draws under a key that its author knows."""

    def read_key(self):
        return bytes(range(32))


def with_key_source(scene, source):
    return scene.exact() | "Noise" >> noise_stage.AddNoise(plan=scene.first.plan, key_source=source)


@hostile(UNKNOWN + "one of test_graph_objects:KnownKey", "Noise")
def key_source_of_a_subclass(scene):
    return with_key_source(scene, KnownKey(scene.world.key))


@hostile(UNKNOWN + "one of test_graph_objects:KeyFile", "Noise")
def key_source_that_looks_like_the_audited_one(scene):
    fake = dataclasses.make_dataclass("KeyFile", ["place"], namespace={"read_key": lambda self: bytes(32)}, frozen=True)
    fake.__module__ = __name__
    return with_key_source(scene, fake(scene.world.key))


@hostile("must be handed audited functions, got read_key", "Noise")
def key_source_that_is_a_function(scene):
    return with_key_source(scene, functools.partial(read_key, scene.world.key))


@hostile(UNKNOWN + "one of test_graph_objects:Twofold", "Noise")
def key_source_whose_place_is_another_when_it_is_read(scene):
    return with_key_source(scene, KeyFile(Twofold(scene.world.key)))


@hostile("must run audited code, got dapple_dp.transforms.on_beam.noise_stage:_AddNoiseFn", "Noise")
def noise_stage_that_reads_its_key_itself(scene):
    step = beam.ParDo(noise_stage._AddNoiseFn(scene.first.plan, KeyFile(scene.world.key)))
    step.fn._held_key = lambda: bytes(32)
    return scene.exact() | "Noise" >> step


@hostile("must run audited code, got dapple_dp.transforms.privacy.key_files:read_key", "Key")
def key_that_is_read_by_a_step(scene):
    return scene.root | "Place" >> beam.Create([scene.world.key], reshuffle=False) | "Key" >> beam.Map(read_key)


class Lying(np.ndarray):
    """An array that looks at what it is computed with."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return NotImplemented


@hostile(UNKNOWN + "one of test_graph_objects:Lying", "Own")
def array_of_a_subclass(scene):
    return with_state(scene, server=scene.job.initial.server.view(Lying))


@hostile(UNKNOWN + "one of test_graph_objects:Encoder", "Own")
def object_inside_of_an_array(scene):
    return with_state(scene, server=np.array([[Encoder()]], dtype=object))


@hostile(UNKNOWN + "one of test_graph_objects:Greedy", "Own")
def assigner_of_a_subclass(scene):
    return with_state(scene, assigner=Greedy(np.zeros((3, 4))))


@hostile(UNKNOWN + "one of collections:defaultdict", "Own")
def mapping_of_a_subclass(scene):
    return scene.root | "Own" >> beam.Create([collections.defaultdict(Encoder)])


def _numbers():
    yield 1


@pytest.mark.parametrize(
    "value",
    [
        _numbers(),
        memoryview(b"rows"),
        ctypes.c_double(1.0),
        types.SimpleNamespace(rows=1),
        np,
        enum.Enum("Own", "A").A,
        slice(None),
        iter([1]),
        {1: Encoder()}.values(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_holders_of_anything_are_no_audited_objects(world, value):
    def build(root):
        scene = Scene(world, root)
        step = beam.ParDo(_StatisticFn(ShardSums(scene.job.contract), scene.first), AsSingleton(scene.state))
        step.fn._more = [{"deep": (value,)}]
        return scene.shards | "Statistic" >> step

    assert UNKNOWN in refused(build, world.job().promise)


class OwnWindows(GlobalWindows):
    """Sees the time of every row, and runs where rows are."""

    def assign(self, assign_context):
        raise AssertionError


@hostile(UNKNOWN + "one of test_graph_objects:OwnWindows", "Windows")
def windows_of_somebody(scene):
    return scene.shards | "Windows" >> beam.WindowInto(OwnWindows())


@hostile("must read the clients of one column, got several columns", "Statistic")
def clients_of_another_column(scene):
    first = altered(scene.job.contract, client_id="visit_id", by_client=True)
    listed = scene.root | "Other" >> ListShards(
        source=scene.job.source, contract=altered(scene.job.contract, client_id="client_id", by_client=True)
    )
    return listed | "Statistic" >> beam.ParDo(_StatisticFn(ShardSums(first), scene.first), AsSingleton(scene.state))


@pytest.mark.parametrize("name", hostile.cases)
def test_an_object_that_nobody_audited_is_refused(world, name):
    build, words, labels = hostile.cases[name]
    sentence = refused(lambda root: build(Scene(world, root)), world.job().promise)
    assert words in sentence
    assert labels[-1] in sentence.rpartition(" -> ")[2]


def test_a_round_needs_a_state_of_its_graph(world):
    def build(root):
        job = world.job()
        nothing = root | "Nothing" >> beam.Create([{}], reshuffle=False)
        fn = _StatisticFn(ShardSums(job.contract), job.rounds[0])
        return world.shards(root, job) | "Statistic" >> beam.ParDo(fn, AsSingleton(nothing))

    assert "must start from a state whose privacy unit is record, got no state" in refused(build, world.job().promise)


def test_a_plan_of_clients_needs_a_state_of_clients(world):
    """One wrong value: every row is counted where clients are promised."""
    job = world.job("client")
    settings = dataclasses.replace(job.initial.settings, unit=Rows())
    wrong = dataclasses.replace(job, initial=dataclasses.replace(job.initial, settings=settings))
    sentence = refused(lambda root: world.fit(root, wrong), job.promise)
    assert "must start from a state whose privacy unit is client, got a state of the other unit" in sentence


@pytest.mark.parametrize("name", ["starts_privately", "model_dump", "__reduce_ex__", "own"])
def test_an_attribute_that_no_type_declares_is_refused(world, name):
    """It would stand before a property or a method of an object that is honest otherwise."""
    options = DPLloydConfig(domain=(-2.0, 7.0))
    assert KnownObjects().stranger([options]) is None
    options.__dict__[name] = 1
    assert "with an attribute that its type does not declare" in KnownObjects().stranger([{"deep": (options,)}])
