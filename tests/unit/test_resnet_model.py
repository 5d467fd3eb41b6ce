"""ResNet18 with group norms, at a width of four; most of it needs JAX."""

import numpy as np
import pytest

from benchmarks.papers import jax_model
from benchmarks.papers.image_models import ResNetShape, image_channels, resnet_tensors
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bound_features, bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, model_of, train

SHAPE = ResNetShape(n_features=3 * 16 * 16, n_classes=3, n_hidden=4)
MODEL = model_of(SHAPE)


def _stream(name=b"test"):
    return KeyStream(bytes(32), name)


def _images(n_rows, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=n_rows)
    images = random.normal(scale=0.3, size=(n_rows, 3, 16, 16))
    for image, label in zip(images, labels, strict=True):
        image[:, :, 5 * label : 5 * label + 5] += 1.0
    return images.reshape(n_rows, -1), labels


def test_the_network_of_the_paper_has_its_parameters():
    shape = ResNetShape(n_features=3 * 32 * 32, n_classes=10, n_hidden=64)
    assert shape.n_parameters == model_of(shape).n_parameters == 11_181_642
    assert model_of(shape).rounding_share < 0.004
    assert model_of(shape).block_rows == 1


def test_images_have_one_or_three_channels():
    assert [image_channels(n) for n in (784, 3072, 3, 4, 5, 6)] == [1, 3, 3, 1, 0, 0]
    assert len(resnet_tensors(3, 64, 10)) == 3 * 20 + 2
    with pytest.raises(ConfigError, match="must be a square, or three times one, for model resnet, got 50"):
        model_of(ResNetShape(n_features=50, n_classes=3, n_hidden=2)).start(_stream())


def test_gradients_are_clipped_row_by_row_and_are_those_of_the_loss():
    pytest.importorskip("jax")
    parameters = MODEL.start(_stream())
    assert parameters.shape == (SHAPE.n_parameters,)
    rows, labels = _images(5)
    rows = bound_features(rows)
    single = [MODEL.clipped_gradient_sum(parameters, rows[[i]], labels[[i]], 0.5) for i in range(5)]
    assert max(np.linalg.norm(each.values * each.units) for each in single) <= 0.5
    whole = MODEL.clipped_gradient_sum(parameters, rows, labels, 0.5)
    np.testing.assert_array_equal(whole.values, np.sum([each.values for each in single], axis=0))
    turned = MODEL.clipped_gradient_sum(parameters, rows[::-1].copy(), labels[::-1].copy(), 0.5)
    np.testing.assert_array_equal(whole.values, turned.values)
    whole_gains, own = MODEL.gains(parameters, rows, labels), MODEL.gains(parameters, rows[[3]], labels[[3]])
    np.testing.assert_array_equal(whole_gains[[3]], own)
    slope = _slope(parameters, rows[:1], int(labels[0]))
    gradient = MODEL.clipped_gradient_sum(parameters, rows[:1], labels[:1], 1e3)
    assert (gradient.values * gradient.units) @ _direction() == pytest.approx(slope, rel=1e-4)


def _direction():
    return np.random.default_rng(1).normal(size=SHAPE.n_parameters)


def _slope(parameters, row, label):
    """Slope of the loss along a direction, by differences."""
    image = MODEL.images(row)

    def loss(at):
        logits = jax_model.compiled(MODEL)[0](at, image)[0]
        return np.log(np.exp(logits).sum()) - logits[label]

    step = 1e-8
    return (loss(parameters + step * _direction()) - loss(parameters - step * _direction())) / (2 * step)


def test_training_learns():
    pytest.importorskip("jax")
    images, labels = _images(60, seed=2)
    rows = bounded_rows(images, labels)
    sgd = Sgd(schedule=Schedule(30, 1.0, 60.0), learning_rate=1.0, clipping_norm=1.0, noise_multiplier=0.1)
    trained = train(MODEL, MODEL.start(_stream(b"start")), rows, sgd, _stream())
    assert (MODEL.predictions(trained, rows.features) == labels).mean() > 0.7


def test_filters_must_start_apart():
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match="stream must be given for filters"):
        MODEL.start(None)
