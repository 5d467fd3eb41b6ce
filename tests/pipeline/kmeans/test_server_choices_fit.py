"""Whole runs whose server data chose the space of the start, or the shares."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans.starts import spaces
from tests.scenes import directions, lake

N_ROWS = 3000


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    data = lake.write_lake(folder / "rows", lake.mixture(N_ROWS), np.arange(N_ROWS) // 10)
    return data, lake.write_server(folder / "server.parquet")


@pytest.mark.parametrize("unit", ["record", "client"])
def test_full_space_runs_and_its_graph_spends_the_plan(place, tmp_path, unit):
    job = lake.job(*place, unit, feddp_kmeans__space="full", lloyd={"steps": 1}, quality={})
    found = lake.run_fit(job, tmp_path / "out")
    names = [event["path"] for event in found.privacy.events]
    assert names[0] == "feddp_kmeans/weights/histogram"
    assert found.privacy.epsilon <= 2.0
    order = np.argmax(found.model.centers, axis=1)
    np.testing.assert_allclose(found.model.centers[np.argsort(order)], lake.MEANS, atol=0.5)


@pytest.mark.parametrize("points", [directions.in_many_directions(), directions.in_few_directions()])
def test_a_run_takes_the_space_that_server_data_prefer(tmp_path, points):
    server = lake.write_server(tmp_path / "server.parquet", points)
    rows = lake.write_lake(tmp_path / "rows", points + 1e-3)
    found = lake.run_fit(lake.job(rows, server, n_clusters=4), tmp_path / "out")
    released = any("outer_product" in event["path"] for event in found.privacy.events)
    assert released != spaces.prefers_full_space(points, 4)


def test_the_choice_of_shares_is_published(place, tmp_path):
    job = lake.job(*place, privacy__shares="auto", plan={"assumed_rows": N_ROWS})
    content = lake.run_fit(job, tmp_path / "out").privacy.to_json()
    steps = content["chosen"]["lloyd"]["steps"]
    assert content["chosen"]["space"] == "subspace"
    assert sum(content["chosen"]["shares"].values()) == pytest.approx(1.0, abs=1e-5)
    assert sum("lloyd_" in event["path"] for event in content["events"]) == 2 * steps
    assert content["epsilon"] <= 2.0
