"""Images of a data set, side by side, each with the name of its class."""

import torch
from jaxtyping import UInt8
from matplotlib.axes import Axes
from torch import Tensor

from reproductions.jiang2019.items import Filled, Found
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.runner.run_store import load_data

_GAP = 0.1  # of an image's side, between two
_NAME = 0.36  # the same, for the name under it


def data_of(found: Found, filled: Filled) -> ImageData:
    """Return the data set that a panel was trained on."""
    setting = filled.panel.setting
    return load_data(setting.recipe.data, found.root, setting.limit)


def draw_images(panel: Axes, data: ImageData, indices: list[int], title: str) -> None:
    """Draw training images in two rows.

    Args:
        panel: where to.
        data: whose.
        indices: of the images, in reading order.
        title: above them.
    """
    side, columns = data.image_size, (len(indices) + 1) // 2
    across, down = round((1 + _GAP) * side), round((1 + _GAP + _NAME) * side)
    sheet = torch.full((2 * down, columns * across, 3), 255, dtype=torch.uint8)
    for place, index in enumerate(indices):
        top, left = place // columns * down, place % columns * across
        sheet[top : top + side, left : left + side] = _coloured(data.train_images[index])
        panel.text(
            left + side / 2,
            top + (1.05 + _NAME / 2) * side,
            data.class_names[int(data.train_labels[index])].replace("_", " "),
            ha="center",
            va="center",
            fontsize=6.5,
        )
    panel.imshow(sheet.numpy(), interpolation="nearest")
    panel.set_axis_off()
    panel.set_title(title, loc="left", fontsize=9)


def _coloured(image: UInt8[Tensor, "channel height width"]) -> Tensor:
    return image.expand(3, -1, -1).permute(1, 2, 0)
