"""Exact sums as runners form them, by hand: whose arrays are changed, and that no vector is lost or counted twice."""

import types

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import GlobalWindow, IntervalWindow

from dapple_dp.schemas.errors import PrivacyFlowError
from dapple_dp.transforms.on_beam import exact_sums, round
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics, SumVectorsFn
from dapple_dp.transforms.trusted_zone.sweep_cells import SumKeyedStatistics, SumPresentVectorsFn


def vector(*values):
    return np.array(values, dtype=np.int64)


def test_vectors_are_added_into_what_the_combiner_owns():
    function = SumVectorsFn(2)
    first, second = vector(1, 2), vector(3, 5)
    accumulator = function.create_accumulator()
    assert (accumulator.dtype, accumulator.tolist()) == (np.int64, [0, 0])
    assert function.add_input(function.add_input(accumulator, first), second) is accumulator
    other = function.add_input(function.create_accumulator(), first)
    merged = function.merge_accumulators(iter([accumulator, other, function.create_accumulator()]))
    assert function.extract_output(merged).tolist() == [5, 9]
    assert (accumulator.tolist(), other.tolist(), first.tolist()) == ([4, 7], [1, 2], [1, 2])
    assert function.merge_accumulators([]).tolist() == [0, 0]


def test_present_vectors_are_added_without_a_length():
    function = SumPresentVectorsFn()
    first, second = vector(1, 2), vector(3, 5)
    assert function.create_accumulator() is None
    accumulator = function.add_input(function.add_input(None, first), second)
    assert (accumulator.tolist(), first.tolist(), second.tolist()) == ([4, 7], [1, 2], [3, 5])
    merged = function.merge_accumulators([None, accumulator, None, second])
    assert function.extract_output(merged).tolist() == [7, 12]
    assert accumulator.tolist() == [4, 7]
    assert function.merge_accumulators([None]) is None


def test_a_bundle_has_one_branch_by_its_first_vector():
    function = exact_sums._BranchFn()
    found = []
    for _ in range(2):
        function.start_bundle()
        found += [list(function.process(each)) for each in (vector(1, 2), vector(3, 4))]
    branches = [number for each in found for number, _ in each]
    assert len(set(branches)) == 1
    assert [each[0][1].tolist() for each in found] == [[1, 2], [3, 4]] * 2
    assert list(exact_sums.TotalFn().process((None, "sum"))) == ["sum"]
    with pytest.raises(PrivacyFlowError, match="got that of a branch"):
        list(exact_sums.TotalFn().process((7, "sum")))
    several = set()
    for seed in range(200):
        function.start_bundle()
        several.add(next(function.process(vector(seed, 1)))[0])
    assert several == set(range(exact_sums._BRANCHES))


@pytest.mark.parametrize("size", [3, 5])
def test_a_sum_is_one_vector_whatever_its_length(size, monkeypatch):
    monkeypatch.setattr(exact_sums, "_LONG", 5)
    vectors = [np.full(size, number, dtype=np.int64) for number in range(1, 4)]
    with beam.Pipeline() as pipeline:
        total = pipeline | beam.Create(vectors) | SumStatistics(size=size)
        assert_that(total | beam.Map(lambda each: sorted(set(each.tolist()))), lambda found: _is(found, [[6]]))
        keyed = pipeline | "Keyed" >> beam.Create([(1, vectors[0]), (2, vectors[1]), (1, vectors[2])])
        sums = keyed | SumKeyedStatistics() | "First" >> beam.MapTuple(lambda number, each: (number, int(each[0])))
        assert_that(sums, lambda found: _is(sorted(found), [(1, 4), (2, 2)]), label="keyed")


def test_shards_are_added_up_a_few_at_a_time_and_none_is_left(monkeypatch):
    asked, started = [], []
    monkeypatch.setattr(round, "_SHARDS_PER_CORE", 2)
    reader = types.SimpleNamespace(
        cores=2,
        start=lambda: started.append(True),
        sums=lambda shards, *others: asked.append(others) or list(shards),
    )
    function = round._StatisticFn(reader, "round")
    function.setup()
    assert started == [True]
    for numbers, whole in [(range(4), []), (range(5), [[0, 1, 2, 3, 4]]), (range(6), [[0, 1, 2, 3, 4]]), ((), [])]:
        function.start_bundle()
        assert [
            found for number in numbers for found in function.process(number, f"state {number}", GlobalWindow())
        ] == whole
        left = list(numbers)[5 * len(whole) :]
        assert [each.value for each in function.finish_bundle()] == ([left] if left else [])
    assert asked == [("round", f"state {last}") for last in (3, 4, 4, 5)]


def test_shards_of_windows_are_added_up_apart_with_the_state_of_their_window(monkeypatch):
    monkeypatch.setattr(round, "_SHARDS_PER_CORE", 2)
    reader = types.SimpleNamespace(cores=1, sums=lambda shards, _, state: (list(shards), state))
    function = round._StatisticFn(reader, "round")
    function.start_bundle()
    windows = [IntervalWindow(start, start + 60) for start in (0, 60)]
    whole = [
        found
        for number in range(7)
        for found in function.process(number, f"state of {number % 2}", windows[number % 2])
    ]
    assert whole == [([0, 2, 4], "state of 0"), ([1, 3, 5], "state of 1")]
    (left,) = function.finish_bundle()
    assert (left.value, left.windows) == (([6], "state of 0"), (windows[0],))
    assert left.timestamp == windows[0].max_timestamp()
    assert list(function.finish_bundle()) == []


def _is(found, expected):
    assert found == expected
