"""The costs that the census example prints: k-means without privacy never costs more than the private centers."""

import importlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.cluster import KMeans


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend("examples/census")
    return importlib.import_module("run")


def _write(path, column, points):
    pq.write_table(pa.table({column: pa.array(points.tolist(), pa.list_(pa.float64()))}), path)


def test_k_means_is_no_worse_than_centers_that_random_starts_miss(example, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "RESTARTS", 1)
    rows = np.random.default_rng(4).uniform(0.0, 1.0, (600, 2))
    means = KMeans(30, n_init=20, random_state=1).fit(rows).cluster_centers_
    (tmp_path / "clients").mkdir()
    _write(tmp_path / "clients" / "part.parquet", "x", rows)
    _write(tmp_path / "server.parquet", "x", rows[:100])
    (tmp_path / "fit").mkdir()
    _write(tmp_path / "fit" / "centers.parquet", "center", means)
    costs = example.evaluate(tmp_path, tmp_path / "fit")
    assert example.k_means_cost(rows, 30, None) > costs["private centers"]
    assert costs["k-means, no privacy"] <= costs["private centers"] < costs["server data only"]
