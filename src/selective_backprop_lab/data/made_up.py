"""Images that are made up, of a shape such as `3x32x32/10`."""

import re
from pathlib import Path

import torch

import selective_backprop as sb
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.splits import Splits

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?")


def is_shape(data: str) -> bool:
    """Return whether `--data` describes images instead of naming a data set."""
    return _SHAPE.fullmatch(data) is not None


def find_images(data: str, root: Path | None, *, made: int, limit: int | None = None) -> LabData:
    """Load images by name, or make images of a shape: `limit` of them, or else `made`."""
    if is_shape(data):
        return made_up(data, made if limit is None else limit)
    return datasets.load(data, root=root, limit=limit)


def made_up(shape: str, count: int) -> LabData:
    """Make images of a shape such as `3x32x32/10`; some are easier to classify than others."""
    found = _SHAPE.fullmatch(shape)
    channels, height, width = (int(part) for part in found.groups()[:3]) if found else (0, 0, 0)
    classes = int(found[4] or 10) if found else 0
    if height != width or not min(channels, height, classes):
        raise sb.ConfigurationError(
            f"--data {shape}: write channels, height and width of square images, and the number "
            "of classes if it is not 10, such as 3x32x32/100"
        )
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centres = torch.rand(classes, channels, height, width, generator=generator)
    noise = torch.rand(count, channels, height, width, generator=generator)
    clear = torch.rand(count, 1, 1, 1, generator=generator)  # 0 is pure noise, 1 is no noise
    images = (255 * torch.lerp(noise, centres[labels], clear)).to(torch.uint8)
    names = tuple(str(number) for number in range(classes))
    return LabData.of(shape, Splits(images, labels, images[:1], labels[:1], names))
