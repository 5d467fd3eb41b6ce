"""A small convolutional network for square images; needs JAX (`pip install dapple-dp[jax]`), which is imported on use.

Gradients come row by row from one compiled loop, in double precision on the CPU: the same instructions run on every
row, wherever it lies and however many there are. They are floating-point numbers all the same, so `rounding_share` pays
for the case that every row's rounding to integers flips.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.clustered_fl.records import CNN_CHANNELS, CNN_KERNELS, FEATURE_BITS
from schemas.errors import ConfigError
from transforms.numerics.clustered_fl.bounded_rows import row_norm
from transforms.numerics.clustered_fl.dense_model import layer_start
from transforms.numerics.clustered_fl.exact_layer import GRADIENT_BITS, GradientUnits, gains_of
from transforms.numerics.privacy.keystream import KeyStream

_BLOCK_ROWS = 64
"""Rows whose gradients are held at a time; the only number of rows for which code is compiled."""
_NORM_MARGIN = 1.0 - 2.0**-40


class CnnModel(NamedTuple):
    """Two strided convolutions and a dense layer; parameters are weights before intercepts, layer by layer.

    Attributes:
      n_features: a square; rows are images, row by row.
      n_classes: >= 2.
      feature_norm: that bounds rows, >= 1; None for the default of `row_norm`.
    """

    n_features: int
    n_classes: int
    feature_norm: float | None = None

    @property
    def most_rows(self) -> int:
        """What `rounding_share` pays for."""
        return 1 << 16

    @property
    def rounding_share(self) -> float:
        """If one row more made each of `most_rows` others round to the next integer in every parameter."""
        n_parameters = sum((n_inputs + 1) * n_outputs for n_inputs, n_outputs in self._layers())
        return self.most_rows * math.sqrt(n_parameters) * 2.0**-GRADIENT_BITS

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Gaussian weights, shape (n_parameters,).

        Raises:
          ConfigError: unless images are square and JAX is installed.
          ValueError: without a stream: filters that start alike stay alike.
        """
        self._gradients()
        if stream is None:
            raise ValueError("stream must be given for filters, got None; filters must start apart.")
        return np.concatenate([layer_start(stream, *sizes) for sizes in self._layers()])

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> GradientUnits:
        """As `Model.clipped_gradient_sum`; a gradient that is not finite counts as zero."""
        unit = clipping_norm * 2.0**-GRADIENT_BITS
        total = np.zeros(len(parameters), dtype=np.int64)
        for start in range(0, len(labels), _BLOCK_ROWS):
            images = self._images(features[start : start + _BLOCK_ROWS])
            gradients = self._gradients()(parameters, images, labels[start : start + _BLOCK_ROWS])
            total += _clipped_units(gradients, clipping_norm, unit).sum(axis=0)
        return GradientUnits(total, np.full(len(parameters), unit))

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Most probable classes, ties to the smallest, shape (n_rows,)."""
        return np.argmax(self._outputs(parameters, features), axis=1)

    def gains(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """As `Model.gains`."""
        return gains_of(self._outputs(parameters, features), labels)

    def _outputs(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.float64]:
        """Logits, shape (n_rows, n_classes)."""
        blocks = [np.empty((0, self.n_classes))]
        for start in range(0, len(features), _BLOCK_ROWS):
            blocks.append(self._logits()(parameters, self._images(features[start : start + _BLOCK_ROWS])))
        return np.concatenate(blocks)

    def _images(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Rows in feature units."""
        return features.astype(np.float64) * (row_norm(self.n_features, self.feature_norm) * 2.0**-FEATURE_BITS)

    def _layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of one filter or unit, per layer."""
        first, second = CNN_CHANNELS
        dense = second * math.ceil(math.isqrt(self.n_features) / 4) ** 2
        return (CNN_KERNELS[0] ** 2, first), (first * CNN_KERNELS[1] ** 2, second), (dense, self.n_classes)

    def _gradients(self) -> Callable[..., Any]:
        return _compiled(self.n_features, self._layers())[1]

    def _logits(self) -> Callable[..., Any]:
        return _compiled(self.n_features, self._layers())[0]


def _clipped_units(gradients: NDArray[np.float64], clipping_norm: float, unit: float) -> NDArray[np.int64]:
    """Gradients of rows, clipped and truncated toward zero to multiples of `unit`; zero for those not finite."""
    gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    factors = _NORM_MARGIN * clipping_norm / np.maximum(norms, clipping_norm)
    return np.trunc(gradients * (factors / unit)).astype(np.int64)


def _padded(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of zeros added up to a whole block."""
    return np.concatenate([rows, np.zeros((_BLOCK_ROWS - len(rows), *rows.shape[1:]), dtype=rows.dtype)])


def _jax() -> Any:
    """The library; raises ConfigError where it is not installed."""
    try:
        import jax
    except ImportError as error:
        raise ConfigError("model cnn needs JAX, which is not installed; run `pip install dapple-dp[jax]`.") from error
    return jax


@functools.cache
def _compiled(n_features: int, layers: tuple[tuple[int, int], ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Logits of rows, and gradients of single rows, both compiled."""
    side = math.isqrt(n_features)
    if side * side != n_features:
        raise ConfigError(f"the number of features must be a square for model cnn, got {n_features}; use model mlp.")
    jax = _jax()

    def logits(parameters: Any, row: Any) -> Any:
        values, start = row.reshape(1, 1, side, side), 0
        for index, (n_inputs, n_outputs) in enumerate(layers):
            stop = start + (n_inputs + 1) * n_outputs
            layer, start = parameters[start:stop].reshape(n_inputs + 1, n_outputs), stop
            if index == len(CNN_KERNELS):
                return values.reshape(-1) @ layer[:-1] + layer[-1]
            filters = layer[:-1].T.reshape(n_outputs, -1, CNN_KERNELS[index], CNN_KERNELS[index])
            values = jax.lax.conv_general_dilated(values, filters, (2, 2), "SAME")
            values = jax.numpy.tanh(values + layer[-1][:, None, None])
        return None

    def loss(parameters: Any, row: Any, label: Any) -> Any:
        return -jax.nn.log_softmax(logits(parameters, row))[label]

    def row_by_row(function: Callable[..., Any], size: int) -> Callable[..., NDArray[np.float64]]:
        def loop(parameters: Any, n_rows: Any, *rows: Any) -> Any:
            def add(index: Any, values: Any) -> Any:
                return values.at[index].set(function(parameters, *(each[index] for each in rows)))

            return jax.lax.fori_loop(0, n_rows, add, jax.numpy.zeros((_BLOCK_ROWS, size)))

        compiled = jax.jit(loop)

        def call(parameters: Any, *rows: NDArray[Any]) -> NDArray[np.float64]:
            with jax.enable_x64(True):
                return np.asarray(compiled(parameters, len(rows[0]), *map(_padded, rows)))[: len(rows[0])]

        return call

    n_parameters = sum((n_inputs + 1) * n_outputs for n_inputs, n_outputs in layers)
    return row_by_row(logits, layers[-1][1]), row_by_row(jax.grad(loss), n_parameters)
