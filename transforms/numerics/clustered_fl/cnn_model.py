"""A small convolutional network for square images; see `jax_model` for its gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.clustered_fl.records import CNN_CHANNELS, CNN_KERNELS
from schemas.errors import ConfigError
from transforms.numerics.clustered_fl.dense_model import layer_start
from transforms.numerics.clustered_fl.jax_model import JaxModel, compiled
from transforms.numerics.privacy.keystream import KeyStream


@dataclass(frozen=True)
class CnnModel(JaxModel):
    """Two strided convolutions and a dense layer; parameters are weights before intercepts, layer by layer.

    `n_features` must be a square; rows are images, row by row.
    """

    @property
    def n_parameters(self) -> int:
        """Of all layers."""
        return sum((n_inputs + 1) * n_outputs for n_inputs, n_outputs in self._layers())

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Gaussian weights, as `JaxModel.start`."""
        compiled(self)
        if stream is None:
            raise ValueError("stream must be given for filters, got None; filters must start apart.")
        return np.concatenate([layer_start(stream, *sizes) for sizes in self._layers()])

    def check(self) -> None:
        """As `JaxModel.check`."""
        if math.isqrt(self.n_features) ** 2 != self.n_features:
            raise ConfigError(
                f"the number of features must be a square for model cnn, got {self.n_features}; use model mlp."
            )

    def network(self, jax: Any) -> Callable[[Any, Any], Any]:
        """As `JaxModel.network`."""
        side, layers = math.isqrt(self.n_features), self._layers()

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

        return logits

    def _layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of one filter or unit, per layer."""
        first, second = CNN_CHANNELS
        dense = second * math.ceil(math.isqrt(self.n_features) / 4) ** 2
        return (CNN_KERNELS[0] ** 2, first), (first * CNN_KERNELS[1] ** 2, second), (dense, self.n_classes)
