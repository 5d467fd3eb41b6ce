"""One hidden layer of tanh units under softmax regression: exact norms of gradients without a gradient per row.

Tanh is smooth: rounding moves a gradient by as little as it moves a sum, which kinks of other units would not allow.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.keystream import KeyStream
from transforms.numerics.softmax_model import BLOCK_ROWS, clipping_factors, layer_start, residuals_of, split_layer


class MlpModel(NamedTuple):
    """Parameters are those of the hidden layer, then those of the last one, each weights before intercepts.

    Attributes:
      n_features: >= 1.
      n_hidden: >= 1.
      n_classes: >= 2.
    """

    n_features: int
    n_hidden: int
    n_classes: int

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Gaussian weights, shape (n_parameters,).

        Raises:
          ValueError: without a stream: hidden units that start alike stay alike.
        """
        if stream is None:
            raise ValueError("stream must be given for a hidden layer, got None; hidden units must start apart.")
        hidden = layer_start(stream, self.n_features, self.n_hidden)
        return np.concatenate([hidden, layer_start(stream, self.n_hidden, self.n_classes)])

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> NDArray[np.float64]:
        """Sum over rows of the cross-entropy's gradient, each row's scaled down to L2 norm `clipping_norm`.

        A row's squared norm is the sum over layers of |residual|^2 (|input|^2 + 1), without approximation.

        Args:
          parameters: shape (n_parameters,).
          features: shape (n_rows, n_features); n_rows may be 0.
          labels: shape (n_rows,).
          clipping_norm: > 0.

        Returns:
          Shape (n_parameters,).

        Source: Goodfellow (2015), "Efficient per-example gradient computations"; Li et al. (2022), "Large language
        models can be strong differentially private learners", Section 4.
        """
        hidden, last = self._layers(parameters)
        totals = np.zeros((self.n_features + 1, self.n_hidden)), np.zeros((self.n_hidden + 1, self.n_classes))
        for start in range(0, len(labels), BLOCK_ROWS):
            block = features[start : start + BLOCK_ROWS].astype(np.float64, copy=False)
            active = np.tanh(block @ hidden[0] + hidden[1])
            outer = residuals_of(active @ last[0] + last[1], labels[start : start + BLOCK_ROWS])
            inner = (outer @ last[0].T) * (1.0 - active**2)
            layers = ((block, inner), (active, outer))
            squared = sum(_squared(residuals) * (_squared(inputs) + 1.0) for inputs, residuals in layers)
            factors = clipping_factors(np.asarray(squared), clipping_norm)[:, None]
            for total, (inputs, residuals) in zip(totals, layers, strict=True):
                residuals *= factors
                total[:-1] += inputs.T @ residuals
                total[-1] += residuals.sum(axis=0)
        return np.concatenate([total.ravel() for total in totals])

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Most probable classes, ties to the smallest, shape (n_rows,)."""
        hidden, last = self._layers(parameters)
        return np.argmax(np.tanh(features @ hidden[0] + hidden[1]) @ last[0] + last[1], axis=1)

    def _layers(self, parameters: NDArray[np.float64]) -> tuple[tuple[NDArray, NDArray], tuple[NDArray, NDArray]]:
        """Weights and intercepts of both layers."""
        size = (self.n_features + 1) * self.n_hidden
        return split_layer(parameters[:size], self.n_features), split_layer(parameters[size:], self.n_hidden)


def _squared(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared norms of rows."""
    return np.einsum("ij,ij->i", rows, rows)
