"""Whole runs that choose the number of clusters."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.model import model_from_tables
from tests.scenes import lake


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elbow")
    points, clients = lake.mixture(3000), np.arange(3000) // 10
    return {
        "data": lake.write_lake(folder / "rows", points, clients, n_files=3, row_group_size=500),
        "server": lake.write_server(folder / "server.parquet"),
        "key": lake.write_key(folder / "key"),
        "block": ClientBlock(points, np.arange(0, 3001, 10)),
    }


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_elbow_finds_the_number_of_clusters(place, tmp_path, unit):
    settings = lake.job(
        place["data"],
        place["server"],
        unit,
        n_clusters={"max": 7, "choose": "elbow"},
        privacy__epsilon=8.0,
        lloyd={"steps": 1},
        key_uri=place["key"],
    )
    result = lake.run_fit(settings, tmp_path / "out")
    assert result.model.n_clusters == 3
    assert result.model.noisy_sizes.shape == (3,)
    assert result.model.proxy_costs.shape == (7,)
    assert {each.path: each.values.shape for each in result.model.releases}["feddp_kmeans/centers/sums"] == (7, 4)
    tables = [pq.read_table(io.BytesIO(content)) for _, content in sorted(lake.released(tmp_path / "out").items())]
    read = model_from_tables(*tables)
    np.testing.assert_array_equal(read.proxy_costs, result.model.proxy_costs)
    expected = lake.chain(lake.planned(settings), place["block"]).model()
    np.testing.assert_array_equal(result.model.centers, expected.centers)
