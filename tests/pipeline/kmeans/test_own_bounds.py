"""Bounds by column: a box of its own for each, in front of the one box that the rounds know."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core.statistics import lattice
from tests.scenes import lake

BOUNDS = {"income": [0.0, 1e6], "age": [17, 90]}
CENTERS = {"age": [25.0, 40.0, 70.0], "income": [2e5, 8e5, 4e5]}


def rows(n_rows=1500):
    """Ages and incomes of three groups; every tenth row lies far beyond the bounds."""
    rng = np.random.default_rng(3)
    group = np.arange(n_rows) % 3
    columns = {name: np.array(CENTERS[name])[group] + rng.normal(0, BOUNDS[name][1] / 100, n_rows) for name in CENTERS}
    columns["income"][::50] = 1e300
    return columns


def job(data, **settings):
    return {
        "algorithm": "dp_lloyd",
        "data": {"path": data, "features": ["age", "income"]},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 8.0, "delta": 1e-6},
        "dp_lloyd": {"domain": BOUNDS},
    } | settings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    data = lake.write_files(folder / "rows", [pa.table(rows())])
    settings = job(data, key_uri=lake.write_key(folder / "key"))
    assert lake.run_job(settings, folder).code == 0
    return folder, settings


def test_centers_come_back_in_the_units_of_their_columns(place):
    folder, _ = place
    table = pq.read_table(folder / "out/centers.parquet")
    found = np.array(table["center_in_units"].to_pylist())
    expected = np.column_stack([CENTERS["age"], CENTERS["income"]])
    found = found[found[:, 0].argsort()]
    assert (np.abs(found - expected) < [5.0, 1e5]).all()
    boxed = np.array(table["center"].to_pylist())
    assert (np.abs(boxed) <= 1.0).all()
    manifest = json.loads((folder / "out/run.json").read_text())
    assert manifest["features"] == ["age", "income"]
    assert manifest["frame"]["domain"] == [-1.0, 1.0]
    assert manifest["encoding"][1] == {"column": "income", "weight": 1.0, "lower": 0.0, "upper": 1e6, "low": -1.0}


def test_every_spelling_of_the_bounds_is_the_same_job(place):
    _, settings = place
    fit = lake.planned(settings)
    encode = {
        name: {"kind": "bounds", "lower": low, "upper": high, "to": "symmetric"} for name, (low, high) in BOUNDS.items()
    }
    listed = settings | {"dp_lloyd": {"domain": [BOUNDS["age"], BOUNDS["income"]]}}
    encoded = settings | {"encode": encode, "dp_lloyd": {"domain": [-1, 1]}}
    for other in map(lake.planned, (listed, encoded)):
        assert other.contract == fit.contract
        assert other.plan == fit.plan
        assert other.initial.frame.box == fit.initial.frame.box


def test_rows_are_assigned_in_the_box_of_the_fit(place, tmp_path):
    folder, settings = place
    job_file = tmp_path / "assign.yaml"
    job_file.write_text(yaml.safe_dump({"model": str(folder / "out"), "data": settings["data"]}))
    assert lake.run_command("assign", "--config", str(job_file), "--output", str(tmp_path / "out")).code == 0
    found = pq.read_table(tmp_path / "out/assignments.parquet")["cluster"].to_numpy()
    groups = np.arange(1500) % 3
    inside = np.arange(1500) % 50 > 0
    assert all(len(set(found[inside & (groups == group)])) == 1 for group in range(3))


def test_one_row_moves_the_sums_by_no_more_than_the_sensitivity_whatever_its_size(place):
    _, settings = place
    fit = lake.planned(settings)
    frame = fit.initial.frame
    for value in (0.0, -1e308, 1e308, 5e-324, 90.0, 1e6):
        block = fit.contract.to_block(pa.table({"age": [value], "income": [value]}), "here")
        norm = np.linalg.norm(frame.quantize(block.points, lattice.SUM_BITS))
        assert norm <= 1 << lattice.SUM_BITS
    assert validated(settings).dp_lloyd.interval == (-1.0, 1.0)
