"""One row more or less moves a summed clipped gradient by at most the stated sensitivity, on a real computer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.choices import ModelKind
from schemas.federated import ModelShape
from transforms.numerics.dp_sgd import ROUNDING_SHARE, model_of

SHAPES = {
    "softmax": ModelShape(kind=ModelKind.SOFTMAX, n_features=6, n_classes=3),
    "mlp": ModelShape(kind=ModelKind.MLP, n_features=6, n_classes=3, n_hidden=4),
}


def _case(shape, seed, n_rows, row_scale, weight_scale):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(n_rows, shape.n_features)) * row_scale
    return random.normal(size=shape.n_parameters) * weight_scale, rows, random.integers(3, size=n_rows)


@pytest.mark.parametrize("name", SHAPES)
@given(
    seed=st.integers(0, 2**32),
    n_rows=st.integers(1, 1500),
    row_scale=st.sampled_from([1e-6, 1e-2, 1.0, 30.0, 1e4]),
    weight_scale=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
    clipping_norm=st.sampled_from([1e-3, 1.0, 50.0]),
)
@settings(max_examples=60, deadline=None)
def test_neighbors(name, seed, n_rows, row_scale, weight_scale, clipping_norm):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], seed, n_rows, row_scale, weight_scale)
    place = seed % n_rows
    whole = model.clipped_gradient_sum(parameters, rows, labels, clipping_norm)
    fewer = model.clipped_gradient_sum(
        parameters, np.delete(rows, place, axis=0), np.delete(labels, place), clipping_norm
    )
    assert np.linalg.norm(whole - fewer) <= clipping_norm * (1.0 + ROUNDING_SHARE)


@pytest.mark.parametrize("name", SHAPES)
@given(seed=st.integers(0, 2**32), weight_scale=st.sampled_from([0.1, 1.0, 10.0]))
@settings(max_examples=30, deadline=None)
def test_single_rows(name, seed, weight_scale):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], seed, 20, 10.0, weight_scale)
    for row, label in zip(rows, labels, strict=True):
        gradient = model.clipped_gradient_sum(parameters, row[None], np.array([label]), 1.0)
        assert np.linalg.norm(gradient) <= 1.0


@pytest.mark.parametrize("name", SHAPES)
def test_a_clipped_row_uses_its_bound(name):
    model = model_of(SHAPES[name])
    parameters, rows, labels = _case(SHAPES[name], 1, 1, 1e3, 1e-6)
    gradient = model.clipped_gradient_sum(parameters, rows, labels, 0.5)
    assert np.linalg.norm(gradient) == pytest.approx(0.5, rel=1e-9)
