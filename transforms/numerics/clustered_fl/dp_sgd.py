"""DP-SGD of one client: Poisson sampling, flat clipping, Gaussian noise, division by the expected batch.

The sum that noise hides is exact: rows and clipped gradients are integers. A declared exception to the lattice noise
remains: the noise is a floating-point Gaussian number from a keyed stream, rounded to the units of the sum.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ClientRows, ModelShape, TrainingParams
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.dense_model import DenseModel
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import GradientUnits
from dapple_dp.transforms.numerics.clustered_fl.normal import normals, sampled_positions

LARGEST_MULTIPLIER = 2.0**13
"""Largest noise multiplier: no draw is beyond 8.6 stddevs, so noise stays below 2**53 units and keeps all digits."""
_LARGEST_PARAMETER = 2.0**60
_NOISE_WORDS = 1 << 17


class Model(Protocol):
    """A classifier whose clipped gradients can be added up.

    Attributes:
      most_rows: most rows that one client may have.
      rounding_share: share of the clipping norm by which one row more may move a sum beyond it.
    """

    @property
    def most_rows(self) -> int:
        """Most rows that one client may have."""
        ...

    @property
    def rounding_share(self) -> float:
        """Share of the clipping norm by which one row more may move a sum beyond it."""
        ...

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Returns the first parameters, shape (n_parameters,)."""
        ...

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> GradientUnits:
        """Adds up the cross-entropy's gradients of rows, each scaled down to L2 norm `clipping_norm`.

        Args:
          parameters: shape (n_parameters,), at most 2**60 each.
          features: integers of `bound_features`, shape (n_rows, n_features); 0 <= n_rows <= most_rows.
          labels: shape (n_rows,).
          clipping_norm: in [1e-9, 1e9].

        Returns:
          An exact sum; one row more or less moves it by at most clipping_norm * (1 + rounding_share).
        """
        ...

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the most probable classes of rows of `bound_features`, ties to the smallest, shape (n_rows,)."""
        ...

    def gains(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Returns how far each row's loss is below its bound, 0 to 2**GAIN_BITS, shape (n_rows,); see `gains_of`."""
        ...


class Schedule(NamedTuple):
    """Batches of a client's round, for accounting and training.

    Attributes:
      n_steps: >= 0.
      rate: in (0, 1]; probability of a row to be in a batch, 1 for full batches.
      expected_batch: > 0; divisor of the noisy sum.
    """

    n_steps: int
    rate: float
    expected_batch: float


class Sgd(NamedTuple):
    """Noisy steps.

    Attributes:
      schedule: of the batches.
      learning_rate: > 0.
      clipping_norm: in [1e-9, 1e9].
      noise_multiplier: noise stddev over sensitivity, at most LARGEST_MULTIPLIER.
    """

    schedule: Schedule
    learning_rate: float
    clipping_norm: float
    noise_multiplier: float


def schedule_of(training: TrainingParams, n_rows: int, *, first: bool) -> Schedule:
    """Returns K full batches, or K times ceil(N / b) Poisson-sampled ones of rate b / N.

    Args:
      training: of the client.
      n_rows: N, declared publicly.
      first: True in the first round; its batches are full unless the training sets another size.
    """
    size = (training.first_batch_size or n_rows) if first else training.batch_size
    if size >= n_rows:
        return Schedule(training.local_epochs, 1.0, float(n_rows))
    return Schedule(training.local_epochs * math.ceil(n_rows / size), size / n_rows, float(size))


@functools.singledispatch
def model_of(shape: ModelShape) -> Model:
    """Creates the model of a shape; models of other kinds register a type of shapes."""
    hidden = () if shape.kind is ModelKind.SOFTMAX else (shape.n_hidden,)
    return DenseModel((shape.n_features, *hidden, shape.n_classes), shape.feature_norm)


def train(
    model: Model, parameters: NDArray[np.float64], rows: ClientRows, sgd: Sgd, stream: KeyStream
) -> NDArray[np.float64]:
    """Returns the parameters after the scheduled noisy steps; noise is added to an empty batch, too.

    Each step is a Gaussian mechanism of noise multiplier `sgd.noise_multiplier` on a Poisson-sampled batch.

    Args:
      model: the model to train.
      parameters: the start, shape (n_parameters,).
      rows: of the client, bounded.
      sgd: steps.
      stream: unique to this call.

    Returns:
      Shape (n_parameters,).

    Raises:
      ValueError: for a larger noise multiplier.

    Source: Abadi et al. (2016), "Deep learning with differential privacy", Algorithm 1.
    """
    noise = _noise(stream.substream(encode_label("noise")), sgd.schedule.n_steps, len(parameters), _stddev(model, sgd))
    for noise_of_step, (features, labels) in zip(noise, _batches(rows, sgd.schedule, stream), strict=True):
        gradient = model.clipped_gradient_sum(parameters, features, labels, sgd.clipping_norm)
        direction = gradient.plus_noise(noise_of_step)
        direction /= sgd.schedule.expected_batch
        parameters = _moved(parameters, direction, sgd.learning_rate)
    return parameters


def _batches(
    rows: ClientRows, schedule: Schedule, stream: KeyStream
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    n_rows, n_steps = len(rows.labels), schedule.n_steps
    taken = sampled_positions(stream.substream(encode_label("batches")), schedule.rate, n_rows * n_steps)
    bounds = np.searchsorted(taken, n_rows * np.arange(n_steps + 1))
    for step in range(n_steps):
        yield _batch(rows, taken[bounds[step] : bounds[step + 1]] - n_rows * step)


def _stddev(model: Model, sgd: Sgd) -> float:
    """Returns the stddev of the noise on a sum of clipped gradients; raises ValueError if it is too large."""
    if not sgd.noise_multiplier <= LARGEST_MULTIPLIER:
        raise ValueError(
            f"noise_multiplier must be at most {LARGEST_MULTIPLIER:g}, got {sgd.noise_multiplier}; raise epsilon."
        )
    return sgd.noise_multiplier * sgd.clipping_norm * (1.0 + model.rounding_share)


def _moved(
    parameters: NDArray[np.float64], direction: NDArray[np.float64], learning_rate: float
) -> NDArray[np.float64]:
    """Returns the parameters after a step against `direction`, whose memory is reused, within the parameters' range."""
    direction *= learning_rate
    moved = parameters - direction
    np.minimum(np.maximum(moved, -_LARGEST_PARAMETER, out=moved), _LARGEST_PARAMETER, out=moved)
    return moved


def _noise(stream: KeyStream, n_steps: int, size: int, stddev: float) -> Iterator[NDArray[np.float64]]:
    """Yields the noise of every step, shape (size,), drawn for many steps at a time."""
    at_once = max(1, _NOISE_WORDS // size)
    for first in range(0, n_steps, at_once):
        steps = min(at_once, n_steps - first)
        yield from normals(stream, steps * size).reshape(steps, -1) * stddev


def _batch(rows: ClientRows, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Returns the rows of a batch; all of them without a copy."""
    if len(indices) == len(rows.labels):
        return rows.features, rows.labels
    return rows.features[indices], rows.labels[indices]
