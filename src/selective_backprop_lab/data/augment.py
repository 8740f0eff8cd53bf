"""Shift, flip and cut out whole batches of images, the same way for every strategy compared."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.random_bits import below, key_of, random_bits
from selective_backprop_lab.shapes import Bool, Float, Int64

Images = Float[Tensor, "example channel height width"]
Places = Int64[Tensor, "example side"]


class Border(StrEnum):
    """What fills the edge of a shifted image: its mirror image, or black."""

    MIRROR = "mirror"
    BLACK = "black"


@dataclass(frozen=True)
class Augmentation:
    """A random shift, flip and cutout of each training image, by seed, epoch and index alone.

    Source:
        Cutout: DeVries and Taylor 2017, arXiv:1708.04552.
    """

    shift: int = 0  # most pixels in each direction; elsewhere called a padded random crop
    flip: bool = False  # whether half of the images are mirrored left to right
    # Side in pixels of a square of zeros, the mean; its centre may be anywhere in the image.
    cutout: int = 0
    border: Border = Border.MIRROR

    def __post_init__(self) -> None:
        for name in ("shift", "cutout"):
            if (pixels := getattr(self, name)) < 0:
                raise sb.ConfigurationError(
                    f"{name} is {pixels} pixels, but must be at least 0 (0 switches it off)"
                )

    def __call__(
        self,
        images: Images,
        indices: Int64[Tensor, " example"],
        *,
        seed: int,
        epoch: int,
        black: Float[Tensor, "channel 1 1"] | None = None,
    ) -> Images:
        """Return normalised images, augmented; `black` is the value of a black pixel, or 0."""
        # One row each for: down, right, mirrored, centre's row, centre's column. All are drawn,
        # used or not, so that switching one on does not change the others.
        bits = random_bits(key_of(seed, epoch), indices, draws=5)
        moves = self.shift > 0 or self.flip
        if moves:
            images = self._moved(images, bits, black)
        if self.cutout:
            # In place, because masked_fill would lose the memory format channels_last.
            images = images if moves else images.clone()
            images.masked_fill_(self._square(images, bits), 0.0)
        return images

    def _moved(
        self, images: Images, bits: Tensor, black: Float[Tensor, "channel 1 1"] | None
    ) -> Images:
        count, channels, height, width = images.shape
        if self.shift >= min(height, width):
            raise sb.ConfigurationError(
                f"shift is {self.shift} pixels, but the images are {height} x {width}: it must be "
                f"less than their side"
            )
        choices = 2 * self.shift + 1
        rows = _places(height, below(bits[0], choices) - self.shift)
        columns = _places(width, below(bits[1], choices) - self.shift)
        if self.flip:
            columns = torch.where(below(bits[2], 2).bool()[:, None], columns.flip(1), columns)
        # Copying all channels of a pixel at once is six times faster than indexing three axes.
        pixels = (_mirrored(rows, height) * width)[:, :, None] + _mirrored(columns, width)[:, None]
        pixels += (torch.arange(count, device=images.device) * (height * width))[:, None, None]
        flat = images.permute(0, 2, 3, 1).reshape(-1, channels)
        moved = flat.index_select(0, pixels.view(-1)).view(count, height, width, channels)
        if self.shift and self.border is Border.BLACK:
            there = _inside(rows, height)[:, :, None] & _inside(columns, width)[:, None]
            fill = moved.new_zeros(channels) if black is None else black.view(channels)
            moved = torch.where(there[..., None], moved, fill)
        # With one channel, both formats are the same; convolutions are fastest in channels_last.
        last = images.is_contiguous(memory_format=torch.channels_last)
        form = torch.channels_last if last else torch.contiguous_format
        return moved.permute(0, 3, 1, 2).contiguous(memory_format=form)

    def _square(self, images: Images, bits: Tensor) -> Bool[Tensor, "example 1 height width"]:
        height, width = images.shape[2:]
        top = below(bits[3], height) - self.cutout // 2
        left = below(bits[4], width) - self.cutout // 2
        rows = _inside(_places(height, -top), self.cutout)
        columns = _inside(_places(width, -left), self.cutout)
        return (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)


def _places(side: int, offsets: Int64[Tensor, " example"]) -> Places:
    return torch.arange(side, device=offsets.device) + offsets[:, None]


def _inside(places: Places, length: int) -> Bool[Tensor, "example side"]:
    return (places >= 0) & (places < length)


def _mirrored(places: Places, length: int) -> Places:
    return (length - 1) - (length - 1 - places.abs()).abs()
