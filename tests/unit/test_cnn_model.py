"""The convolutional model; most of it needs JAX."""

import sys

import numpy as np
import pytest

from benchmarks.papers import jax_model
from benchmarks.papers.image_models import CnnShape
from dapple_dp.schemas.clustered_fl.records import FEATURE_BITS
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features, bounded_rows, row_norm
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, model_of, train

SHAPE = CnnShape(n_features=49, n_classes=3)
MODEL = model_of(SHAPE)


def _stream(name=b"test"):
    return KeyStream(bytes(32), name)


def test_jax_must_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    jax_model.compiled.cache_clear()
    with pytest.raises(ConfigError, match="models of images need JAX, which is not installed; run pip install 'jax>="):
        MODEL.start(_stream())


def test_images_must_be_square():
    with pytest.raises(ConfigError, match="the number of features must be a square for model cnn, got 50"):
        model_of(CnnShape(n_features=50, n_classes=3)).start(_stream())


def test_gradients_are_clipped_row_by_row():
    pytest.importorskip("jax")
    random = np.random.default_rng(0)
    parameters = MODEL.start(_stream())
    assert parameters.shape == (SHAPE.n_parameters,)
    rows, labels = bound_features(random.normal(size=(70, 49))), random.integers(3, size=70)
    single = [MODEL.clipped_gradient_sum(parameters, rows[[i]], labels[[i]], 0.5) for i in range(70)]
    assert max(np.linalg.norm(each.values * each.units) for each in single) <= 0.5
    whole = MODEL.clipped_gradient_sum(parameters, rows, labels, 0.5)
    np.testing.assert_array_equal(whole.values, np.sum([each.values for each in single], axis=0))
    assert not MODEL.clipped_gradient_sum(parameters, rows[:0], labels[:0], 0.5).values.any()


def test_gradient_by_differences():
    pytest.importorskip("jax")
    random = np.random.default_rng(1)
    parameters, row, step = MODEL.start(_stream()), bound_features(random.normal(size=(1, 49))), 1e-6
    image = row.astype(np.float64) * (row_norm(49, None) * 2.0**-FEATURE_BITS)
    direction = random.normal(size=len(parameters))

    def loss(at):
        logits = jax_model.compiled(MODEL)[0](at, image)[0]
        return np.log(np.exp(logits).sum()) - logits[2]

    slope = (loss(parameters + step * direction) - loss(parameters - step * direction)) / (2 * step)
    gradient = MODEL.clipped_gradient_sum(parameters, row, np.array([2]), 1e3)
    assert (gradient.values * gradient.units) @ direction == pytest.approx(slope, rel=1e-6)


def test_training_learns():
    pytest.importorskip("jax")
    random = np.random.default_rng(2)
    labels = random.integers(3, size=200)
    images = random.normal(scale=0.3, size=(200, 7, 7))
    images[np.arange(200), :, 2 * labels] += 1.0
    rows = bounded_rows(images.reshape(200, 49), labels)
    sgd = Sgd(schedule=Schedule(60, 0.2, 40.0), learning_rate=0.5, clipping_norm=1.0, noise_multiplier=0.3)
    trained = train(MODEL, MODEL.start(_stream(b"start")), rows, sgd, _stream())
    assert (MODEL.predictions(trained, rows.features) == labels).mean() > 0.9


def _values(model, parameters, rows, labels):
    return model.clipped_gradient_sum(parameters, rows, labels, 1.0).values


def test_bits_are_equal_in_any_place():
    pytest.importorskip("jax")
    shape = CnnShape(n_features=196, n_classes=10)
    model, random = model_of(shape), np.random.default_rng(6)
    parameters = 3.0 * model.start(_stream())
    rows, labels = bound_features(1e16 * random.normal(size=(90, 196))), random.integers(10, size=90)
    whole = _values(model, parameters, rows, labels)
    order = random.permutation(90)
    np.testing.assert_array_equal(_values(model, parameters, rows[order], labels[order]), whole)
    parts = [_values(model, parameters, rows[i : i + 7], labels[i : i + 7]) for i in range(0, 90, 7)]
    np.testing.assert_array_equal(sum(parts), whole)
    np.testing.assert_array_equal(
        model.predictions(parameters, rows[order]), model.predictions(parameters, rows)[order]
    )
