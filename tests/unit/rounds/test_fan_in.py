"""Sums of long vectors go through a tree; the integers and the checker see no difference."""

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.transforms.on_beam import exact_sums
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics
from dapple_dp.transforms.trusted_zone.sweep_cells import SumPresentVectorsFn
from tests.scenes import lake


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
    monkeypatch.setattr(exact_sums, "_LONG", 1)
    lake.run_fit(settings, tmp_path / "tree")
    assert lake.released(tmp_path / "tree") == lake.released(tmp_path / "plain")


def branches(vectors):
    step = exact_sums._BranchFn()
    step.start_bundle()
    return [branch for vector in vectors for branch, _ in step.process(vector)]


def test_a_bundle_that_is_done_again_goes_to_the_same_branch():
    """Rows would count twice if its first attempt was read by one branch and its second one by another."""
    bundles = [[np.full(8, bundle), np.full(8, bundle + 1)] for bundle in range(200)]
    first = [branches(vectors) for vectors in bundles]
    assert first == [branches([each.copy() for each in vectors]) for vectors in bundles]
    assert all(len(set(numbers)) == 1 for numbers in first)
    assert len({numbers[0] for numbers in first}) > 20


def test_the_largest_sums_are_exact():
    """To the last unit that an int64 holds, also where partial sums pass it on the way."""
    near = np.iinfo(np.int64).max - 5
    parts = [np.array([each], dtype=np.int64) for each in (near, near, -near, 5)]
    for fn in (exact_sums.SumVectorsFn(1), SumPresentVectorsFn()):
        total = fn.merge_accumulators([fn.add_input(fn.create_accumulator(), each.copy()) for each in parts])
        np.testing.assert_array_equal(total, [np.iinfo(np.int64).max])
