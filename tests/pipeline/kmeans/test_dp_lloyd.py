"""Whole runs of DP-Lloyd: every start and privacy unit, against its rounds on one block."""

import json
import math
import pathlib
import pickle

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from dp_accounting import gaussian_mechanism

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.trusted_zone.sweep_cells import Cell, RunCells
from tests.scenes import lake

CENTERS = 0.6 * np.array([[1, 1, 1, 1, 0], [-1, -1, 1, 0, 0], [1, -1, -1, 0, 1]])


def rows(n_rows, n_features=5, seed=0):
    """Three clusters inside [-1, 1]^d."""
    noise = np.random.default_rng(seed).normal(0.0, 0.1, (n_rows, n_features))
    return np.clip(CENTERS[np.arange(n_rows) % 3, :n_features] + noise, -1.0, 1.0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dp_lloyd")
    points, clients = rows(3000), np.arange(3000) // 10
    return {
        "rows": points,
        "data": lake.write_lake(folder / "rows", points, clients, n_files=3, row_group_size=500),
        "flat": lake.write_lake(folder / "flat", points[:, :2], clients, n_files=2, row_group_size=500),
        "server": lake.write_server(folder / "server.parquet", rows(60, seed=9)),
        "key": lake.write_key(folder / "key"),
        "offsets": np.arange(0, 3001, 10),
    }


def job(place, unit="record", data="data", **settings):
    """A job on the lake; `settings` go to its `dp_lloyd` section."""
    init = settings.get("init")
    found = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": place[data], "features": "x", "public_rows": 3000 if unit == "record" else 300},
        "server_data": {"path": place["server"]} if init == "feddp_init" else "none",
        "n_clusters": 3,
        "privacy": {"unit": unit, "epsilon": 4.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-1.0, 1.0]} | settings,
        "key_uri": place["key"],
    }
    if unit == "client":
        found["data"]["client_id"] = "client_id"
        found["clipping"] = {"client_rows": 10}
    return found


def cost(points, centers):
    return float(((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2).min(axis=1).mean())


KINDS = [
    {"init": "sphere_packing"},
    {"init": "best"},
    {"init": "candidates"},
    {"init": "feddp_init"},
    {"init": "central_tree"},
]


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("settings", KINDS, ids=lambda each: "-".join(map(str, each.values())))
def test_a_run_equals_its_rounds_on_one_block(place, tmp_path, settings, unit):
    fit = job(place, unit, **settings)
    result = lake.run_fit(fit, tmp_path / "out")
    planned = lake.planned(fit)
    expected = lake.chain(planned, ClientBlock(place["rows"], place["offsets"])).model()
    np.testing.assert_array_equal(result.model.centers, expected.centers)
    np.testing.assert_array_equal(result.model.noisy_sizes, expected.noisy_sizes)
    assert [each.path for each in result.model.releases] == [
        f"{each.path}/{one.spec.name}" for each in planned.plan.rounds for one in each.releases
    ]
    assert np.isfinite([each.lattice_unit for each in result.model.releases]).all()
    assert result.privacy.epsilon <= 4.0
    assert result.privacy.epsilon > 3.9


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("data", ["data", "flat"])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_best_start_finds_the_clusters(place, tmp_path, data, unit, public):
    fit = job(place, unit, data)
    if not public:
        del fit["data"]["public_rows"]
    centers = lake.run_fit(fit, tmp_path / "out").model.centers
    points = place["rows"][:, : centers.shape[1]]
    true = CENTERS[:, : centers.shape[1]]
    assert cost(points, centers) < (1.3 if unit == "record" else 3.0) * cost(points, true)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_cells_of_a_sweep_equal_runs_of_their_own(place, tmp_path, unit):
    kinds = [{"init": "best"}, {"init": "feddp_init"}, {"init": "sphere_packing"}]
    fits = [lake.planned(job(place, unit, **settings)) for settings in kinds]
    cells = tuple(Cell(number, fit.rounds, fit.initial) for number, fit in enumerate(fits))
    with beam.Pipeline(options=beam_options([])) as root:
        shards = root | ListShards(source=lake.staged(fits[0].source, tmp_path), contract=fits[0].contract)
        models = shards | RunCells(cells=cells, contract=fits[0].contract, key_uri=place["key"])
        _ = models | beam.combiners.ToList() | beam.Map(_save, str(tmp_path / "models"))
    found = pickle.loads((tmp_path / "models").read_bytes())
    assert sorted(number for number, _ in found) == list(range(len(kinds)))
    block = ClientBlock(place["rows"], place["offsets"])
    for number, model in found:
        np.testing.assert_array_equal(model.centers, lake.chain(fits[number], block).model().centers)


def _save(models: list, path: str) -> None:
    """Keeps what a pipeline computed."""
    pathlib.Path(path).write_bytes(pickle.dumps(models))


def test_feddp_init_is_refined_with_a_radius_from_its_clusters(place):
    planned = lake.planned(job(place, init="feddp_init"))
    names = [each.path for each in planned.plan.rounds]
    assert names[:3] == ["feddp_kmeans/outer_product", "feddp_kmeans/weights", "feddp_kmeans/centers"]
    assert all(each.startswith("dp_lloyd/lloyd_") for each in names[3:])
    state = lake.chain(planned, ClientBlock(place["rows"]))
    # Rows have a stddev of 0.1 in each of 5 features: twice their distance from the center is 0.45.
    assert 0.25 < state.radius * state.unit < 0.7
    assert cost(place["rows"], state.model().centers) < 1.05 * cost(place["rows"], CENTERS)


def test_the_noise_is_split_as_in_the_paper(place):
    planned = lake.planned(job(place, init="sphere_packing", steps=4))
    sigma = gaussian_mechanism.get_sigma_gaussian(4.0, 1e-6)
    for each in planned.plan.rounds:
        sums, counts = each.releases
        assert (sums.spec.sensitivity, counts.spec.sensitivity) == (RELATIVE_UNITS, lattice.SUM_UNITS)
        ratio = 20.0**0.25
        assert counts.noise_multiplier / sums.noise_multiplier == pytest.approx(ratio)
        assert counts.noise_multiplier == pytest.approx(2.0 * sigma * math.sqrt(1.0 + ratio**2), rel=2e-3)


def test_the_number_of_rounds_is_public(place):
    assert len(lake.planned(job(place, init="sphere_packing", steps=5)).rounds) == 5
    assert len(lake.planned(job(place, init="sphere_packing")).rounds) == 7
    unknown = job(place, init="sphere_packing")
    del unknown["data"]["public_rows"]
    assert len(lake.planned(unknown).rounds) == 2
    unknown["dp_lloyd"]["init"] = "best"
    paths = [each.path for each in lake.planned(unknown).plan.rounds]
    assert paths == [f"dp_lloyd/{name}" for name in ("rows", "mean", "scatter", "grid", "lloyd_00")]


def test_rows_outside_the_domain_count_where_they_are_clipped_to(place, tmp_path):
    inside = np.repeat([[1.0, -1.0]], 500, axis=0)
    data = {"far": lake.write_lake(tmp_path / "far", inside * 1e6), "near": lake.write_lake(tmp_path / "near", inside)}
    found = [
        lake.run_fit(job(place | data, data=name, init="sphere_packing"), tmp_path / f"out-{name}").model.centers
        for name in data
    ]
    np.testing.assert_array_equal(*found)


def test_centers_stay_in_a_domain_that_is_not_around_the_origin(place, tmp_path):
    points = 10.0 + 2.0 * rows(300, 2)
    data = {"moved": lake.write_lake(tmp_path / "moved", points)}
    fit = job(place | data, data="moved", domain=[8.0, 12.0], init="sphere_packing")
    fit["privacy"]["epsilon"] = 0.05
    centers = lake.run_fit(fit, tmp_path / "out").model.centers
    assert ((centers >= 8.0) & (centers <= 12.0)).all()


@pytest.mark.parametrize("n_rows", [0, 1])
@pytest.mark.parametrize("init", ["best", "candidates", "central_tree", "sphere_packing"])
def test_hardly_any_rows_leave_finite_centers(place, init, n_rows):
    planned = lake.planned(job(place, init=init))
    model = lake.chain(planned, ClientBlock(np.zeros((n_rows, 5)))).model()
    assert np.isfinite(model.centers).all()
    assert (np.abs(model.centers) <= 1.0).all()


def test_sampled_rows_double_what_a_neighbor_moves(place):
    fit = job(place, init="best")
    fit["data"] |= {"client_id": "client_id", "max_rows_per_client": 5}
    usual, sampled = lake.planned(job(place, init="best")), lake.planned(fit)
    for before, after in zip(usual.plan.rounds, sampled.plan.rounds, strict=True):
        for one, other in zip(before.releases, after.releases, strict=True):
            factor = 2.0 if one.spec.name == "sums" else math.sqrt(2.0)
            assert other.spec.sensitivity == pytest.approx(factor * one.spec.sensitivity, rel=1e-5)


def test_a_smaller_clipping_norm_is_kept(place):
    fit = job(place, init="sphere_packing")
    fit["clipping"] = {"norm": 1.5}
    assert lake.planned(fit).initial.frame.lattice.clipping_norm == 1.5
    assert lake.planned(job(place)).initial.frame.lattice.clipping_norm == math.sqrt(5.0)


def test_more_clusters_than_server_rows_are_refused(place):
    with pytest.raises(ConfigError, match="n_clusters must be at most the number of server rows, got 61"):
        lake.planned(job(place, init="feddp_init") | {"n_clusters": 61})


@pytest.mark.parametrize(
    ("settings", "first", "purpose"),
    [
        ({}, "dp_lloyd/mean/sums", "how much data lies in each cell of a public grid"),
        ({"init": "feddp_init"}, "feddp_kmeans/outer_product/scatter", "how much data each public point stands for"),
    ],
)
def test_the_command_writes_every_output(place, tmp_path, settings, first, purpose):
    outcome = lake.run_job(job(place, **settings), tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out"
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["epsilon"] <= 4.0
    assert privacy["events"][0]["path"] == first
    assert pq.read_table(folder / "centers.parquet").num_rows == 3
    report = (folder / "report.html").read_text()
    assert "found by DP-Lloyd" in report
    assert purpose in report
    assert "could not be written" not in report
