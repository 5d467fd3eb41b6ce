"""Lloyd's rounds without noise: the same centers as a plain loop over the rows, marked for what they are."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.fit_config import is_pooled
from dapple_dp.schemas.kmeans.jobs.pooled_config import validated_pooled
from dapple_dp.transforms.numerics.kmeans.starts import seeding, sphere_packing
from tests.scenes import lake

CENTERS = 0.6 * np.array([[1, 1, 1, 1, 0], [-1, -1, 1, 0, 0], [1, -1, -1, 0, 1]])
N_CLIENTS = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Rows of three clusters that overlap, some outside the domain; clients of 1 to 5 rows in two files."""
    folder = tmp_path_factory.mktemp("plain_lloyd")
    rng = np.random.default_rng(0)
    clients = np.repeat(np.arange(N_CLIENTS), rng.integers(1, 6, N_CLIENTS))
    points = CENTERS[rng.integers(0, 3, len(clients))] + rng.normal(0.0, 0.7, (len(clients), 5))
    return {
        "points": points,
        "clients": clients,
        "data": lake.write_lake(folder / "rows", points, clients, n_files=2),
        "server": lake.write_server(folder / "server.parquet", points[:20] * 0.9),
        "server_points": points[:20] * 0.9,
    }


def job(place, unit="record", **section):
    section = {"variant": "lloyd", "domain": [-1.0, 1.0]} | section
    data = {"path": place["data"], "features": "x", "client_id": "client_id"}
    server = {"path": place["server"]} if section.get("init") == "server_kmeanspp" else "none"
    found = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": data,
        "server_data": server,
        "n_clusters": 3,
        "dp_lloyd": section,
    }
    return found | ({"unit": unit} if unit == "client" else {})


def lloyd(points, weights, centers, n_rounds):
    """The textbook's loop."""
    points, centers = np.clip(points, -1.0, 1.0), centers.copy()
    for _ in range(n_rounds):
        labels = ((points[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
        for cluster in range(len(centers)):
            own = labels == cluster
            if own.any():
                centers[cluster] = np.average(points[own], axis=0, weights=weights[own])
    return centers


def found_by(settings, folder):
    outcome = lake.run_job(settings, folder)
    assert outcome.code == 0, outcome.err
    return np.array(pq.read_table(folder / "out" / "centers.parquet").column("center").to_pylist())


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize(("steps", "n_rounds"), [("auto", 7), (2, 2)])
def test_centers_are_those_of_a_plain_loop(place, tmp_path, unit, steps, n_rounds):
    found = found_by(job(place, unit, steps=steps), tmp_path)
    sizes = np.bincount(place["clients"])[place["clients"]]
    weights = 1.0 / sizes if unit == "client" else np.ones(len(sizes))
    start = sphere_packing.pack(3, 5, 1.0, 0)
    expected = lloyd(place["points"], weights, start, n_rounds)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert np.abs(expected - lloyd(place["points"], weights, start, n_rounds - 1)).max() > 1e-3


def test_rows_and_clients_weigh_differently(place, tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "clients").mkdir()
    by_row, by_client = found_by(job(place), tmp_path / "rows"), found_by(job(place, "client"), tmp_path / "clients")
    assert np.abs(by_row - by_client).max() > 1e-3


def test_the_start_may_be_public_points(place, tmp_path):
    found = found_by(job(place, init="server_kmeanspp", steps=3), tmp_path)
    server = np.clip(place["server_points"], -1.0, 1.0)
    start = seeding.plus_plus(server, 3, 0)
    np.testing.assert_allclose(found, lloyd(place["points"], np.ones(len(place["points"])), start, 3), atol=2e-5)


def test_a_center_without_rows_stays(place, tmp_path):
    settings = job(place, domain=[-1.0, 101.0]) | {"n_clusters": 8}
    found = found_by(settings, tmp_path)
    start = 50.0 + sphere_packing.pack(8, 5, 51.0, 0)
    stayed = np.abs(found[:, None] - start[None]).max(axis=2).min(axis=1) < 1e-3
    assert 1 <= stayed.sum() < 8


def test_outputs_are_marked_not_private(place, tmp_path):
    outcome = lake.run_job(job(place), tmp_path, "--run_id", "one")
    output = tmp_path / "out"
    assert json.loads(outcome.out) == {"run_id": "one", "output": str(output), "epsilon": None, "delta": None}
    assert "dapple: run one: evaluation (not private)" in outcome.lines
    assert {path.name for path in output.iterdir()} == {"centers.parquet", "run.json"}
    manifest = json.loads((output / "run.json").read_text())
    assert (manifest["private"], manifest["algorithm"]) == (False, "dp_lloyd")
    assert pq.read_schema(output / "centers.parquet").metadata[b"dapple.private"] == b"false"


def test_a_sweep_compares_it_with_its_private_family(place, tmp_path):
    settings = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": place["data"], "features": "x", "client_id": "client_id"},
        "n_clusters": 3,
        "privacy": {"unit": "client", "delta": 1e-3},
        "clipping": {"client_rows": 3},
        "dp_lloyd": {"domain": [-1.0, 1.0], "init": "sphere_packing"},
        "sweep": {
            "methods": {
                "fast": {},
                "plain": {"dp_lloyd": {"variant": "lloyd"}},
                "optimum": {"algorithm": "optimal"},
            },
            "epsilons": [1.0],
            "seeds": 1,
            "settings": {"dp_lloyd.steps": [2, 3]},
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    outcome = lake.run_command("sweep", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "sweep"))
    assert outcome.code == 0, outcome.err
    rows = pq.read_table(tmp_path / "sweep" / "results.parquet").to_pylist()
    found = {(row["method"], row["settings"]): row for row in rows}
    assert set(found) == {
        *((method, f"dp_lloyd.steps={steps}") for method in ("fast", "plain") for steps in (2, 3)),
        ("optimum", ""),
    }
    weights = 1.0 / np.bincount(place["clients"])[place["clients"]]
    for steps in (2, 3):
        row = found["plain", f"dp_lloyd.steps={steps}"]
        centers = lloyd(place["points"], weights, sphere_packing.pack(3, 5, 1.0, 0), steps)
        squared = ((place["points"][:, None] - centers[None]) ** 2).sum(axis=2)
        np.testing.assert_allclose(row["cost"], squared.min(axis=1).mean(), rtol=1e-4)
        assert row["epsilon"] is row["epsilon_spent"] is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"privacy": {"unit": "record", "epsilon": 1.0}}, "privacy must be left out for algorithm dp_lloyd with"),
        ({"clipping": {"norm": 1.0}}, "clipping is not a setting"),
        ({"dp_lloyd": {"variant": "lloyd", "domain": [0, 1], "init": "best"}}, "dp_lloyd.init must be sphere_packing"),
        ({"dp_lloyd": {"variant": "lloyd", "domain": [0, 1], "update": "shrunken"}}, "dp_lloyd.update must be plain"),
        (
            {"dp_lloyd": {"variant": "lloyd", "domain": [0, 1], "init": "server_kmeanspp"}},
            "server_data must be given for dp_lloyd.init server_kmeanspp",
        ),
        ({"dp_lloyd": {"variant": "lloyd"}}, "dp_lloyd.domain must be given"),
        ({"unit": "client", "data": {"path": "lake", "features": "x"}}, "data.client_id must be given for unit client"),
        ({"algorithm": "optimal"}, "dp_lloyd must be left out for algorithm optimal"),
        ({"dp_lloyd": {"variant": "fast", "domain": [0, 1]}}, "dp_lloyd.variant must be lloyd without privacy"),
    ],
)
def test_bad_jobs_are_refused_in_one_sentence(changes, sentence):
    settings = {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": "lake", "features": "x"},
        "n_clusters": 3,
        "dp_lloyd": {"variant": "lloyd", "domain": [0.0, 1.0]},
    } | changes
    with pytest.raises(ConfigError) as caught:
        validated_pooled(settings)
    assert str(caught.value).startswith(sentence)


def test_only_variant_lloyd_is_without_privacy():
    assert not is_pooled({"algorithm": "dp_lloyd"})
    assert not is_pooled({"algorithm": "dp_lloyd", "dp_lloyd": {"variant": "fast"}})
    assert is_pooled({"algorithm": "dp_lloyd", "dp_lloyd": {"variant": "lloyd"}})
