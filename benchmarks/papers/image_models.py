"""Networks for square images; see `jax_model` for their gradients.

ResNet18: He, Zhang, Ren, Sun (2016), "Deep residual learning for image recognition", in the form for images of 224
pixels: a convolution of 7 x 7, a pool, four stages of two blocks. Norms of batches would mix rows, so no row's gradient
could be clipped separately; norms of groups (Wu and He, 2018) replace them and have as many parameters. With a
width of 64 and ten classes there are 11,181,642, the number in R-DPCFL. `width` is that of the first stage.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.jax_model import JaxModel, compiled
from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import ModelShape
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.dense_model import layer_start
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from dapple_dp.transforms.numerics.clustered_fl.normal import normals

CNN_CHANNELS = (8, 16)
"""Numbers of filters of the two convolutions; both have stride 2."""
CNN_KERNELS = (5, 3)
"""Widths of the filters."""
RESNET_STAGES, RESNET_BLOCKS = 4, 2
"""Stages of a ResNet18 and blocks per stage; a later stage's first block doubles the filters, halves the sides."""
_MOST_GROUPS = 32
_SMALLEST_VARIANCE = 1e-5
_LAYOUT = ("NCHW", "OIHW", "NCHW")


@dataclass(frozen=True)
class CnnModel(JaxModel):
    """Two strided convolutions and a dense layer; parameters are weights before intercepts, layer by layer.

    `n_features` must be a square; rows are images, row by row.
    """

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all layers."""
        return sum((n_inputs + 1) * n_outputs for n_inputs, n_outputs in self._layers())

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Draws Gaussian weights; see `JaxModel.start`."""
        compiled(self)
        if stream is None:
            raise ValueError("stream must be given for filters, got None; filters must start apart.")
        return np.concatenate([layer_start(stream, *sizes) for sizes in self._layers()])

    def check(self) -> None:
        """Implements `JaxModel.check`."""
        if math.isqrt(self.n_features) ** 2 != self.n_features:
            raise ConfigError(
                f"the number of features must be a square for model cnn, got {self.n_features}; use model mlp."
            )

    def network(self, jax: Any) -> Callable[[Any, Any], Any]:
        """Implements `JaxModel.network`."""
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
        """Returns inputs and outputs of one filter or unit, per layer."""
        first, second = CNN_CHANNELS
        dense = second * math.ceil(math.isqrt(self.n_features) / 4) ** 2
        return (CNN_KERNELS[0] ** 2, first), (first * CNN_KERNELS[1] ** 2, second), (dense, self.n_classes)


@dataclass(frozen=True)
class ResNetModel(JaxModel):
    """The network; rows are images of `image_channels(n_features)` channels, one after the other.

    Attributes:
      width: filters of the first stage, >= 2.
    """

    width: int = 64

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all tensors."""
        return sum(map(math.prod, self._shapes()))

    def start(self, stream: KeyStream | None) -> NDArray[np.float64]:
        """Draws filters by He et al. (2015), with norms that change nothing; see `JaxModel.start`."""
        compiled(self)
        if stream is None:
            raise ValueError("stream must be given for filters, got None; filters must start apart.")
        shapes = self._shapes()
        before = [(), *shapes[:-1]]
        return np.concatenate([_tensor_start(stream, *each) for each in zip(shapes, before, strict=True)])

    def check(self) -> None:
        """Implements `JaxModel.check`."""
        if image_channels(self.n_features) == 0:
            raise ConfigError(
                f"the number of features must be a square, or three times one, for model resnet, got "
                f"{self.n_features}; use model mlp."
            )

    def network(self, jax: Any) -> Callable[[Any, Any], Any]:
        """Implements `JaxModel.network`."""
        shapes, channels = self._shapes(), image_channels(self.n_features)
        side = math.isqrt(self.n_features // channels)

        def logits(parameters: Any, row: Any) -> Any:
            tensors = _tensors(parameters, shapes)
            values = _normed(jax, _convolved(jax, row.reshape(1, channels, side, side), next(tensors), 2), tensors)
            values = _pooled(jax, jax.nn.relu(values))
            for stage in range(RESNET_STAGES):
                for block in range(RESNET_BLOCKS):
                    values = _block(jax, values, tensors, narrows=stage > 0 and block == 0)
            return values.mean(axis=(2, 3))[0] @ next(tensors) + next(tensors)

        return logits

    def _shapes(self) -> list[tuple[int, ...]]:
        """Returns the shapes of all tensors."""
        return resnet_tensors(image_channels(self.n_features), self.width, self.n_classes)


def _tensor_start(stream: KeyStream, shape: tuple[int, ...], before: tuple[int, ...]) -> NDArray[np.float64]:
    """Draws one tensor, flat: a vector after filters is the scale of a norm, any other vector a shift."""
    if len(shape) == 4:
        return normals(stream, math.prod(shape)) * math.sqrt(2.0 / (shape[0] * shape[2] * shape[3]))
    if len(shape) == 2:
        return normals(stream, math.prod(shape)) * math.sqrt(2.0 / sum(shape))
    return np.full(shape, 1.0 if len(before) == 4 else 0.0)


def _tensors(parameters: Any, shapes: list[tuple[int, ...]]) -> Iterator[Any]:
    """Yields parameters in their shapes, one after the other."""
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        yield parameters[start:stop].reshape(shape)
        start = stop


def _block(jax: Any, values: Any, tensors: Iterator[Any], *, narrows: bool) -> Any:
    """Applies two convolutions and the shortcut around them; the first block of a later stage halves the sides."""
    stride = 2 if narrows else 1
    inside = jax.nn.relu(_normed(jax, _convolved(jax, values, next(tensors), stride), tensors))
    inside = _normed(jax, _convolved(jax, inside, next(tensors), 1), tensors)
    past = _normed(jax, _convolved(jax, values, next(tensors), stride), tensors) if narrows else values
    return jax.nn.relu(inside + past)


def _convolved(jax: Any, values: Any, filters: Any, stride: int) -> Any:
    """Applies a convolution, padded with zeros by half a filter."""
    around = filters.shape[-1] // 2
    return jax.lax.conv_general_dilated(
        values, filters, (stride, stride), [(around, around)] * 2, dimension_numbers=_LAYOUT
    )


def _normed(jax: Any, values: Any, tensors: Iterator[Any]) -> Any:
    """Normalizes each group of channels of the image to mean 0 and variance 1, then scales and shifts by channel."""
    _, channels, height, width = values.shape
    groups = values.reshape(min(_MOST_GROUPS, max(1, channels // 2)), -1)
    centered = groups - groups.mean(axis=1, keepdims=True)
    spread = jax.numpy.sqrt((centered**2).mean(axis=1, keepdims=True) + _SMALLEST_VARIANCE)
    found = (centered / spread).reshape(1, channels, height, width)
    return found * next(tensors)[:, None, None] + next(tensors)[:, None, None]


def _pooled(jax: Any, values: Any) -> Any:
    """Returns the maximum of 3 x 3 pixels, at every other pixel."""
    around = [(0, 0), (0, 0), (1, 1), (1, 1)]
    return jax.lax.reduce_window(values, -jax.numpy.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), around)


def image_channels(n_features: int) -> int:
    """Returns the number of channels: 1 or 3 for square images, 0 for rows that are neither."""
    return next((each for each in (1, 3) if each * math.isqrt(n_features // each) ** 2 == n_features), 0)


def resnet_tensors(channels: int, width: int, n_classes: int) -> list[tuple[int, ...]]:
    """Returns the tensor shapes of a ResNet18: filters (outputs, inputs, k, k), then scale and shift of their norm."""

    def layer(n_inputs: int, n_outputs: int, side: int) -> list[tuple[int, ...]]:
        return [(n_outputs, n_inputs, side, side), (n_outputs,), (n_outputs,)]

    found, last = layer(channels, width, 7), width
    for stage in range(RESNET_STAGES):
        filters = width << stage
        for block in range(RESNET_BLOCKS):
            found += layer(last, filters, 3) + layer(filters, filters, 3)
            found += layer(last, filters, 1) if stage and not block else []
            last = filters
    return [*found, (last, n_classes), (n_classes,)]


@dataclass(frozen=True, kw_only=True)
class CnnShape(ModelShape):
    """Size of a `CnnModel`."""

    kind: ModelKind = ModelKind.MLP

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all layers."""
        return _cnn(self).n_parameters


@dataclass(frozen=True, kw_only=True)
class ResNetShape(ModelShape):
    """Size of a `ResNetModel`; `n_hidden` is its width."""

    kind: ModelKind = ModelKind.MLP

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all tensors."""
        return _resnet(self).n_parameters


@model_of.register
def _cnn(shape: CnnShape) -> CnnModel:
    return CnnModel(shape.n_features, shape.n_classes, shape.feature_norm)


@model_of.register
def _resnet(shape: ResNetShape) -> ResNetModel:
    return ResNetModel(shape.n_features, shape.n_classes, shape.feature_norm, shape.n_hidden)
