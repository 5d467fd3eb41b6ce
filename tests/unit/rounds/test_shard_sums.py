"""The statistic of shards is the same however many threads work on it, and whether their rows were kept or read."""

import contextlib
import dataclasses
import os
import secrets
import threading

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError, LatticeOverflowError, RunnerError
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.rounds import machine, shard_sums
from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame, frame_digest
from dapple_dp.transforms.rounds.own_process import STOPPING
from dapple_dp.transforms.rounds.row_cache import CACHES, WorkerLimits
from dapple_dp.transforms.rounds.shard_sums import ShardReader, ShardSums, contract_digest, sum_shards
from dapple_dp.transforms.tables.file_seal import seal_of
from tests.scenes import kernels, lake

N_ROWS, CLIENT_ROWS = 240, 10
LLOYD = {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": [-8, 8]}, "clipping": {"norm": "domain"}}
JOBS = {
    "record": {"quality": {}, "lloyd": {"steps": 1}},
    "client": {"unit": "client", "quality": {}},
    "paper-client": {"unit": "client", "privacy__allocation": "paper", "lloyd": {"steps": 1}},
    "tree": {"algorithm": "central_tree", "tree": {"radius": 10.0}, "clipping": {}, "feddp_kmeans": {}},
    "dp_lloyd": LLOYD,
}


class Lake:
    """Rows in two files of three row groups each."""

    def __init__(self, folder):
        self.points = lake.mixture(N_ROWS)
        clients = np.arange(N_ROWS) // CLIENT_ROWS
        self.path = lake.write_lake(folder / "lake", self.points, clients, n_files=2, row_group_size=40)
        self.server = lake.write_server(folder / "server.parquet")
        self.shards = [EMPTY_SHARD]
        for name in sorted(os.listdir(self.path)):
            file = os.path.join(self.path, name)
            self.shards += [ShardRef(file, index, 40, 1, 0, file, seal_of(file).text) for index in range(3)]

    def planned(self, name):
        changes = dict(JOBS[name])
        unit = changes.pop("unit", "record")
        settings = lake.job(self.path, self.server, unit, **changes)
        if settings["algorithm"] != "feddp_kmeans":
            settings = {key: value for key, value in settings.items() if key not in ("feddp_kmeans", "server_data")}
            settings["clipping"] = settings["clipping"] or None
        return lake.planned({key: value for key, value in settings.items() if value is not None})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return Lake(tmp_path_factory.mktemp("shards"))


@pytest.fixture
def run():
    name = secrets.token_hex(4)
    with CACHES.held(name):
        yield name


@pytest.fixture
def compiled(monkeypatch):
    """Threads need the kernel."""
    kernels.use(monkeypatch, kernels.compiled())


def reader(fit, bound, state, limits):
    identity = contract_digest(fit.contract)
    return ShardReader(contract=fit.contract, identity=identity, round=bound, state=state, limits=limits)


@pytest.mark.parametrize("name", JOBS)
def test_every_round_is_what_it_was(world, run, compiled, name):
    """Read, kept in the first round that can, taken from there, and by threads: the integers of one plain loop."""
    fit, reads = world.planned(name), []
    state = fit.initial
    for bound in fit.rounds:
        plain = sum_shards(reader(fit, bound, state, WorkerLimits()), world.shards)
        for cores in (0, 1, 3):
            limits = WorkerLimits(run=run, cores=cores, cache_bytes=1 << 20)
            found = ShardSums(fit.contract, limits).sums(world.shards, bound, state)
            np.testing.assert_array_equal(found, plain)
        reads.append(bound.bits)
        state = bound.step(state, draw_release(lake.KEY, bound.plan, plain))
    assert set(reads) & {lattice.SUM_BITS, lattice.OUTER_BITS}


def second(fit, total):
    """The second round, and the state after the first one."""
    bound = fit.rounds[0]
    return fit.rounds[1], bound.step(fit.initial, draw_release(lake.KEY, bound.plan, total))


@pytest.mark.parametrize("name", ["record", "client", "dp_lloyd"])
def test_rows_are_read_once(world, run, monkeypatch, name):
    """The first round keeps them at the bits of the second one, whatever its own are."""
    fit = world.planned(name)
    limits = WorkerLimits(run=run, cores=2, cache_bytes=1 << 20)
    bound, state = second(fit, sum_shards(reader(fit, fit.rounds[0], fit.initial, limits), world.shards))
    plain = sum_shards(reader(fit, bound, state, WorkerLimits()), world.shards)

    def refuse(*_):
        raise AssertionError("a kept row was read")

    monkeypatch.setattr(shard_sums, "read_blocks", refuse)
    np.testing.assert_array_equal(sum_shards(reader(fit, bound, state, limits), world.shards[1:]), plain)


def test_a_state_of_a_file_is_never_left_out(world, run):
    """A statistic of kept rows would once have been given the state that is the same for all files."""
    fit, seen = world.planned("record"), []
    bound = fit.rounds[0]._replace(at=lambda state, path: seen.append(path) or state)
    limits = WorkerLimits(run=run, cores=1, cache_bytes=1 << 20)
    for _ in range(2):
        sum_shards(reader(fit, bound, fit.initial, limits), world.shards[1:])
    assert seen == [shard.path for shard in world.shards[1:]] * 2


@pytest.mark.parametrize("cores", [2, 3])
def test_that_many_threads_read_at_once(world, run, compiled, monkeypatch, cores):
    fit, barrier = world.planned("record"), threading.Barrier(cores)
    read, waited = shard_sums.read_blocks, []

    def together(*given):
        if len(waited) < cores:
            waited.append(given)
            barrier.wait(600)
        return read(*given)

    monkeypatch.setattr(shard_sums, "read_blocks", together)
    limits = WorkerLimits(run=run, cores=cores)
    sum_shards(reader(fit, fit.rounds[0], fit.initial, limits), world.shards[1:])
    assert not barrier.broken


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("another file"), InputError("another file")),
        (MemoryError("(1234, 2)"), RunnerError(machine.NO_MEMORY)),
    ],
)
def test_what_fails_in_one_thread_ends_all(world, run, compiled, monkeypatch, error, said, cores):
    """Too little memory is described without the number of rows."""
    fit, read, seen = world.planned("record"), shard_sums.read_blocks, []

    def broken(shard, contract):
        seen.append(shard)
        if len(seen) == 2:
            raise error
        return read(shard, contract)

    monkeypatch.setattr(shard_sums, "read_blocks", broken)
    known = reader(fit, fit.rounds[0], fit.initial, WorkerLimits(run=run, cores=cores))
    with pytest.raises(type(said)) as caught:
        sum_shards(known, world.shards[1:] * 50)
    assert str(caught.value) == str(said)
    assert caught.value.__suppress_context__ == isinstance(said, RunnerError)
    assert len(seen) < 100


@pytest.mark.parametrize("cores", [1, 2])
def test_a_command_that_is_to_stop_gives_no_part_of_a_sum(world, run, compiled, monkeypatch, cores):
    fit, read = world.planned("record"), shard_sums.read_blocks

    def stopped(*given):
        monkeypatch.setattr(STOPPING, "asked", True)
        return read(*given)

    monkeypatch.setattr(shard_sums, "read_blocks", stopped)
    known = reader(fit, fit.rounds[0], fit.initial, WorkerLimits(run=run, cores=cores))
    with pytest.raises(RunnerError, match="was interrupted"):
        sum_shards(known, world.shards[1:])


def test_a_shard_that_fails_while_it_is_kept_for_later_is_not_kept(world, run, monkeypatch):
    fit = world.planned("record")
    limits = WorkerLimits(run=run, cores=1, cache_bytes=1 << 20)
    read = shard_sums.read_blocks

    def broken(*given):
        yield next(read(*given))
        raise InputError("another file")

    monkeypatch.setattr(shard_sums, "read_blocks", broken)
    with pytest.raises(InputError, match="another file"):
        sum_shards(reader(fit, fit.rounds[0], fit.initial, limits), world.shards[1:])
    assert not CACHES.of_run(limits)._entries


@pytest.mark.parametrize("change", ["seal", "frame", "contract", "run"])
def test_what_makes_other_rows_is_another_key(world, run, monkeypatch, change):
    fit = world.planned("record")
    limits = WorkerLimits(run=run, cores=1, cache_bytes=1 << 20)
    known = reader(fit, fit.rounds[0], fit.initial, limits)
    shard = world.shards[1]
    sum_shards(known, [shard])
    seen = []
    read = shard_sums.read_blocks
    monkeypatch.setattr(shard_sums, "read_blocks", lambda *given: seen.append(given) or read(*given))
    center = fit.initial.frame.lattice.center + 1.0
    other_frame = Frame(fit.initial.frame.lattice._replace(center=center))
    changed, part = {
        "seal": (known, dataclasses.replace(shard, seal="1 2 3")),
        "frame": (dataclasses.replace(known, state=dataclasses.replace(fit.initial, frame=other_frame)), shard),
        "contract": (dataclasses.replace(known, identity=b"other"), shard),
        "run": (dataclasses.replace(known, limits=dataclasses.replace(limits, run="other")), shard),
    }[change]
    with (
        pytest.raises(InputError, match="was changed after the job listed it")
        if change == "seal"
        else contextlib.nullcontext()
    ):
        sum_shards(changed, [part])
    assert len(seen) == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_a_file_that_is_replaced_before_it_was_kept_is_refused(world, run, compiled, tmp_path, cores):
    path = lake.write_lake(tmp_path / "lake", world.points)
    file = os.path.join(path, os.listdir(path)[0])
    shard = ShardRef(file, 0, N_ROWS, 1, 0, file, seal_of(file).text)
    fit, limits = world.planned("record"), WorkerLimits(run=run, cores=cores, cache_bytes=1 << 20)
    lake.write_lake(tmp_path / "lake", 2.0 * world.points)
    with pytest.raises(InputError, match="was changed after the job listed it"):
        sum_shards(reader(fit, fit.rounds[0], fit.initial, limits), [*world.shards, shard])


def test_a_file_that_is_replaced_afterwards_is_not_read(world, run, tmp_path):
    path = lake.write_lake(tmp_path / "lake", world.points)
    file = os.path.join(path, os.listdir(path)[0])
    shard = ShardRef(file, 0, N_ROWS, 1, 0, file, seal_of(file).text)
    fit, limits = world.planned("record"), WorkerLimits(run=run, cores=2, cache_bytes=1 << 20)
    bound, state = second(fit, sum_shards(reader(fit, fit.rounds[0], fit.initial, limits), [shard]))
    first = sum_shards(reader(fit, bound, state, limits), [shard])
    lake.write_lake(tmp_path / "lake", 2.0 * world.points)
    np.testing.assert_array_equal(sum_shards(reader(fit, bound, state, limits), [shard]), first)


def frames():
    plain = Lattice(np.array([0.1, -0.2]), 3.0)
    return [Frame(plain), Frame(plain._replace(clipping_norm=3.5)), Frame(plain, Box(-1, 2))]


def test_frames_that_differ_have_other_digests():
    assert len({frame_digest(frame) for frame in frames()}) == len(frames())
    assert [frame_digest(frame) for frame in frames()] == [frame_digest(frame) for frame in frames()]


def test_all_that_decides_integers_is_in_the_digest_of_a_frame():
    plain = Lattice(np.array([0.1, -0.2]), 3.0)
    turned = plain._replace(center=np.array([0.1, 0.2]))
    others = [
        Frame(turned),
        Frame(plain._replace(clipping_norm=3.0 + 2.0**-51)),
        Frame(plain, Box(-1, 2.5)),
        Frame(plain, Box(-1.5, 2)),
        Frame(Lattice(np.array([[0.1], [-0.2]]), 3.0)),
    ]
    digests = [frame_digest(frame) for frame in (*frames(), *others)]
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}
    assert frame_digest(Frame(plain._replace(center=np.array([0.1, 9.0, -0.2, 9.0])[::2]))) == digests[0]


@pytest.mark.parametrize("frame", frames())
def test_integers_pass_a_frame_as_they_are(frame):
    """Also those of rows far out and of the widest float."""
    points = np.array([[1e308, -1e300], [0.0, 0.0], [5.0, -7.0], [0.3, 0.4]])
    integers = frame.quantize(points, 20)
    known = QuantizedFrame.of(frame, 20)
    np.testing.assert_array_equal(known.quantize(integers.astype(np.int32), 20), integers)
    assert known.lattice is frame.lattice


@pytest.mark.parametrize(
    ("points", "bits"),
    [
        (np.array([[1 << 20, 1]], dtype=np.int32), 20),
        (np.array([[-(1 << 31), 0]], dtype=np.int32), 20),
        (np.array([[1, 1]], dtype=np.int32), 16),
        (np.array([[1.0, 1.0]]), 20),
    ],
    ids=["longer", "longest", "other bits", "rows"],
)
def test_rows_that_no_frame_made_are_refused(points, bits):
    """Bytes that changed in a file must not move a sum farther than its sensitivity."""
    with pytest.raises(LatticeOverflowError, match="don't fit this round"):
        QuantizedFrame.of(frames()[0], 20).quantize(points, bits)


def test_no_rows_are_a_zero(world):
    fit = world.planned("record")
    known = reader(fit, fit.rounds[0], fit.initial, WorkerLimits(cores=2))
    np.testing.assert_array_equal(sum_shards(known, [EMPTY_SHARD]), np.zeros(fit.rounds[0].plan.size, dtype=np.int64))
    assert isinstance(ClientBlock(np.zeros((0, 2))), tuple)
