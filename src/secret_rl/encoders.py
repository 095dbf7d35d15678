"""Observations and actions as vectors, by the kind of their space: for credit models and learned potentials.

Spaces come as the JSON that trajectories are stored with, so that a model file describes itself and this module needs
PyTorch and NumPy alone. A nest of observations is an array, or dicts and tuples of them.
"""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Spec = Mapping[str, Any]
_SMALLEST_IMAGE = 3
_LARGE_IMAGE = 12  # sides from here on are halved by each convolution
_MOST_LEVELS = 16  # whole numbers up to this in a picture are kinds of things, not shades


def observation_encoder(
    spec: Spec, units: int, filters: tuple[int, ...], *, clip: float = math.inf, smallest: int = _SMALLEST_IMAGE
) -> nn.Module:
    """A module from rows of a space to ``(rows, units)``.

    Args:
        spec: The space, as JSON values.
        units: Of dense layers and embeddings.
        filters: Of each convolution.
        clip: Standard deviations beyond which numbers are cut off.
        smallest: Shorter side from which on pictures are convolved; smaller ones are read as vectors.
    """
    kind = spec["type"]
    if kind in ("Dict", "Tuple"):
        options: dict[str, Any] = {"units": units, "filters": filters, "clip": clip, "smallest": smallest}
        return JoinedEncoder({key: observation_encoder(part, **options) for key, part in _parts(spec)}, units)
    if kind == "Discrete":
        return nn.Sequential(Ordinal(spec["start"]), nn.Embedding(spec["n"], units), nn.ReLU())
    if _is_image(spec, smallest):
        return ImageEncoder(spec, units, filters)
    return nn.Sequential(Flat(spec, clip), Dense(flat_size(spec), units), nn.ReLU())


def _parts(spec: Spec) -> list[tuple[Any, Spec]]:
    """The parts of a ``Dict`` or ``Tuple``, by key or by number; none of other spaces."""
    if spec["type"] == "Dict":
        return [(key, part) for key, part in spec["spaces"]]
    return list(enumerate(spec["spaces"])) if spec["type"] == "Tuple" else []


def _is_image(spec: Spec, smallest: int = _SMALLEST_IMAGE) -> bool:
    return spec["type"] == "Box" and len(spec["shape"]) in (2, 3) and min(spec["shape"][:2]) >= smallest


def with_levels(spec: dict[str, Any], rows: Any) -> dict[str, Any]:
    """A space with the number of ``levels`` of its pictures, where some rows of data hold few whole numbers only.

    Grid worlds number kinds of things: 5 for a key, 6 for a ball. As shades of grey they would look the same.
    """
    kind = spec["type"]
    if kind == "Dict":
        return {**spec, "spaces": [[key, with_levels(part, rows[key])] for key, part in spec["spaces"]]}
    if kind == "Tuple":
        return {**spec, "spaces": [with_levels(part, row) for part, row in zip(spec["spaces"], rows, strict=True)]}
    if not _is_image(spec) or rows.dtype.kind not in "iu" or rows.min() < 0 or not 2 <= rows.max() < _MOST_LEVELS:
        return spec
    return {**spec, "levels": int(rows.max()) + 1}


def flat_size(spec: Spec) -> int:
    """Numbers in the flat form of a space: one-hot for choices, raw for boxes."""
    kind = spec["type"]
    if kind in ("Dict", "Tuple"):
        return sum(flat_size(part) for _, part in _parts(spec))
    if kind == "Discrete":
        return int(spec["n"])
    if kind == "MultiDiscrete":
        return int(sum(_flat_list(spec["nvec"])))
    if kind == "MultiBinary":
        return math.prod(spec["n"]) if isinstance(spec["n"], list) else int(spec["n"])
    return math.prod(spec["shape"])


class Dense(nn.Linear):
    """A linear layer that takes its input in any floating-point type."""

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, numbers) -> (rows, units)"""
        return super().forward(rows.to(self.weight.dtype))


class Flat(nn.Module):
    """Rows of any space as one flat vector each: one-hot for choices, standardised numbers for boxes."""

    mean: Tensor
    scale: Tensor
    start: Tensor
    base: Tensor

    def __init__(self, spec: Spec, clip: float = math.inf) -> None:
        super().__init__()
        self.spec, self.clip = spec, clip
        kind = spec["type"]
        if kind in ("Dict", "Tuple"):
            self.parts = nn.ModuleList(Flat(part, clip) for _, part in _parts(spec))
        elif kind == "Box":
            self.register_buffer("mean", torch.zeros(math.prod(spec["shape"])))
            self.register_buffer("scale", torch.ones(math.prod(spec["shape"])))
        elif kind == "MultiDiscrete":
            starts, sizes = _flat_list(spec["start"]), _flat_list(spec["nvec"])
            self.register_buffer("start", torch.tensor(starts))
            self.register_buffer("base", torch.tensor([0, *accumulate(sizes)][:-1]))

    def forward(self, rows: Any) -> Tensor:
        """(rows, ...) -> (rows, flat_size)"""
        kind = self.spec["type"]
        if kind in ("Dict", "Tuple"):
            found = [part(rows[key]) for (key, _), part in zip(_parts(self.spec), self.parts, strict=True)]
            return torch.cat(found, 1)
        if kind == "Discrete":
            return nn.functional.one_hot(rows.long() - self.spec["start"], self.spec["n"]).float()
        flat: Tensor = rows.reshape(len(rows), -1)
        if kind == "MultiDiscrete":
            columns = flat.long() - self.start + self.base
            return torch.zeros(len(rows), flat_size(self.spec), device=rows.device).scatter_(1, columns, 1.0)
        if kind == "Box":
            standardised = (flat.to(self.mean.dtype) - self.mean) / self.scale
            return standardised if self.clip == math.inf else standardised.clamp(-self.clip, self.clip)
        return flat.float()


class Ordinal(nn.Module):
    """Elements of a ``Discrete`` space, counted from 0."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start = start

    def forward(self, rows: Tensor) -> Tensor:
        """(rows,) -> (rows,)"""
        return rows.long() - self.start


class ImageEncoder(nn.Module):
    """3x3 convolutions and a dense layer. A convolution that covers the whole picture is one matrix product.

    Each kind of thing (``levels``) has a channel of its own.
    """

    def __init__(self, spec: Spec, units: int, filters: tuple[int, ...]) -> None:
        super().__init__()
        self.height, self.width, *channels_last = spec["shape"]
        high = spec["high"]
        self.scale = 1 / high if isinstance(high, int | float) and high > 1 and spec["dtype"] == "uint8" else 1.0
        self.levels = int(spec.get("levels", 0))
        self.channels = math.prod(channels_last) * (self.levels or 1)
        self.is_product = (self.height, self.width) == (3, 3) and len(filters) == 1
        if self.is_product:
            self.convolutions: nn.Module = nn.Linear(9 * self.channels, filters[0])
            features = filters[0]
        else:
            layers: list[nn.Module] = []
            channels, height, width = self.channels, self.height, self.width
            for count in filters:
                stride = 2 if min(height, width) >= _LARGE_IMAGE else 1
                padding = 1 if stride == 2 or min(height, width) < 3 else 0
                layers += [nn.Conv2d(channels, count, 3, stride, padding), nn.ReLU()]
                height, width = ((side + 2 * padding - 3) // stride + 1 for side in (height, width))
                channels = count
            self.convolutions = nn.Sequential(*layers)
            features = channels * height * width
        self.dense = nn.Linear(features, units)

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, height, width[, channels]) -> (rows, units)"""
        dtype = self.dense.weight.dtype
        if self.levels:
            kinds = rows.reshape(len(rows), self.height, self.width, -1, 1).clamp(0, self.levels - 1)
            pictures = (kinds == torch.arange(self.levels, device=rows.device, dtype=rows.dtype)).to(dtype)
        else:
            pictures = rows.to(dtype)
            if self.scale != 1.0:
                pictures = pictures * self.scale if pictures is rows else pictures.mul_(self.scale)
        if self.is_product:
            features = torch.relu(self.convolutions(pictures.reshape(len(rows), -1)))
        else:
            planes = pictures.reshape(len(rows), self.height, self.width, self.channels).permute(0, 3, 1, 2)
            features = self.convolutions(planes).flatten(1)
        return torch.relu(self.dense(features))


class JoinedEncoder(nn.Module):
    """Each part encoded by its kind, then joined through a dense layer."""

    def __init__(self, parts: Mapping[Any, nn.Module], units: int) -> None:
        super().__init__()
        self.keys, self.encoders = list(parts), nn.ModuleList(parts.values())
        self.dense = nn.Linear(units * len(parts), units)

    def forward(self, rows: Any) -> Tensor:
        """Nest of (rows, ...) -> (rows, units)"""
        encoded = [encoder(rows[key]) for key, encoder in zip(self.keys, self.encoders, strict=True)]
        return torch.relu(self.dense(torch.cat(encoded, 1)))


@torch.no_grad()
def standardise(module: nn.Module, rows: Any) -> None:
    """Set the mean and scale of every number that an encoder reads from data; call before training."""
    if isinstance(module, JoinedEncoder):
        for key, encoder in zip(module.keys, module.encoders, strict=True):
            standardise(encoder, rows[key])
    elif isinstance(module, nn.Sequential):
        standardise(module[0], rows)
    elif isinstance(module, Flat):
        for (key, _), part in zip(_parts(module.spec), getattr(module, "parts", ()), strict=True):
            standardise(part, rows[key])
        if module.spec["type"] == "Box":
            flat = rows.reshape(len(rows), -1).double()
            module.mean.copy_(flat.mean(0))
            deviation = flat.std(0, correction=0)
            module.scale.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))


def as_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor of a dtype that PyTorch computes with."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(np.ascontiguousarray(array))


def _flat_list(value: Any) -> list[int]:
    if isinstance(value, list):
        return [number for part in value for number in _flat_list(part)]
    return [value]


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto": the fastest there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    return torch.device(name)
