"""Softmax regression, plain or under a hidden layer of tanh units: clipped gradients without a gradient per row.

Rows are integers (`bounded_rows`), like weights and residuals: `exact_layer` explains why a row's part of a sum is
then a function of the row and the parameters alone.
"""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import FEATURE_BITS
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import row_norm
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import (
    ACTIVE_UNIT,
    ExactLayer,
    GradientUnits,
    LayerInputs,
    Residuals,
    active_bits,
    active_inputs,
    clipped_unit,
    gains_of,
    residuals_of,
    squared_norms,
    write_gradient,
)
from dapple_dp.transforms.numerics.clustered_fl.normal import normals

BLOCK_ROWS = 1024
"""Rows whose gradients are added up at a time."""
_NORM_MARGIN = 1.0 - 2.0**-40


class DenseModel(NamedTuple):
    """Parameters are those of the layers in order, each the rows of its weight matrix before its intercepts.

    Attributes:
      widths: features, hidden units (none for softmax regression, else of one layer), classes; classes >= 2.
      feature_norm: bound on rows, >= 1; None for the default of `row_norm`.
    """

    widths: tuple[int, ...]
    feature_norm: float | None = None

    @property
    def feature_unit(self) -> float:
        """Value of an integer feature in feature units."""
        return row_norm(self.widths[0], self.feature_norm) * 2.0**-FEATURE_BITS

    @property
    def most_rows(self) -> int:
        """Most rows whose sums fit int64."""
        return 1 << 26

    @property
    def rounding_share(self) -> float:
        """Zero, since sums are exact, and a row's part depends on the row alone."""
        return 0.0

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Returns Gaussian weights or, without a stream, zeros; shape (n_parameters,).

        Raises:
          ValueError: if hidden units would start at zero, since units with equal starts stay equal.
        """
        sizes = list(itertools.pairwise(self.widths))
        if stream is not None:
            return np.concatenate([layer_start(stream, *size) for size in sizes])
        if len(sizes) > 1:
            raise ValueError("a model with a hidden layer needs stream, so that hidden units start apart, got None.")
        return np.zeros((self.widths[0] + 1) * self.widths[1])

    def clipped_gradient_sum(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64], clipping_norm: float
    ) -> GradientUnits:
        """Implements `Model.clipped_gradient_sum`.

        The gradient of a layer is the outer product of (input, 1) and its residual, so a row's squared norm is the sum
        over layers of |residual|^2 (|input|^2 + 1), without approximation.

        Source: Goodfellow (2015), "Efficient per-example gradient computations"; Li et al. (2022), "Large language
        models can be strong differentially private learners", Section 4.
        """
        layers, units = self._layers(parameters), _gradient_units(self, clipping_norm)
        total = np.zeros(len(parameters), dtype=np.int64)
        for start in range(0, len(labels), BLOCK_ROWS):
            inputs, logits = self._forward(layers, features[start : start + BLOCK_ROWS])
            residuals = _residuals(layers, inputs, residuals_of(logits, labels[start : start + BLOCK_ROWS]))
            factors = _clipping_factors(inputs, residuals, clipping_norm)
            added = np.empty(len(parameters))
            for layer, values, residual in zip(self._split(added), inputs, residuals, strict=True):
                scale = residual.unit / clipped_unit(values.unit, clipping_norm)
                write_gradient(layer, values, residual, factors * scale)
            total += added.astype(np.int64)
        return GradientUnits(total, units)

    def predictions(self, parameters: NDArray[np.float64], features: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the most probable classes, ties to the smallest, shape (n_rows,)."""
        return np.argmax(self._forward(self._layers(parameters), features)[1], axis=1)

    def gains(
        self, parameters: NDArray[np.float64], features: NDArray[Any], labels: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Implements `Model.gains`."""
        return gains_of(self._forward(self._layers(parameters), features)[1], labels)

    def _layers(self, parameters: NDArray[np.float64]) -> list[ExactLayer]:
        """Returns the weights (n_inputs, n_outputs) and intercepts (n_outputs,) of every layer, as integers."""
        bits = [FEATURE_BITS, *map(active_bits, self.widths[1:-1])]
        return [
            ExactLayer.of(layer[:-1], layer[-1], own) for layer, own in zip(self._split(parameters), bits, strict=True)
        ]

    def _split(self, parameters: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Returns views of parameters, shape (n_inputs + 1, n_outputs) each: weights over intercepts."""
        layers, start = [], 0
        for n_inputs, n_outputs in itertools.pairwise(self.widths):
            stop = start + (n_inputs + 1) * n_outputs
            layers.append(parameters[start:stop].reshape(n_inputs + 1, n_outputs))
            start = stop
        return layers

    def _forward(
        self, layers: list[ExactLayer], features: NDArray[Any]
    ) -> tuple[list[LayerInputs], NDArray[np.float64]]:
        """Returns the inputs of every layer, and the logits."""
        inputs = [LayerInputs(features.astype(np.float64), FEATURE_BITS, self.feature_unit)]
        for layer in layers[:-1]:
            inputs.append(active_inputs(layer.outputs(inputs[-1])))
        return inputs, layers[-1].outputs(inputs[-1])


@functools.lru_cache(maxsize=16)
def _gradient_units(model: DenseModel, clipping_norm: float) -> NDArray[np.float64]:
    """Returns the values of the integers of summed gradients, shape (n_parameters,); read-only."""
    units = []
    for n_inputs, n_outputs, unit in zip(
        model.widths, model.widths[1:], (model.feature_unit, ACTIVE_UNIT), strict=False
    ):
        residual = clipped_unit(unit, clipping_norm)
        units += [np.full(n_inputs * n_outputs, residual * unit), np.full(n_outputs, residual)]
    result = np.concatenate(units)
    result.flags.writeable = False
    return result


def layer_start(stream: KeyStream, n_inputs: int, n_outputs: int) -> NDArray[np.float64]:
    """Draws Gaussian weights of variance 2 / (n_inputs + n_outputs), zero intercepts; flat, n_outputs to each input.

    Source: Glorot, Bengio (2010), Equation 12.
    """
    weights = normals(stream, n_inputs * n_outputs) * np.sqrt(2.0 / (n_inputs + n_outputs))
    return np.concatenate([weights, np.zeros(n_outputs)])


def _residuals(layers: list[ExactLayer], inputs: list[LayerInputs], last: Residuals) -> list[Residuals]:
    """Returns the residuals of every layer, computed back from those of the logits."""
    if len(layers) == 1:
        return [last]
    active = inputs[-1]
    return [layers[-1].back(last, 1.0 - (active.values * active.unit) ** 2), last]


def _clipping_factors(
    inputs: list[LayerInputs], residuals: list[Residuals], clipping_norm: float
) -> NDArray[np.float64]:
    """Returns factors in (0, 1] that shrink rows' gradients to `clipping_norm` in floating point, shape (n_rows,)."""
    norms = np.sqrt(sum(map(squared_norms, inputs, residuals)))
    return _NORM_MARGIN * clipping_norm / np.maximum(norms, clipping_norm)
