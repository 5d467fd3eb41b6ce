"""DP-SGD of one client: Poisson sampling, flat clipping, Gaussian noise, division by the expected batch.

A declared exception to noise on the lattice: the noise is floating-point Gaussian from a keyed stream, and so is the
sum that it hides; `ROUNDING_SHARE` pays for the rounding of that sum.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.choices import ModelKind
from schemas.federated import ClientRows, ModelShape, TrainingParams
from transforms.numerics.cnn_model import CnnModel
from transforms.numerics.keystream import KeyStream, encode_label
from transforms.numerics.mlp_model import MlpModel
from transforms.numerics.normal import normals, sampled_positions
from transforms.numerics.softmax_model import SoftmaxModel

ROUNDING_SHARE = 2.0**-16
"""Sensitivity of a summed clipped gradient beyond the clipping norm, in shares of it: what rounding may add.

One row more moves the exact sum by at most the clipping norm c, and every computed sum is off by its rounding. Adding
up n rows in blocks of 1,024 costs n (1024 + n / 1024) 2**-53 c, below 2**-22 c for 2**20 rows. Logits of size L of d
features are off by d L 2**-53, and n gradients by about n d L 2**-52 c: below 2**-18 c for 2**16 rows, d = 2**10 and
L = 2**8. Both twice, once per neighbor, stay below 2**-16 c.
"""
_NOISE_WORDS = 1 << 17


class Model(Protocol):
    """A classifier whose clipped gradients can be added up."""

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """First parameters."""
        ...

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> NDArray[np.float64]:
        """Sum of clipped gradients over rows."""
        ...

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Classes of rows."""
        ...


class Schedule(NamedTuple):
    """Batches of a client's round; accounting and training both ask `schedule_of`.

    Attributes:
      n_steps: >= 0.
      rate: in (0, 1]; probability of a row to be in a batch, 1 for full batches.
      expected_batch: > 0; what the noisy sum is divided by.
    """

    n_steps: int
    rate: float
    expected_batch: float


class Sgd(NamedTuple):
    """Noisy steps.

    Attributes:
      schedule: of the batches.
      learning_rate: > 0.
      clipping_norm: > 0.
      noise_multiplier: noise stddev over sensitivity.
      pull: weight of the distance to `anchor` in every step.
    """

    schedule: Schedule
    learning_rate: float
    clipping_norm: float
    noise_multiplier: float
    pull: float = 0.0

    @property
    def noise_stddev(self) -> float:
        """Of the summed clipped gradient."""
        return self.noise_multiplier * self.clipping_norm * (1.0 + ROUNDING_SHARE)


def schedule_of(training: TrainingParams, n_rows: int, *, first: bool) -> Schedule:
    """K full batches, or K times ceil(N / b) Poisson-sampled ones of rate b / N.

    Args:
      training: of the client.
      n_rows: N, declared in public.
      first: whether this is the first round of R-DPCFL; its batches are full unless the training says otherwise.
    """
    size = (training.first_batch_size or n_rows) if first else training.batch_size
    if size >= n_rows:
        return Schedule(training.local_epochs, 1.0, float(n_rows))
    return Schedule(training.local_epochs * math.ceil(n_rows / size), size / n_rows, float(size))


def model_of(shape: ModelShape) -> Model:
    """The model of a shape."""
    if shape.kind is ModelKind.SOFTMAX:
        return SoftmaxModel(shape.n_features, shape.n_classes)
    if shape.kind is ModelKind.CNN:
        return CnnModel(shape.n_features, shape.n_classes)
    return MlpModel(shape.n_features, shape.n_hidden, shape.n_classes)


def train(
    model: Model,
    parameters: NDArray[np.float64],
    rows: ClientRows,
    sgd: Sgd,
    stream: KeyStream,
    anchor: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Parameters after the scheduled noisy steps; noise is added to an empty batch, too.

    Each step is a Gaussian mechanism of noise multiplier `sgd.noise_multiplier` on a Poisson-sampled batch. The
    pull to `anchor` uses no rows and follows the noise.

    Args:
      model: what is trained.
      parameters: where to start, shape (n_parameters,).
      rows: of the client.
      sgd: steps.
      stream: names this call and nothing else.
      anchor: shape (n_parameters,), public; needed if `sgd.pull` is not 0.

    Returns:
      Shape (n_parameters,).

    Source: Abadi et al. (2016), "Deep learning with differential privacy", Algorithm 1.
    """
    n_rows, n_steps = len(rows.labels), sgd.schedule.n_steps
    taken = sampled_positions(stream.substream(encode_label("batches")), sgd.schedule.rate, n_rows * n_steps)
    bounds = np.searchsorted(taken, n_rows * np.arange(n_steps + 1))
    noise_stream = stream.substream(encode_label("noise"))
    at_once = max(1, _NOISE_WORDS // len(parameters))
    noise = np.empty((0, len(parameters)))
    for step in range(n_steps):
        if step % at_once == 0:
            steps = min(at_once, n_steps - step)
            noise = normals(noise_stream, steps * len(parameters)).reshape(steps, -1) * sgd.noise_stddev
        features, labels = _batch(rows, taken[bounds[step] : bounds[step + 1]] - n_rows * step)
        gradient = model.clipped_gradient_sum(parameters, features, labels, sgd.clipping_norm)
        direction = (gradient + noise[step % at_once]) / sgd.schedule.expected_batch
        if anchor is not None:
            direction += sgd.pull * (parameters - anchor)
        parameters = parameters - sgd.learning_rate * direction
    return parameters


def _batch(rows: ClientRows, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Rows of a batch; all of them without a copy."""
    if len(indices) == len(rows.labels):
        return rows.features, rows.labels
    return rows.features[indices], rows.labels[indices]
