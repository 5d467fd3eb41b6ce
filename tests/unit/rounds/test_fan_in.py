"""Sums of long vectors go through a tree; the integers and the checker see no difference."""

import apache_beam as beam
import numpy as np

from pipelines.run.options import beam_options
from tests.scenes import lake
from transforms.rounds import aggregation
from transforms.rounds.aggregation import SumStatistics


def equal_to(total, expected):
    """Stops the graph at another sum."""
    np.testing.assert_array_equal(total, np.full(1 << 15, expected))
    return total


def test_a_tree_adds_up_the_same_integers():
    vectors = [np.full(1 << 15, 1 << number, dtype=np.int64) for number in range(0, 60, 4)]
    expected = sum(1 << number for number in range(0, 60, 4))

    def build(root):
        made = root | beam.Create(vectors) | beam.Reshuffle()
        _ = made | SumStatistics(size=1 << 15) | beam.Map(equal_to, expected)

    lake.run_unchecked(build, beam_options([]))


def test_a_fit_with_long_vectors_is_checked_and_releases_the_same(tmp_path, monkeypatch):
    path = lake.write_lake(tmp_path / "lake", lake.mixture(60), n_files=2)
    server, key = lake.write_server(tmp_path / "server.parquet"), lake.write_key(tmp_path / "key")
    settings = lake.job(path, server, key_uri=key)
    lake.run_fit(settings, tmp_path / "plain")
    monkeypatch.setattr(aggregation, "_LONG", 1)
    lake.run_fit(settings, tmp_path / "tree")
    assert lake.released(tmp_path / "tree") == lake.released(tmp_path / "plain")
