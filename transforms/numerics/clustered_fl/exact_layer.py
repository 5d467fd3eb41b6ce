"""A layer with integer weights, whose outputs and sums of clipped gradients are exact in floating point.

BLAS adds products in an order that depends on the shapes of its operands, so one row more may change the last bits of
all other rows' results. Here every operand is an integer in float64 and every sum of products stays below 2**53, so no
order matters: results for a row depend on the row and the parameters alone. All other operations (exp,
tanh, roots, quotients) work element by element. A layer may have up to 100,000 inputs and outputs.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EXACT_BITS = 52
"""Products of bounded vectors stay below 2 * 2**EXACT_BITS; a factor of two is left for roots and for rounding."""
RESIDUAL_BITS = 24
"""Residuals of logits are multiples of 2**-RESIDUAL_BITS; at most sqrt(2) long."""
GRADIENT_BITS = 36
"""A row's share of a sum of gradients is at most 2**GRADIENT_BITS units, so int64 holds the sums of 2**26 rows."""
_BACK_BITS = 25
_ACTIVE_BITS = 16
ACTIVE_UNIT = 2.0**-_ACTIVE_BITS
"""Outputs of hidden units are multiples of it."""
_POWER_BITS = 36
GAIN_BITS = 10
"""The gap between a row's loss and its bound is at most 2**GAIN_BITS units."""
LARGEST_LOSS = 4.0
"""Cap on the loss of a row, nats; the loss of ten classes at random is 2.3."""


class LayerInputs(NamedTuple):
    """Inputs of a layer, for a block of rows.

    Attributes:
      values: integers, shape (n_rows, n_inputs); no row is longer than 2**bits, bits <= 26.
      bits: see `values`.
      unit: in [2**-bits, 2**10]; value of an integer.
    """

    values: NDArray[np.float64]
    bits: int
    unit: float


class Residuals(NamedTuple):
    """Slopes of rows' losses by the outputs of a layer.

    Attributes:
      values: integers, shape (n_rows, n_outputs); no row is longer than 1.5 * 2**_BACK_BITS.
      unit: > 0; value of an integer.
    """

    values: NDArray[np.float64]
    unit: float


class ExactLayer(NamedTuple):
    """Weights as integers.

    Attributes:
      weights: shape (n_inputs, n_outputs), integers; their Frobenius norm is at most 2**(EXACT_BITS - input_bits).
      exponent: the norm of the weights is at most 2**exponent.
      input_bits: of the inputs.
      intercepts: shape (n_outputs,).
    """

    weights: NDArray[np.float64]
    exponent: int
    input_bits: int
    intercepts: NDArray[np.float64]

    @classmethod
    def of(cls, weights: NDArray[np.float64], intercepts: NDArray[np.float64], input_bits: int) -> "ExactLayer":
        """Truncates weights to the bits that products with inputs leave, relative to their norm.

        Args:
          weights: shape (n_inputs, n_outputs), each at most 2**64.
          intercepts: shape (n_outputs,), finite.
          input_bits: of the inputs.
        """
        exponent = math.frexp(math.sqrt(np.einsum("ij,ij->", weights, weights)))[1]
        units = weights * math.ldexp(1.0, EXACT_BITS - input_bits - exponent)
        np.trunc(units, out=units)
        return cls(units, exponent, input_bits, intercepts)

    @property
    def unit(self) -> float:
        """Value of an integer weight."""
        return math.ldexp(1.0, self.exponent + self.input_bits - EXACT_BITS)

    def outputs(self, inputs: LayerInputs) -> NDArray[np.float64]:
        """Returns the outputs, shape (n_rows, n_outputs)."""
        found = inputs.values @ self.weights
        found *= inputs.unit * self.unit
        found += self.intercepts
        return found

    def back(self, residuals: Residuals, slopes: NDArray[np.float64]) -> Residuals:
        """Returns the residuals of the layer below.

        Args:
          residuals: of logits.
          slopes: of the inputs by their own inputs, in [0, 1], shape (n_rows, n_inputs).
        """
        # sqrt(2) * 2**bits times the norm of the weights is at most sqrt(2) * 2**EXACT_BITS.
        bits = min(self.input_bits, RESIDUAL_BITS)
        exact = np.trunc(residuals.values * 2.0 ** (bits - RESIDUAL_BITS)) @ self.weights.T
        exact *= math.ldexp(1.0, self.input_bits - bits + _BACK_BITS - EXACT_BITS)
        return Residuals(np.rint(exact * slopes), math.ldexp(1.0, self.exponent - _BACK_BITS))


class GradientUnits(NamedTuple):
    """A sum over rows of clipped gradients: integers, exact.

    Attributes:
      values: int64, shape (n_parameters,).
      units: shape (n_parameters,), > 0; value of each integer.
    """

    values: NDArray[np.int64]
    units: NDArray[np.float64]

    def plus_noise(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum with noise rounded to the same units, so that no digit below them is left without noise.

        Args:
          noise: shape (n_parameters,); below 2**53 units, so that none of their digits is left without noise either.
        """
        rounded = noise / self.units
        np.rint(rounded, out=rounded)
        noisy = rounded.astype(np.int64)
        noisy += self.values
        return noisy * self.units


def clipped_unit(input_unit: float, clipping_norm: float) -> float:
    """Returns the value of an integer of a clipped residual; times an input, it is worth `input_unit` times that.

    The outer product of the integers of a row is then at most 2**GRADIENT_BITS long.

    Args:
      input_unit: of the layer's inputs.
      clipping_norm: in [1e-9, 1e9], of a row's gradient.
    """
    return clipping_norm * 2.0**-GRADIENT_BITS * max(1.0 / input_unit, 1.0)


def write_gradient(
    layer: NDArray[np.float64], inputs: LayerInputs, residuals: Residuals, factors: NDArray[np.float64]
) -> None:
    """Writes the sum over rows of the outer products of (inputs, 1) and clipped residuals, integers.

    Args:
      layer: target, shape (n_inputs + 1, n_outputs).
      inputs: of at most 2**16 rows.
      residuals: of the outputs.
      factors: shape (n_rows,); times a residual, truncated toward zero, they are integers of `clipped_unit`.
    """
    clipped = residuals.values * factors[:, None]
    np.trunc(clipped, out=clipped)
    np.matmul(inputs.values.T, clipped, out=layer[:-1])
    np.sum(clipped, axis=0, out=layer[-1])


def residuals_of(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> Residuals:
    """Returns probabilities less the indicators of the labels.

    The sums of exponentials are exact, since these are rounded to multiples of 2**-36 before.
    """
    powers = _powers(logits)
    powers *= 2.0**RESIDUAL_BITS / powers.sum(axis=1, keepdims=True)
    np.rint(powers, out=powers)
    powers[np.arange(len(labels)), labels] -= 2.0**RESIDUAL_BITS
    return Residuals(powers, 2.0**-RESIDUAL_BITS)


def gains_of(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the gap between each row's cross-entropy and `LARGEST_LOSS`, in units of 2**-GAIN_BITS of it, truncated.

    A row's gain is a function of its logits and its label alone, from 0 to 2**GAIN_BITS; a loss that is beyond the
    bound, or not a number, gives 0.

    Args:
      logits: shape (n_rows, n_classes).
      labels: shape (n_rows,).
    """
    powers = _powers(logits)
    behind = logits.max(axis=1) - logits[np.arange(len(labels)), labels]
    losses = behind + np.log(powers.sum(axis=1) * 2.0**-_POWER_BITS)
    left = 2.0**GAIN_BITS * (1.0 - losses / LARGEST_LOSS)
    return np.where(left > 0.0, np.minimum(np.trunc(left), 2.0**GAIN_BITS), 0.0).astype(np.int64)


def _powers(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns exponentials over the largest of their row, as integers of 2**-36; the largest is exactly 2**36."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers *= 2.0**_POWER_BITS
    return np.rint(powers, out=powers)


def active_inputs(outputs: NDArray[np.float64]) -> LayerInputs:
    """Returns the tanh of a layer's outputs as inputs of the next, rounded to multiples of 2**-16."""
    active = np.tanh(outputs)
    active *= 2.0**_ACTIVE_BITS
    np.rint(active, out=active)
    return LayerInputs(active, active_bits(outputs.shape[1]), ACTIVE_UNIT)


def active_bits(n_units: int) -> int:
    """Returns the bits of the norm of so many outputs of tanh, as in `active_inputs`."""
    return _ACTIVE_BITS + ((n_units - 1).bit_length() + 1) // 2


def squared_norms(inputs: LayerInputs, residuals: Residuals) -> NDArray[np.float64]:
    """Returns the squared norms of rows' gradients by a layer: |residual|**2 (|input|**2 + 1), shape (n_rows,)."""
    return _squared(residuals.values) * residuals.unit**2 * (_squared(inputs.values) * inputs.unit**2 + 1.0)


def _squared(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the exact squared norms of rows of integers."""
    return np.einsum("ij,ij->i", rows, rows)
