"""The loop engine has the guarantees of a graph: what one of them refuses, the other refuses, and before a key is made.

Each fault is planted in the plan or the objects of a real job, for both.
"""

import copy
import dataclasses
import functools
import gc
import traceback
import weakref
from types import SimpleNamespace

import apache_beam as beam
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dapple_dp.pipelines.kmeans.fit import aggregation_of
from dapple_dp.pipelines.run import in_process
from dapple_dp.pipelines.run.in_process import run_in_process
from dapple_dp.pipelines.run.run_keys import memory_key, run_key
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError, PrivacyFlowError, RunnerError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.core import noise as core_noise
from dapple_dp.transforms.core.loop import RunKey
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.on_beam.checker import check_graph
from dapple_dp.transforms.on_beam.round import RunRounds
from dapple_dp.transforms.rounds.local_rows import LocalRows
from dapple_dp.transforms.rounds.memory_rows import Columns, MemoryRows
from dapple_dp.transforms.tables.read import ListShards
from tests.scenes import lake
from tests.scenes.protocol_jobs import settings_of

N_ROWS = 400
POINTS = lake.mixture(N_ROWS)


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """A job at each privacy unit."""
    folder = tmp_path_factory.mktemp("engine")
    data = lake.write_lake(folder / "lake", POINTS, np.arange(N_ROWS) // 4, n_files=1)
    jobs = {unit: lake.job(data, None, unit, **settings_of("dp_lloyd")) for unit in ("record", "client")}
    jobs["client"]["clipping"] |= {"client_rows": 4}
    return {unit: lake.ready(job, folder / unit) for unit, job in jobs.items()}


class World(SimpleNamespace):
    """A job as both engines are given it: with `rounds`, `initial`, `contract` and `promise`."""


def world_of(fit):
    return World(
        initial=fit.initial, rounds=fit.rounds, contract=fit.contract, promise=fit.promise, source=fit.source, fit=fit
    )


@pytest.fixture
def world(fits):
    return world_of(fits["record"])


def no_key():
    raise AssertionError("a key was asked for")


def in_memory(world):
    run_in_process(world, Columns(POINTS), no_key)


def in_files(world):
    run_in_process(world, LocalRows(world.source), no_key)


def by_beam(world):
    pipeline = beam.Pipeline()
    fit = dataclasses.replace(world.fit, contract=world.contract)
    place = keys.run_place("/keys/none", "run", bytes(16))
    shards = pipeline | ListShards(source=world.source, contract=fit.contract)
    state = pipeline | "Public" >> beam.Create([world.initial], reshuffle=False)
    _ = shards | RunRounds(rounds=world.rounds, state=state, aggregation=aggregation_of(fit, place))
    check_graph(pipeline, world.promise)


ENGINES = [in_memory, in_files, by_beam]
engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each.__name__)


def changed(world, index, **more):
    """With another round at a place."""
    rounds = list(world.rounds)
    rounds[index] = rounds[index]._replace(**more)
    world.rounds = tuple(rounds)


def replanned(world, change):
    """With other releases, in the plan and in the promise."""
    (promised,) = world.promise.plans
    plans = [dataclasses.replace(each.plan, releases=tuple(map(change, each.plan.releases))) for each in world.rounds]
    world.rounds = tuple(each._replace(plan=plan) for each, plan in zip(world.rounds, plans, strict=True))
    promised = dataclasses.replace(promised, rounds=tuple(plans))
    world.promise = dataclasses.replace(world.promise, plans=(promised,))


def copied(function):
    """Another function of the same name and code."""
    return type(function)(function.__code__, function.__globals__, function.__name__, function.__defaults__)


def other_statistic(world):
    changed(world, 0, statistic=lambda block, state: world.rounds[0].statistic(block, state) * 1000)


def copied_statistic(world):
    statistic = world.rounds[0].statistic
    inner = statistic.func if isinstance(statistic, functools.partial) else statistic
    given = copied(inner)
    changed(
        world,
        0,
        statistic=functools.partial(given, *statistic.args, **statistic.keywords) if inner is not statistic else given,
    )


def other_step(world):
    changed(world, 1, step=lambda state, releases: state)


def shadowed_attribute(world):
    world.initial = copy.deepcopy(world.initial)
    vars(world.initial.settings.options)["model_copy"] = print


def lookalike_contract(world):
    class ManyTimes(TableContract):
        def to_block(self, table, where):
            return ClientBlock(np.repeat(super().to_block(table, where).points, 1000, axis=0))

    given = {each.name: getattr(world.contract, each.name) for each in dataclasses.fields(world.contract)}
    world.contract = ManyTimes(**given)


def understated_sensitivity(world):
    replanned(world, lambda each: dataclasses.replace(each, spec=dataclasses.replace(each.spec, sensitivity=1)))


def too_little_noise(world):
    replanned(world, lambda each: dataclasses.replace(each, noise_multiplier=each.noise_multiplier / 2))


def less_noise_than_promised(world):
    plan = world.rounds[0].plan
    less = tuple(dataclasses.replace(each, noise_multiplier=each.noise_multiplier / 2) for each in plan.releases)
    changed(world, 0, plan=dataclasses.replace(plan, releases=less))


def text_for_a_mechanism(world):
    def change(each):
        return dataclasses.replace(each, spec=dataclasses.replace(each.spec, mechanism=str(each.spec.mechanism)))

    replanned(world, change)


def round_drawn_twice(world):
    world.rounds = (*world.rounds, world.rounds[-1])


def round_left_out(world):
    world.rounds = world.rounds[:-1]


def round_of_another_type(world):
    class Louder(Round):
        pass

    world.rounds = (Louder(*world.rounds[0]), *world.rounds[1:])


FAULTS = [
    *(other_statistic, copied_statistic, other_step, shadowed_attribute, lookalike_contract),
    *(understated_sensitivity, too_little_noise, less_noise_than_promised, text_for_a_mechanism),
    *(round_drawn_twice, round_left_out, round_of_another_type),
]


@engines
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_both_refuse_before_a_row_is_read(world, engine, fault, monkeypatch):
    fault(world)
    monkeypatch.setattr(LocalRows, "shards", lambda *_: pytest.fail("files were listed"))
    with pytest.raises((PrivacyFlowError, RuntimeError, ValueError)) as refused:
        engine(world)
    # Beam itself refuses a round under the label of another one.
    assert fault is round_drawn_twice or isinstance(refused.value, PrivacyFlowError)


@engines
@pytest.mark.parametrize(("unit", "other"), [("record", "client"), ("client", "record")])
def test_both_refuse_a_state_of_the_other_unit(fits, engine, unit, other):
    world = world_of(fits[unit])
    world.initial = fits[other].initial
    with pytest.raises(PrivacyFlowError, match="start from a state whose privacy unit is"):
        engine(world)


@engines
def test_both_refuse_single_rows_where_the_client_is_the_unit(fits, engine):
    world = world_of(fits["client"])
    world.contract = dataclasses.replace(world.contract, by_client=False)
    with pytest.raises(PrivacyFlowError, match="read rows by client, got single rows"):
        engine(world)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_both_take_the_job_itself(fits, unit):
    world = world_of(fits[unit])
    by_beam(world)
    ids = None if unit == "record" else lake.pa.chunked_array([lake.pa.array(np.arange(N_ROWS) // 4)])
    (*_, state), spent = run_in_process(world, Columns(POINTS, ids), memory_key)
    assert spent.rounds == tuple(each.plan for each in fits[unit].rounds)
    assert spent.epsilon <= fits[unit].plan.epsilon
    assert [each.path for each in state.releases] == [
        f"{each.path}/{one.spec.name}" for each in spent.rounds for one in each.releases
    ]


@pytest.mark.parametrize(
    ("name", "value"), [("chunk", ()), ("stages", frozenset()), ("zone", "trusted")], ids=lambda each: str(each)
)
def test_a_part_of_a_run_is_left_to_beam(world, name, value):
    world.promise = dataclasses.replace(world.promise, **{name: value})
    with pytest.raises(PrivacyFlowError, match="must be a whole run of a trusted pipeline, got a part of a run"):
        in_memory(world)


def test_shares_of_noise_are_left_to_beam(world):
    (promised,) = world.promise.plans
    world.promise = dataclasses.replace(world.promise, plans=(dataclasses.replace(promised, shares=object()),))
    with pytest.raises(PrivacyFlowError, match="got windows of clients or shares of noise"):
        in_memory(world)


# Rows.


def test_blocks_are_made_by_the_engine_and_counted_once_in_each_round(world, monkeypatch):
    made, count = [], []

    class Counting(MemoryRows):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

        def __iter__(self):
            for block in super().__iter__():
                count.append(len(block.points))
                yield block

    monkeypatch.setattr(in_process, "MemoryRows", Counting)
    run_in_process(world, Columns(POINTS), memory_key)
    assert len(made) == 1
    assert sum(count) == N_ROWS * len(world.rounds)
    block = ClientBlock(POINTS)
    for rows in ([block, block], [POINTS], MemoryRows(Columns(POINTS), world.contract)):
        with pytest.raises(AttributeError):
            run_in_process(world, rows, no_key)


# Keys.


def test_a_key_of_the_memory_is_new_and_draws_once(world):
    first, second = memory_key(), memory_key()
    assert first.mac([b""]) != second.mac([b""])
    run_in_process(world, Columns(POINTS), lambda: first)
    with pytest.raises(PrivacyFlowError, match="this run key has already drawn noise"):
        run_in_process(world, Columns(POINTS), lambda: first)
    with pytest.raises(PrivacyFlowError, match="this run key belongs to a run that is over"):
        first.mac([b""])


def test_kept_and_weak_keys_do_not_draw(tmp_path):
    with pytest.raises(PrivacyFlowError, match="got the kept key at"):
        run_key(lake.write_key(tmp_path / "key"))
    weak = lake.write_key(tmp_path / "weak", bytes(32))
    with pytest.raises(ConfigError):
        run_key(keys.run_place(weak, "run", bytes(16)))


# Failures.


def planted(world, monkeypatch, error):
    """The statistic of the third round fails."""
    measured, measure = [], in_process.loop.measure

    def failing(round_, block, state):
        measured.append(round_.plan.path)
        found = measure(round_, block, state)
        if len(set(measured)) == 3:
            raise error
        return found

    monkeypatch.setattr(in_process.loop, "measure", failing)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("(1234, 2)"), ValueError("1234")])
def test_a_failure_leaves_no_sum_and_no_key(world, monkeypatch, error):
    planted(world, monkeypatch, error)
    key = RunKey(bytes(range(7, 39)))
    expected = RunnerError if isinstance(error, MemoryError) else type(error)
    with pytest.raises(expected) as refused:
        run_in_process(world, Columns(POINTS), lambda: key)
    core = [
        frame for frame, _ in traceback.walk_tb(refused.value.__traceback__) if "core/loop" in frame.f_code.co_filename
    ]
    assert core
    held = [value for frame in core for value in frame.f_locals.values() if isinstance(value, np.ndarray)]
    assert not held
    if isinstance(error, MemoryError):
        assert "1234" not in str(refused.value)
        assert refused.value.__context__ is None
    with pytest.raises(PrivacyFlowError, match="this run key belongs to a run that is over"):
        key.mac([b""])


def recorded_sums(monkeypatch):
    """Each exact sum of a run: a weak reference to its array, and its bytes."""
    sums, add_up = [], in_process.loop._exact_sum

    def recorded(*given):
        total = add_up(*given)
        sums.append((weakref.ref(total), total.tobytes()))
        return total

    monkeypatch.setattr(in_process.loop, "_exact_sum", recorded)
    return sums


def frames_of(error):
    """Frames of an error and of those that led to it."""
    before = {each for each in (error.__cause__, error.__context__) if each is not None}
    own = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return own + [frame for each in before for frame in frames_of(each)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError], ids=lambda each: each.__name__)
@pytest.mark.parametrize(("place", "n_calls"), [("noise", 1), ("noise", 2), ("noise", 6), ("step", 1), ("step", 3)])
def test_no_exact_sum_can_be_reached_from_a_failure(world, monkeypatch, place, n_calls, error):
    """The noise of a release fails (before it some sums have noise, others none yet), or a server step does."""
    sums, calls = recorded_sums(monkeypatch), []
    inner = core_noise.planned_noise

    def failing(*given):
        calls.append(1)
        if len(calls) == n_calls and place == "noise":
            raise error("1234")
        return inner(*given)

    def stepping(round_, blocks, state, draw, released=in_process.loop._released):
        found = released(round_, blocks, state, draw)
        if len(sums) == n_calls:
            raise error("1234")
        return found

    monkeypatch.setattr(core_noise, "planned_noise", failing)
    if place == "step":
        monkeypatch.setattr(in_process.loop, "_released", stepping)
    with pytest.raises((error, RunnerError)) as caught:
        run_in_process(world, Columns(POINTS), memory_key)
    assert len(sums) >= 1
    gc.collect()
    assert not any(array() is not None for array, _ in sums)
    values = [value for frame in frames_of(caught.value) for value in frame.f_locals.values()]
    assert not [each for each in values if isinstance(each, np.ndarray) and each.dtype == np.int64]
    raw = [bytes(each) for each in values if isinstance(each, bytes | bytearray | memoryview)]
    assert not any(content in each for each in raw for _, content in sums)


def test_too_little_memory_for_blocks_is_said_without_the_number_of_rows(world, monkeypatch):
    def failing(*_):
        raise MemoryError("(1234, 2)")

    monkeypatch.setattr(TableContract, "to_block", failing)
    with pytest.raises(RunnerError, match="fit into memory") as refused:
        in_memory(world)
    assert "1234" not in str(refused.value)
    assert refused.value.__context__ is None


def test_rows_become_blocks_on_one_thread(world, monkeypatch):
    """Threads that wait for the next product take half as much time again as a small fit."""
    seen, to_block = [], TableContract.to_block

    def noting(*given):
        seen.extend(library["num_threads"] for library in threadpool_info())
        return to_block(*given)

    monkeypatch.setattr(TableContract, "to_block", noting)
    with threadpool_limits(2):
        run_in_process(world, Columns(POINTS), memory_key)
    assert set(seen) == {1}
