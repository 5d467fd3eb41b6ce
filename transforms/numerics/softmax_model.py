"""Softmax regression: sums of clipped gradients without a gradient per row, and correct predictions."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.keystream import KeyStream
from transforms.numerics.normal import normals

BLOCK_ROWS = 1024
"""Rows whose gradients are added up at a time."""
_NORM_MARGIN = 1.0 - 2.0**-40


class SoftmaxModel(NamedTuple):
    """Parameters are the rows of the weight matrix (n_features, n_classes), then the intercepts.

    Attributes:
      n_features: >= 1.
      n_classes: >= 2.
    """

    n_features: int
    n_classes: int

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Zeros; with a stream, Gaussian weights. Shape (n_parameters,)."""
        size = (self.n_features + 1) * self.n_classes
        if stream is None:
            return np.zeros(size)
        return layer_start(stream, self.n_features, self.n_classes)

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> NDArray[np.float64]:
        """Sum over rows of the cross-entropy's gradient, each row's scaled down to L2 norm `clipping_norm`.

        The gradient of a row is the outer product of (row, 1) and its residual, so that its norm is known
        without it.

        Args:
          parameters: shape (n_parameters,).
          features: shape (n_rows, n_features); n_rows may be 0.
          labels: shape (n_rows,).
          clipping_norm: > 0.

        Returns:
          Shape (n_parameters,).
        """
        weights, intercepts = split_layer(parameters, self.n_features)
        total = np.zeros((self.n_features + 1, self.n_classes))
        for start in range(0, len(labels), BLOCK_ROWS):
            block = features[start : start + BLOCK_ROWS].astype(np.float64, copy=False)
            residuals = residuals_of(block @ weights + intercepts, labels[start : start + BLOCK_ROWS])
            squared = np.einsum("ij,ij->i", residuals, residuals) * (np.einsum("ij,ij->i", block, block) + 1.0)
            residuals *= clipping_factors(squared, clipping_norm)[:, None]
            total[:-1] += block.T @ residuals
            total[-1] += residuals.sum(axis=0)
        return total.ravel()

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Most probable classes, ties to the smallest, shape (n_rows,)."""
        weights, intercepts = split_layer(parameters, self.n_features)
        return np.argmax(features @ weights + intercepts, axis=1)


def layer_start(stream: KeyStream, n_inputs: int, n_outputs: int) -> NDArray[np.float64]:
    """Gaussian weights of variance 2 / (n_inputs + n_outputs), zero intercepts, shape ((n_inputs + 1) * n_outputs,).

    Source: Glorot, Bengio (2010), Equation 12.
    """
    weights = normals(stream, n_inputs * n_outputs) * np.sqrt(2.0 / (n_inputs + n_outputs))
    return np.concatenate([weights, np.zeros(n_outputs)])


def split_layer(parameters: NDArray[np.float64], n_inputs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Views on weights (n_inputs, n_outputs) and intercepts (n_outputs,) of one layer."""
    layer = parameters.reshape(n_inputs + 1, -1)
    return layer[:-1], layer[-1]


def residuals_of(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities less the indicators of the labels, shape of `logits`, whose memory is used."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(labels)), labels] -= 1.0
    return logits


def clipping_factors(squared_norms: NDArray[np.float64], clipping_norm: float) -> NDArray[np.float64]:
    """Factors in (0, 1] that bring norms to at most `clipping_norm` on a real computer, shape (n_rows,)."""
    norms = np.sqrt(squared_norms)
    return _NORM_MARGIN * clipping_norm / np.maximum(norms, clipping_norm)
