"""Clipped gradients against gradients row by row, and the steps that use them."""

import math

import numpy as np
import pytest

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import FEATURE_BITS, ModelShape, TrainingParams
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows, row_norm
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Schedule, Sgd, model_of, schedule_of, train
from dapple_dp.transforms.numerics.clustered_fl.normal import normals

SOFTMAX = ModelShape(kind=ModelKind.SOFTMAX, n_features=3, n_classes=4)
MLP = ModelShape(kind=ModelKind.MLP, n_features=3, n_classes=4, n_hidden=5)
SHAPES = pytest.mark.parametrize("shape", [SOFTMAX, MLP], ids=["softmax", "mlp"])


def _stream(name=b"test"):
    return KeyStream(bytes(32), name)


def _rows(n_rows, seed=0):
    random = np.random.default_rng(seed)
    return bounded_rows(random.normal(size=(n_rows, 3)), random.integers(4, size=n_rows))


def _features(rows):
    """Bounded rows in feature units."""
    return rows.features.astype(np.float64) * (row_norm(3, None) * 2.0**-FEATURE_BITS)


def _real(gradient):
    """A sum of integers in the unit of the gradient."""
    return gradient.values * gradient.units


def _parameters(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape.n_parameters)


def _loss(shape, parameters, features, label):
    """Cross-entropy of one row, written out."""
    inputs = features
    if shape.kind is ModelKind.MLP:
        size = (shape.n_features + 1) * shape.n_hidden
        hidden = parameters[:size].reshape(-1, shape.n_hidden)
        inputs, parameters = np.tanh(features @ hidden[:-1] + hidden[-1]), parameters[size:]
    layer = parameters.reshape(-1, shape.n_classes)
    logits = inputs @ layer[:-1] + layer[-1]
    return math.log(np.exp(logits).sum()) - logits[label]


def _gradient(shape, parameters, features, label):
    """Gradient by central differences."""
    steps = np.eye(len(parameters)) * 1e-5
    losses = [[_loss(shape, parameters + sign * step, features, label) for step in steps] for sign in (1.0, -1.0)]
    return (np.array(losses[0]) - losses[1]) / 2e-5


@SHAPES
@pytest.mark.parametrize("clipping_norm", [1e3, 0.7])
def test_sum_of_clipped_gradients(shape, clipping_norm):
    rows, parameters = _rows(7), _parameters(shape)
    expected = np.zeros(shape.n_parameters)
    for features, label in zip(_features(rows), rows.labels, strict=True):
        gradient = _gradient(shape, parameters, features, label)
        expected += gradient * min(1.0, clipping_norm / np.linalg.norm(gradient))
    found = model_of(shape).clipped_gradient_sum(parameters, rows.features, rows.labels, clipping_norm)
    # Seven rows of features up to 3. Clipped residuals are multiples of clipping_norm * 2**-36 over the unit of the
    # inputs, which is 2**-16 for outputs of tanh; those are off by half of it.
    inputs_unit = row_norm(3, None) * 2.0**-FEATURE_BITS if shape is SOFTMAX else 2.0**-16
    allowed = 7 * 3 * clipping_norm * 2.0**-36 / inputs_unit + (0.0 if shape is SOFTMAX else 7 * 2.0**-17)
    np.testing.assert_allclose(_real(found), expected, atol=allowed)


@SHAPES
def test_blocks_add_up(shape):
    rows, parameters, model = _rows(2500), _parameters(shape), model_of(shape)
    whole = model.clipped_gradient_sum(parameters, rows.features, rows.labels, 1.0)
    parts = sum(
        model.clipped_gradient_sum(parameters, rows.features[part], rows.labels[part], 1.0).values
        for part in (slice(0, 900), slice(900, None))
    )
    np.testing.assert_array_equal(whole.values, parts)


@SHAPES
def test_features_of_double_precision(shape):
    rows, parameters, model = _rows(5), _parameters(shape), model_of(shape)
    np.testing.assert_array_equal(
        model.clipped_gradient_sum(parameters, rows.features, rows.labels, 1.0).values,
        model.clipped_gradient_sum(parameters, rows.features.astype(np.float64), rows.labels, 1.0).values,
    )


def _sgd(n_steps=1, rate=1.0, expected_batch=8.0, **changes):
    settings = {"learning_rate": 0.5, "clipping_norm": 1.0, "noise_multiplier": 0.0} | changes
    return Sgd(schedule=Schedule(n_steps, rate, expected_batch), **settings)


def test_a_step_divides_by_the_expected_batch():
    rows, parameters, model = _rows(6), _parameters(SOFTMAX), model_of(SOFTMAX)
    gradient = model.clipped_gradient_sum(parameters, rows.features, rows.labels, 1.0)
    found = train(model, parameters, rows, _sgd(), _stream())
    np.testing.assert_allclose(found, parameters - 0.5 * _real(gradient) / 8.0, rtol=1e-14)


@SHAPES
def test_no_rows_still_get_noise(shape):
    rows, model = _rows(0), model_of(shape)
    parameters = _parameters(shape)
    np.testing.assert_array_equal(train(model, parameters, rows, _sgd(3, 0.5), _stream()), parameters)
    noisy = train(model, parameters, rows, _sgd(3, 0.5, noise_multiplier=2.0), _stream())
    assert (noisy != parameters).all()


def test_training_learns():
    random = np.random.default_rng(5)
    labels = random.integers(4, size=400)
    rows = bounded_rows(np.eye(4)[labels][:, :3] + random.normal(scale=0.2, size=(400, 3)), labels)
    model = model_of(MLP)
    sgd = _sgd(400, 0.1, 40.0, noise_multiplier=0.5)
    trained = train(model, model.start(_stream(b"start")), rows, sgd, _stream())
    assert (model.predictions(trained, rows.features) == labels).mean() > 0.9


def test_hidden_units_start_apart():
    with pytest.raises(ValueError, match="a model with a hidden layer needs stream"):
        model_of(MLP).start(None)
    start = model_of(MLP).start(_stream())
    assert len(set(start[:15].tolist())) == 15


def test_schedules():
    training = TrainingParams(rounds=5, local_epochs=2, batch_size=30, learning_rate=0.1, clipping_norm=1.0)
    assert schedule_of(training, 100, first=True) == (2, 1.0, 100.0)
    assert schedule_of(training, 100, first=False) == (8, 0.3, 30.0)
    assert schedule_of(training, 30, first=False) == (2, 1.0, 30.0)


def test_rows_do_not_show_themselves():
    assert repr(_rows(3)) == "ClientRows(private, n_features=3)"


class _Still:
    """A model without a gradient, which remembers its batches."""

    rounding_share = 0.25

    def __init__(self, size):
        self.size, self.batches = size, []

    def clipped_gradient_sum(self, parameters, features, labels, clipping_norm):
        self.batches.append(len(labels))
        return _Nothing()


class _Nothing:
    """A sum of nothing: the noise alone is left."""

    def plus_noise(self, noise):
        return noise.copy()


def test_noise_is_drawn_from_a_stream_of_its_own():
    """Drawn from that of the batches, noise would reveal which rows were taken, and be known where batches are."""
    names = []

    class Recorded(KeyStream):
        """Remembers the names of its parts."""

        def substream(self, label):
            names.append(label)
            return KeyStream.substream(self, label)

    sgd = Sgd(Schedule(6, 0.3, 3.0), learning_rate=1.0, clipping_norm=2.0, noise_multiplier=1.5)
    model = _Still(4)
    moved = train(model, np.zeros(4), _rows(10), sgd, Recorded(bytes(32), b"test"))
    assert len(names) == len(set(names)) == 2
    assert sorted(names) == sorted([encode_label("noise"), encode_label("batches")])
    stddev = 1.5 * 2.0 * 1.25
    noise = normals(_stream().substream(encode_label("noise")), 24).reshape(6, 4) * stddev
    np.testing.assert_allclose(moved, -noise.sum(axis=0) / 3.0, rtol=1e-12)
