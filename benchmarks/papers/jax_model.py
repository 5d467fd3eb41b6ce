"""Networks with gradients by JAX, row by row; JAX is imported on use.

Gradients come row by row from one compiled loop, in double precision on the CPU: the same instructions run on every
row, for any position and number of rows. They are still floating-point numbers, so `rounding_share` covers
the case that every row's rounding to integers flips.
"""

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import FEATURE_BITS
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import row_norm
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import GRADIENT_BITS, GradientUnits, gains_of

_MOST_BLOCK_ROWS = 64
_BLOCK_VALUES = 1 << 24
_NORM_MARGIN = 1.0 - 2.0**-40


@dataclass(frozen=True)
class JaxModel(abc.ABC):
    """A network; parameters are its tensors one after the other.

    Attributes:
      n_features: rows are images.
      n_classes: >= 2.
      feature_norm: bound on rows, >= 1; None for the default of `row_norm`.
    """

    n_features: int
    n_classes: int
    feature_norm: float | None = None

    @property
    @abc.abstractmethod
    def n_parameters(self) -> int:
        """Number of parameters of all tensors."""

    @abc.abstractmethod
    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Returns the first parameters, shape (n_parameters,).

        Raises:
          ConfigError: unless rows can be images and JAX is installed.
          ValueError: without a stream, since filters with equal starts stay equal.
        """

    @abc.abstractmethod
    def network(self, jax: Any) -> Callable[[Any, Any], Any]:
        """Returns a function for the logits, shape (n_classes,), of parameters and a row in feature units."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises ConfigError unless rows can be images."""

    @property
    def most_rows(self) -> int:
        """Largest number of rows that `rounding_share` covers."""
        return 1 << 16

    @property
    def rounding_share(self) -> float:
        """Share for the case that one row more changes the rounding of all of `most_rows` others in every parameter."""
        return self.most_rows * math.sqrt(self.n_parameters) * 2.0**-GRADIENT_BITS

    @property
    def block_rows(self) -> int:
        """Rows whose gradients are held at a time; the only number of rows for which code is compiled."""
        return max(1, min(_MOST_BLOCK_ROWS, _BLOCK_VALUES // self.n_parameters))

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> GradientUnits:
        """Implements `Model.clipped_gradient_sum`; a gradient that isn't finite counts as zero."""
        unit, block = clipping_norm * 2.0**-GRADIENT_BITS, self.block_rows
        total = np.zeros(len(parameters), dtype=np.int64)
        for start in range(0, len(labels), block):
            images = self.images(features[start : start + block])
            gradients = compiled(self)[1](parameters, images, labels[start : start + block])
            total += _clipped_units(gradients, clipping_norm, unit).sum(axis=0)
        return GradientUnits(total, np.full(len(parameters), unit))

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the most probable classes, ties to the smallest, shape (n_rows,)."""
        return np.argmax(self.logits(parameters, features), axis=1)

    def gains(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Implements `Model.gains`."""
        return gains_of(self.logits(parameters, features), labels)

    def logits(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.float64]:
        """Returns the logits of rows of `bound_features`, shape (n_rows, n_classes)."""
        blocks, size = [np.empty((0, self.n_classes))], self.block_rows
        for start in range(0, len(features), size):
            blocks.append(compiled(self)[0](parameters, self.images(features[start : start + size])))
        return np.concatenate(blocks)

    def images(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Returns rows in feature units."""
        return features.astype(np.float64) * (row_norm(self.n_features, self.feature_norm) * 2.0**-FEATURE_BITS)


def _clipped_units(gradients: NDArray[np.float64], clipping_norm: float, unit: float) -> NDArray[np.int64]:
    """Clips gradients of rows and truncates them toward zero to multiples of `unit`; zero if not finite."""
    gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    factors = _NORM_MARGIN * clipping_norm / np.maximum(norms, clipping_norm)
    return np.trunc(gradients * (factors / unit)).astype(np.int64)


def library() -> Any:
    """Imports JAX; raises ConfigError if it isn't installed."""
    try:
        import jax
    except ImportError as error:
        raise ConfigError("models of images need JAX, which is not installed; run pip install 'jax>=0.8'.") from error
    return jax


@functools.cache
def compiled(model: JaxModel) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiles the logits of rows, and gradients of single rows."""
    model.check()
    jax = library()
    network = model.network(jax)

    def loss(parameters: Any, row: Any, label: Any) -> Any:
        return -jax.nn.log_softmax(network(parameters, row))[label]

    def row_by_row(function: Callable[..., Any], size: int) -> Callable[..., NDArray[np.float64]]:
        block = model.block_rows

        def loop(parameters: Any, n_rows: Any, *rows: Any) -> Any:
            def add(index: Any, values: Any) -> Any:
                return values.at[index].set(function(parameters, *(each[index] for each in rows)))

            return jax.lax.fori_loop(0, n_rows, add, jax.numpy.zeros((block, size)))

        once = jax.jit(loop)

        def call(parameters: Any, *rows: NDArray[Any]) -> NDArray[np.float64]:
            with jax.enable_x64(True):
                padded = (_padded(each, block) for each in rows)
                return np.asarray(once(parameters, len(rows[0]), *padded))[: len(rows[0])]

        return call

    return row_by_row(network, model.n_classes), row_by_row(jax.grad(loss), model.n_parameters)


def _padded(rows: NDArray[Any], block: int) -> NDArray[Any]:
    """Pads rows with zeros to a whole block."""
    return np.concatenate([rows, np.zeros((block - len(rows), *rows.shape[1:]), dtype=rows.dtype)])
