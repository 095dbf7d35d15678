"""Many small networks as one: the same numbers as PyTorch's own layers, values and gradients."""

import numpy as np
import pytest
import torch
from paper.batched_networks import FILTERS, STRIDES, Networks, Shape, first_patches, initial
from torch.nn import functional

pytestmark = pytest.mark.usefixtures("one_thread")


def by_the_book(layers, images):
    """Values of one network, from PyTorch's convolutions."""
    seen = torch.as_tensor(images).permute(0, 3, 1, 2)
    for layer, filters, stride in zip(layers[:3], FILTERS, STRIDES, strict=True):
        kernel = layer.weight[0].view(3, 3, -1, filters).permute(3, 2, 0, 1)
        seen = torch.relu(functional.conv2d(seen, kernel, layer.bias[0, 0], stride=stride, padding=1))
    flat = seen.permute(0, 2, 3, 1).reshape(len(images), -1)
    return torch.relu(flat @ layers[3].weight[0] + layers[3].bias[0]) @ layers[4].weight[0] + layers[4].bias[0]


@pytest.mark.parametrize(("side", "channels", "actions"), [(8, 3, 4), (12, 3, 4), (5, 2, 3), (3, 1, 2)])
def test_values_and_gradients_are_those_of_convolutions(side, channels, actions):
    rng = np.random.default_rng(side)
    images = rng.normal(size=(6, side, side, channels)).astype(np.float32)
    shape = Shape(-(-side // 2), channels, actions)
    flat = initial(shape, 3, torch.Generator().manual_seed(0))
    networks, layers = Networks(shape, torch.device("cpu")), shape.views(flat)
    inputs = networks.forward(layers, torch.as_tensor(first_patches(images)).expand(3, -1, -1, -1))
    of_values = torch.as_tensor(rng.normal(size=(3, 6, actions)).astype(np.float32))
    gradient = torch.full_like(flat, float("nan"))
    networks.backward(layers, inputs, of_values, shape.views(gradient))
    for number in range(3):
        own = flat[number : number + 1].clone().requires_grad_()
        values = by_the_book(shape.views(own), images)
        torch.testing.assert_close(inputs[-1][number], values.detach())
        (values * of_values[number]).sum().backward()
        torch.testing.assert_close(gradient[number], own.grad[0], rtol=1e-4, atol=1e-5)


def test_networks_start_as_the_layers_of_pytorch_do():
    shape = Shape(4, 3, 4)
    flat = initial(shape, 200, torch.Generator().manual_seed(0))
    for (inputs, _), layer in zip(shape.layers, shape.views(flat), strict=True):
        bound = 1 / np.sqrt(inputs)
        for part in layer:
            assert part.abs().max() <= bound
            assert part.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert shape.parameters == sum(layer.numel() // 200 for pair in shape.views(flat) for layer in pair)
