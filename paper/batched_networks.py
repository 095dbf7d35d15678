"""Many small networks of the same shape as one: three convolutions and two dense layers, forward and backward.

Convolutions over so few cells are products of gathered patches; every layer is then one batched product for all
networks. Gradients are written out: with automatic ones, most of the time would go into starting kernels.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

FILTERS, STRIDES = (8, 16, 16), (2, 1, 1)  # of three 3x3 convolutions
TAPS = 9  # of a 3x3 kernel
UNITS = 64  # of the dense layer behind them


class Layer(NamedTuple):
    """Views into the flat parameters."""

    weight: Tensor
    """(networks, inputs, outputs)"""
    bias: Tensor
    """(networks, 1, outputs)"""


class Shape(NamedTuple):
    """What is seen and what is decided."""

    side: int
    """Of the grid behind the first convolution, whose stride is 2."""
    channels: int
    actions: int

    @property
    def cells(self) -> int:
        """Of that grid."""
        return self.side * self.side

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of every layer."""
        first, second, third = FILTERS
        convolutions = [(TAPS * self.channels, first), (TAPS * first, second), (TAPS * second, third)]
        return [*convolutions, (self.cells * third, UNITS), (UNITS, self.actions)]

    @property
    def parameters(self) -> int:
        """Of one network."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.layers)

    def views(self, flat: Tensor) -> list[Layer]:
        """The layers within (networks, parameters)."""
        found, first = [], 0
        for inputs, outputs in self.layers:
            middle, last = first + inputs * outputs, first + (inputs + 1) * outputs
            weight = flat[:, first:middle].view(len(flat), inputs, outputs)
            found.append(Layer(weight, flat[:, middle:last].view(len(flat), 1, outputs)))
            first = last
        return found


def initial(shape: Shape, networks: int, generator: torch.Generator) -> Tensor:
    """(networks, parameters) as PyTorch's own layers start."""
    flat = torch.rand(networks, shape.parameters, generator=generator, device=generator.device) * 2 - 1
    for (inputs, _), layer in zip(shape.layers, shape.views(flat), strict=True):
        for part in layer:
            part /= math.sqrt(inputs)
    return flat


def first_patches(images: NDArray[Any]) -> NDArray[Any]:
    """(rows, cells, 9 * channels) what the first convolution sees of (rows, side, side, channels) images."""
    rows, side, _, channels = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    half = -(-side // 2)
    found = [
        padded[:, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3].reshape(rows, TAPS * channels)
        for row in range(half)
        for column in range(half)
    ]
    return np.stack(found, axis=1)


class Networks:
    """The arithmetic of networks of one shape; parameters are given to each call."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        gather, scatter = _neighbours(shape.side)
        self._gather, self._scatter = gather.to(device), scatter.to(device)

    def values(self, layers: list[Layer], patches: Tensor) -> Tensor:
        """(networks, rows, actions) of (networks, rows, cells, inputs) patches."""
        return self.forward(layers, patches)[-1]

    def forward(self, layers: list[Layer], patches: Tensor) -> list[Tensor]:
        """The inputs of every layer, and last the values."""
        networks, rows = patches.shape[:2]
        inputs = [patches.reshape(networks, rows * self.shape.cells, -1)]
        for layer, filters in zip(layers[:2], FILTERS[:2], strict=True):
            inputs.append(self._patches(linear(inputs[-1], layer).relu_(), filters))
        inputs.append(linear(inputs[-1], layers[2]).relu_().view(networks, rows, -1))
        inputs.append(linear(inputs[-1], layers[3]).relu_())
        return [*inputs, linear(inputs[-1], layers[4])]

    def backward(self, layers: list[Layer], inputs: list[Tensor], of_values: Tensor, gradients: list[Layer]) -> None:
        """Write the gradients of all parameters, given that of the values; ``inputs`` as ``forward`` gave them."""
        following = of_values
        for number in (4, 3, 2, 1, 0):
            seen = inputs[number]
            gradients[number].weight.copy_(torch.bmm(seen.transpose(1, 2), following))
            gradients[number].bias.copy_(following.sum(1, keepdim=True))
            if not number:
                return
            back = torch.bmm(following, layers[number].weight.transpose(1, 2))
            if number in (1, 2):
                filters = FILTERS[number - 1]
                own = seen.view(*seen.shape[:2], TAPS, filters)[:, :, TAPS // 2]  # the middle of its patch
                following = self._together(back, filters) * (own > 0)
            else:
                following = (back * (seen > 0)).view(len(back), -1, FILTERS[2] if number == 3 else UNITS)

    def _patches(self, outputs: Tensor, filters: int) -> Tensor:
        """(networks, rows * cells, 9 * filters) the neighbourhood of every cell, zeros beyond the edge."""
        by_cell = outputs.view(len(outputs), -1, self.shape.cells, filters)
        padded = functional.pad(by_cell, (0, 0, 0, 1))
        return padded.index_select(2, self._gather).view(len(outputs), -1, TAPS * filters)

    def _together(self, of_patches: Tensor, filters: int) -> Tensor:
        """The sum over all patches that a cell is part of."""
        by_tap = of_patches.view(len(of_patches), -1, self.shape.cells * TAPS, filters)
        gathered = functional.pad(by_tap, (0, 0, 0, 1)).index_select(2, self._scatter)
        summed = gathered.view(len(of_patches), -1, self.shape.cells, TAPS, filters).sum(3)
        return summed.view(len(of_patches), -1, filters)


def linear(inputs: Tensor, layer: Layer) -> Tensor:
    """(networks, rows, outputs) of (networks, rows, inputs)."""
    return torch.baddbmm(layer.bias, inputs, layer.weight)


def _neighbours(side: int) -> tuple[Tensor, Tensor]:
    """(cells * 9) which cell each tap of each cell reads; and which taps read each cell, the inverse of that."""
    cells = side * side
    reads = np.full((cells, TAPS), cells)
    read_by: list[list[int]] = [[] for _ in range(cells)]
    for cell in range(cells):
        for tap in range(TAPS):
            row, column = cell // side + tap // 3 - 1, cell % side + tap % 3 - 1
            if 0 <= row < side and 0 <= column < side:
                reads[cell, tap] = row * side + column
                read_by[row * side + column].append(cell * TAPS + tap)
    padded = [taps + [cells * TAPS] * (TAPS - len(taps)) for taps in read_by]
    return torch.tensor(reads.ravel()), torch.tensor(padded).ravel()
