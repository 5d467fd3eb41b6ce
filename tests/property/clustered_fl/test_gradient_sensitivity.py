"""One row more, less or another moves a sum of clipped gradients by its own integers, exactly, on a real computer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of

SHAPES = {
    "softmax": ModelShape(kind=ModelKind.SOFTMAX, n_features=6, n_classes=3),
    "mlp": ModelShape(kind=ModelKind.MLP, n_features=6, n_classes=3, n_hidden=4),
    "narrow rows": ModelShape(kind=ModelKind.SOFTMAX, n_features=6, n_classes=3, feature_norm=1.0),
    "wide rows": ModelShape(kind=ModelKind.MLP, n_features=6, n_classes=3, n_hidden=5, feature_norm=1e9),
}


def _case(shape, seed, n_rows, row_scale, weight_scale):
    random = np.random.default_rng(seed)
    rows = bound_features(random.normal(size=(n_rows, shape.n_features)) * row_scale, shape.feature_norm)
    return random.normal(size=shape.n_parameters) * weight_scale, rows, random.integers(3, size=n_rows)


def _length(gradient, values):
    return np.linalg.norm(values * gradient.units)


@pytest.mark.parametrize("name", SHAPES)
@given(
    seed=st.integers(0, 2**32),
    n_rows=st.integers(1, 1500),
    row_scale=st.sampled_from([1e-6, 1e-2, 1.0, 30.0, 1e4, 1e155, 1e307]),
    weight_scale=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 10.0, 2.0**20, 2.0**55]),
    clipping_norm=st.sampled_from([1e-9, 1e-3, 1.0, 50.0, 1e9]),
)
@settings(max_examples=60, deadline=None)
def test_neighbors(name, seed, n_rows, row_scale, weight_scale, clipping_norm):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], seed, n_rows, row_scale, weight_scale)
    place = seed % n_rows

    def sums(own_rows, own_labels):
        return model.clipped_gradient_sum(parameters, own_rows, own_labels, clipping_norm)

    whole, own = sums(rows, labels), sums(rows[[place]], labels[[place]])
    fewer = sums(np.delete(rows, place, axis=0), np.delete(labels, place))
    np.testing.assert_array_equal(whole.values - fewer.values, own.values)
    assert _length(own, own.values) <= clipping_norm
    # Another row in its place: the two rows' own integers, at most twice the clipping norm.
    other_rows, other_labels = rows.copy(), labels.copy()
    other_rows[place], other_labels[place] = -rows[place][::-1], (labels[place] + 1) % 3
    other = sums(other_rows[[place]], other_labels[[place]])
    replaced = sums(other_rows, other_labels)
    np.testing.assert_array_equal(replaced.values - whole.values, other.values - own.values)
    assert _length(own, other.values - own.values) <= 2.0 * clipping_norm


@pytest.mark.parametrize("name", SHAPES)
@given(seed=st.integers(0, 2**32), weight_scale=st.sampled_from([0.1, 1.0, 10.0]))
@settings(max_examples=30, deadline=None)
def test_single_rows(name, seed, weight_scale):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], seed, 20, 10.0, weight_scale)
    for row, label in zip(rows, labels, strict=True):
        gradient = model.clipped_gradient_sum(parameters, row[None], np.array([label]), 1.0)
        assert _length(gradient, gradient.values) <= 1.0


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_a_clipped_row_uses_its_bound(name):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], 1, 1, 1e3, 1e-6)
    gradient = model.clipped_gradient_sum(parameters, rows, labels, 0.5)
    # A row as long as rows may be leaves 16 bits for its residual, of which each class loses at most the last.
    assert _length(gradient, gradient.values) == pytest.approx(0.5, rel=3 * 2.0**-16)
