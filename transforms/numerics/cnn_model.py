"""A small convolutional network for square images; needs JAX (`pip install dapple[jax]`), which is imported on use.

Gradients of single rows come from `vmap`, in double precision on the CPU. Tanh keeps them smooth, as in `mlp_model`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError
from schemas.federated import CNN_CHANNELS, CNN_KERNELS
from transforms.numerics.keystream import KeyStream
from transforms.numerics.softmax_model import layer_start

_BLOCK_ROWS = 64
"""Rows whose gradients are held at a time."""
_FEWEST_ROWS = 8
_NORM_MARGIN = 1.0 - 2.0**-40


class CnnModel(NamedTuple):
    """Two strided convolutions and a dense layer; parameters are weights before intercepts, layer by layer.

    Attributes:
      n_features: a square; rows are images, row by row.
      n_classes: >= 2.
    """

    n_features: int
    n_classes: int

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
    ) -> NDArray[np.float64]:
        """Sum over rows of the cross-entropy's gradient, each row's scaled down to L2 norm `clipping_norm`.

        Args and Returns: as `SoftmaxModel.clipped_gradient_sum`.
        """
        total = np.zeros(len(parameters))
        for start in range(0, len(labels), _BLOCK_ROWS):
            block = _padded(np.asarray(features[start : start + _BLOCK_ROWS], dtype=np.float64))
            n_rows = len(labels[start : start + _BLOCK_ROWS])
            gradients = np.asarray(self._gradients()(parameters, block, _padded(labels[start : start + _BLOCK_ROWS])))
            norms = np.linalg.norm(gradients[:n_rows], axis=1)
            total += (_NORM_MARGIN * clipping_norm / np.maximum(norms, clipping_norm)) @ gradients[:n_rows]
        return total

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Most probable classes, ties to the smallest, shape (n_rows,)."""
        found = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(features), _BLOCK_ROWS):
            block = np.asarray(features[start : start + _BLOCK_ROWS], dtype=np.float64)
            logits = np.asarray(self._logits()(parameters, _padded(block)))[: len(block)]
            found.append(np.argmax(logits, axis=1))
        return np.concatenate(found)

    def _layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of one filter or unit, per layer."""
        first, second = CNN_CHANNELS
        dense = second * math.ceil(math.isqrt(self.n_features) / 4) ** 2
        return (CNN_KERNELS[0] ** 2, first), (first * CNN_KERNELS[1] ** 2, second), (dense, self.n_classes)

    def _gradients(self) -> Callable[..., Any]:
        return _compiled(self.n_features, self._layers())[1]

    def _logits(self) -> Callable[..., Any]:
        return _compiled(self.n_features, self._layers())[0]


def _padded(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows of zeros added up to a power of two, so that few shapes are compiled."""
    size = max(_FEWEST_ROWS, 1 << (len(rows) - 1).bit_length())
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]), dtype=rows.dtype)])


@functools.cache
def _compiled(n_features: int, layers: tuple[tuple[int, int], ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Logits of rows, and gradients of single rows, both compiled."""
    side = math.isqrt(n_features)
    if side * side != n_features:
        raise ConfigError(f"the number of features must be a square for model cnn, got {n_features}; use model mlp.")
    try:
        import jax
    except ImportError as error:
        raise ConfigError("model cnn needs JAX, which is not installed; run `pip install dapple[jax]`.") from error

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

    def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arrays: Any) -> Any:
            with jax.enable_x64(True):
                return function(*arrays)

        return call

    return (
        doubled(jax.jit(jax.vmap(logits, (None, 0)))),
        doubled(jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))),
    )
