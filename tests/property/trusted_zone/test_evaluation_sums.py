"""Sums of an evaluation don't depend on how rows are split, ordered or grouped."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone import clustering_sums
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import ClusteringSums, row_ranks
from dapple_dp.transforms.numerics.trusted_zone.exact_sum import ExactSum

CHECKED = settings(max_examples=60, deadline=None, derandomize=True)

numbers = st.floats(-1e3, 1e3) | st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30).map(np.array)
centers = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=4).map(np.array)
cuts = st.lists(st.integers(0, 30), max_size=4).map(sorted)
NAMES = ("a", "b", "c")


def sums_of(points, places, model):
    return ClusteringSums.of(points, row_ranks(9, places), (NAMES, places % 4 - 1), model, 5)


def state(sums):
    """All that an evaluation reads."""
    sizes = sums.cost.sizes
    cost = sums.cost.squared.integers, sums.cost.squared.infinite
    offsets = sums.offsets.over(np.maximum(sizes, 1)[:, None]), sums.offsets.total().value
    table = {name: counts.tolist() for name, counts in sums.contingency.counts.items()}
    return sizes, float(sums.cost.squared.value), str(cost), *offsets, str(table), *sums.sample[1:]


def assert_same(one, other):
    for found, expected in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(found, expected)


@CHECKED
@given(points=rows, centers=centers, cuts=cuts, order=st.randoms(use_true_random=False))
def test_any_split_in_any_order(points, centers, cuts, order):
    model = NearestCenters.of(centers)
    places = np.arange(len(points))
    whole = sums_of(points, places, model)
    shuffled = places.copy()
    order.shuffle(shuffled)
    parts = [sums_of(points[part], part, model) for part in np.split(shuffled, np.minimum(cuts, len(points)))]
    order.shuffle(parts)
    total = ClusteringSums.zeros(model, 5)
    for part in parts:
        total = total.merge(part)
    assert_same(total, whole)


@CHECKED
@given(points=rows, centers=centers, cut=st.integers(0, 30))
def test_the_second_pass_too(points, centers, cut):
    model = NearestCenters.of(centers)
    means = sums_of(points, np.arange(len(points)), model).means(model)
    whole = clustering_sums.scatter(points, model, means)
    halves = [clustering_sums.scatter(part, model, means) for part in (points[cut:], points[:cut])]
    merged = halves[0].merge(halves[1])
    np.testing.assert_array_equal(merged.value, whole.value)


@CHECKED
@given(values=st.lists(st.floats(allow_nan=False), max_size=30).map(np.array), cut=st.integers(0, 30))
def test_exact_sums_merge(values, cut):
    parts = ExactSum.of(values[cut:]).merge(ExactSum.of(values[:cut]))
    whole = ExactSum.of(values.astype(np.float64))
    assert parts.value == whole.value
    np.testing.assert_array_equal(parts.infinite, whole.infinite)
