"""Lists without a fixed size, as Spark, Delta and Iceberg write them, where the job says their width."""

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.tables import read
from tests.scenes import lake

ODD = [[1.0], [9e9] * 5, [], None, [1.0, None, 2.0, 3.0]]


def table(points, odd=()):
    lists = [*points.tolist(), *odd]
    return pa.table({"x": pa.array(lists, pa.list_(pa.float64())), "client_id": [*np.arange(len(lists)) // 5]})


def job(data, key, **settings):
    found = lake.job(data, None, algorithm="central_tree", tree={"radius": 8.0, "depth": 6}, key_uri=key, **settings)
    del found["clipping"]["norm"]
    return found


def list_row_groups(fit):
    """Returns what workers do first."""
    return [shard for each in fit.source.listed.files for shard in read._list_row_groups(each, fit.contract)]


def test_rows_of_another_length_are_dropped_without_a_trace(tmp_path):
    points, key = lake.mixture(300), lake.write_key(tmp_path / "key")
    whole = job(lake.write_files(tmp_path / "whole", [lake.table_of(points)]), key, data__on_invalid_rows="drop")
    path = lake.write_files(tmp_path / "lists", [table(points, ODD)])
    lists = job(path, key, data__on_invalid_rows="drop", data__width=4)
    for name, settings in (("a", whole), ("b", lists)):
        lake.run_fit(settings, tmp_path / name)
    assert lake.released(tmp_path / "a") == lake.released(tmp_path / "b")


def test_without_a_width_the_remedy_names_it(tmp_path):
    path = lake.write_files(tmp_path / "lists", [table(lake.mixture(9))])
    with pytest.raises(InputError, match=r"must be a fixed-size list, got list<.*; give data\.width, cast it, or give"):
        lake.planned(job(path, str(tmp_path / "key")))


def test_a_list_that_would_fill_the_memory_is_refused_whatever_the_width(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "_BOMB_BYTES", 1 << 20)
    bomb = pa.table({"x": pa.array([[0.0] * 4, [0.0] * 10**6], pa.list_(pa.float64()))})
    path = lake.write_files(tmp_path / "bomb", [bomb])
    settings = job(path, str(tmp_path / "key"), data__width=4, data__on_invalid_rows="drop")
    with pytest.raises(InputError, match=r"unpacks to more than 2 GiB and 100 times its size on disk"):
        list_row_groups(lake.planned(settings))
