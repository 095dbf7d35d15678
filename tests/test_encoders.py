"""Encoders of spaces: flat rows, pictures, and kinds of things."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import conv2d, one_hot

from secret_rl.encoders import (
    Flat,
    ImageEncoder,
    as_tensor,
    flat_size,
    observation_encoder,
    standardise,
    with_levels,
)  # fmt: skip
from secret_rl.testing.strategies import any_space
from secret_rl.trajectories.nested import map_arrays, stack
from secret_rl.trajectories.spaces import to_json


def convolved(encoder, rows):
    """By PyTorch, with a channel for each kind of thing where there are kinds."""
    pictures = rows.reshape(*rows.shape[:3], -1)
    pictures = one_hot(pictures.long(), encoder.levels).flatten(3) if encoder.levels else pictures / 255
    planes = pictures.permute(0, 3, 1, 2).float()
    if not encoder.is_product:
        return encoder.convolutions(planes).flatten(1)
    kernel = encoder.convolutions.weight.reshape(-1, 3, 3, encoder.channels).permute(0, 3, 1, 2)
    return conv2d(planes, kernel, encoder.convolutions.bias).relu().flatten(1)


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 2), (5, 4, 2), (3, 20, 3), (11, 9, 3), (17, 20), (84, 84, 4)])
@pytest.mark.parametrize("filters", [(4,), (4, 6), (4, 6, 8)])
@pytest.mark.parametrize("levels", [0, 4])
def test_products_and_channels_of_kinds_are_the_convolutions(shape, filters, levels):
    """A convolution over the whole picture is computed as one matrix product."""
    torch.manual_seed(0)
    encoder = ImageEncoder(to_json(spaces.Box(0, 255, shape, np.uint8)) | {"levels": levels}, 8, filters)
    rows = torch.randint(0, levels or 256, (5, *shape), dtype=torch.uint8)
    features = convolved(encoder, rows)
    assert encoder(rows).shape == (5, 8)
    torch.testing.assert_close(encoder(rows), encoder.dense(features).relu(), rtol=1e-5, atol=1e-6)
    if levels:
        unseen = torch.where(rows == 3, 200, rows)
        assert torch.equal(encoder(unseen), encoder(rows)), "what was never seen is read as the last kind"


@pytest.mark.parametrize(
    ("values", "dtype", "levels"),
    [
        ((0, 2), np.uint8, 3),
        ((0, 15), np.int64, 16),
        ((0, 16), np.uint8, None),  # shades
        ((0, 1), np.uint8, None),  # bits are numbers as they are
        ((-1, 3), np.int64, None),
        ((0, 3), np.float32, None),
    ],
)
def test_few_whole_numbers_are_kinds_and_all_others_shades(values, dtype, levels):
    rows = np.zeros((4, 5, 5, 2), dtype)
    rows[0, 0, 0], rows[1, 2, 3] = values
    spec = to_json(spaces.Box(-99, 99, (5, 5, 2), dtype) if dtype != np.uint8 else spaces.Box(0, 255, (5, 5, 2), dtype))
    assert with_levels(spec, rows).get("levels") == levels
    nested = {
        "type": "Dict",
        "spaces": [["a", {"type": "Tuple", "spaces": [spec]}], ["b", to_json(spaces.Discrete(3))]],
    }
    found = with_levels(nested, {"a": (rows,), "b": np.zeros(4, np.int64)})
    assert found["spaces"][0][1]["spaces"][0].get("levels") == levels
    assert found["spaces"][1] == ["b", to_json(spaces.Discrete(3))]
    vector = to_json(spaces.Box(0, 9, (5,), np.int64))
    assert with_levels(vector, np.full((4, 5), 3)) == vector, "only pictures hold kinds of things"


@given(any_space(), st.integers(0, 2**32 - 1))
def test_flat_rows_are_those_of_gymnasium(space, seed):
    space.seed(seed)
    elements = [space.sample() for _ in range(4)]
    expected = np.stack([spaces.flatten(space, element) for element in elements]).astype(np.float32)
    flat = Flat(to_json(space))(map_arrays(as_tensor, stack(space, elements)))
    assert flat.shape == (4, flat_size(to_json(space)))
    np.testing.assert_array_equal(flat.numpy(), expected)


def test_numbers_are_standardised_and_constants_become_zero():
    space = spaces.Dict(a=spaces.Box(-1e6, 1e6, (2,), np.float64), b=spaces.Discrete(3))
    numbers = np.stack([np.random.default_rng(0).normal(1000.0, 50.0, 500), np.full(500, 7.0)], 1)
    rows = {"a": torch.from_numpy(numbers), "b": torch.zeros(500, dtype=torch.int64)}
    flat = Flat(to_json(space))
    standardise(flat, rows)
    scaled = flat(rows)[:, :2]
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.tensor([1.0, 0.0]), atol=1e-4, rtol=0)
    encoder = observation_encoder(to_json(space), 8, (4,))
    standardise(encoder, rows)
    assert encoder.encoders[0][0].mean.tolist() == pytest.approx(numbers.mean(0))


def test_a_network_of_64_bits_computes_in_64_bits():
    picture = spaces.Box(0, 255, (20, 24, 3), np.uint8)
    joined = spaces.Dict(a=picture, b=spaces.MultiBinary(2), c=spaces.MultiDiscrete([2, 3]), d=spaces.Box(-1, 1, (4,)))
    rows = map_arrays(as_tensor, stack(joined, [joined.sample() for _ in range(5)]))
    encoder = observation_encoder(to_json(joined), 8, (4,))
    one, other = encoder(rows), encoder.double()(rows)
    assert (one.dtype, other.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_pictures_are_halved_padded_or_read_as_vectors_and_far_numbers_cut_off():
    layers = observation_encoder(to_json(spaces.Box(0, 255, (13, 12), np.uint8)), 8, (4, 4, 4, 4)).convolutions[::2]
    assert [(layer.stride[0], layer.padding[0]) for layer in layers] == [(2, 1), (1, 0), (1, 0), (1, 1)]
    spec = to_json(spaces.Box(0, 1, (5, 5, 3), np.uint8))
    assert isinstance(observation_encoder(spec, 8, (4,)), ImageEncoder)
    assert isinstance(observation_encoder(spec, 8, (4,), smallest=16)[0], Flat)
    spec = to_json(spaces.Box(-np.inf, np.inf, (2,)))
    near, far = torch.tensor([[10.0, -10.0]]), torch.tensor([[1e30, -1e30]])
    encoder = observation_encoder(spec, 8, (4,), clip=10.0)
    assert torch.equal(encoder(near), encoder(far))
    assert not torch.equal(*(observation_encoder(spec, 8, (4,))(rows) for rows in (near, far)))
