"""Beam and the loop are one run: under one key, both release the same bytes of the same rows."""

import functools
import pickle
from types import SimpleNamespace
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.pipelines.kmeans.fit import aggregation_of
from dapple_dp.pipelines.run.in_process import run_in_process
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.run.run_keys import run_key
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.on_beam.round import RunRounds
from dapple_dp.transforms.rounds.memory_rows import Columns
from dapple_dp.transforms.tables.read import ListShards
from tests.scenes import lake
from tests.scenes.protocol_jobs import ALONE, settings_of

CLIENT_ROWS = 5
pytestmark = pytest.mark.slow
UNITS = ("record", "client")
CASES = [(algorithm, unit) for algorithm in ALONE for unit in UNITS]


class Size(NamedTuple):
    """Rows, public server rows, features of both, and the jobs on them."""

    n_rows: int
    n_server: int = 60
    width: int = 4
    cases: list[tuple[str, str]] = CASES


SIZES = {
    "10 rows": Size(10),
    "8195 rows": Size(8195),
    "300000 rows": Size(300_000, cases=[("dp_lloyd", unit) for unit in UNITS]),
    "10 MB of server rows": Size(400, 5120, 256, [("feddp_kmeans", "record")]),
}


def build(root, fits, place, folder):
    """All jobs in one graph."""

    def save(state, name):  # a local function travels to workers by value
        with open(f"{folder}/{name}", "wb") as file:
            pickle.dump(state.releases, file)

    for name, fit in fits.items():
        shards = root | f"{name}/List" >> ListShards(source=fit.source, contract=fit.contract)
        state = root | f"{name}/Public" >> beam.Create([fit.initial], reshuffle=False)
        run = RunRounds(rounds=fit.rounds, state=state, aggregation=aggregation_of(fit, place))
        _ = shards | f"{name}/Rounds" >> run | f"{name}/Save" >> beam.Map(save, name)


@pytest.fixture(scope="module")
def world_of(tmp_path_factory):
    """Jobs on the same rows of a size, and what Beam has released; made once."""

    @functools.cache
    def made(name):
        return world(SIZES[name], tmp_path_factory.mktemp("engines"))

    return made


def world(size, folder):
    n_rows, n_server, width, cases = size
    means = 5.0 * np.eye(3, width)
    points = lake.mixture(n_rows, means=means).astype(np.float32)
    clients = np.arange(len(points)) // CLIENT_ROWS
    size = 500 if n_rows < 10_000 else 30_000
    path = lake.write_lake(folder / "lake", points, clients, n_files=2, row_group_size=size, codes=True)
    server = lake.write_server(folder / "server.parquet", lake.mixture(n_server, 99, means))
    place = keys.run_place(lake.write_key(folder / "key"), "run", bytes(16))
    fits = {}
    for algorithm, unit in cases:
        job = lake.job(path, server, unit, **settings_of(algorithm))
        job["clipping"] |= {"client_rows": CLIENT_ROWS} if unit == "client" else {}
        fits[f"{algorithm}-{unit}"] = lake.ready(job, folder / "listings")
    lake.run_unchecked(lambda root: build(root, fits, place, str(folder)), beam_options(()))
    return SimpleNamespace(folder=folder, points=points, clients=clients, fits=fits, place=place)


@pytest.mark.parametrize(
    ("size", "algorithm", "unit"), [(name, *case) for name, size in SIZES.items() for case in size.cases], ids=str
)
def test_both_engines_release_the_same_bytes(world_of, size, algorithm, unit):
    world, name = world_of(size), f"{algorithm}-{unit}"
    fit = world.fits[name]
    ids = pa.chunked_array([pa.array(world.clients)]) if unit == "client" else None
    rows = Columns(world.points, ids)
    if fit.contract.encoder is not None:
        table = lake.table_of(world.points, codes=True)
        rows = Columns(world.points[:, :3], ids, {name: table[name].combine_chunks() for name in ("b", "c")})
    (*_, state), _ = run_in_process(fit, rows, lambda: run_key(world.place))
    by_beam = pickle.loads((world.folder / name).read_bytes())
    assert len(by_beam) == sum(len(each.plan.releases) for each in fit.rounds)
    for left, right in zip(state.releases, by_beam, strict=True):
        assert (left.path, left.plan, left.values.tobytes()) == (right.path, right.plan, right.values.tobytes())
