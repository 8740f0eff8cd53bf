"""MobileNetV2: blocks that widen, look around in each channel by itself, and narrow again."""

from collections.abc import Iterator

from torch import nn

from selective_backprop.lab.nets._layers import Classifier, Features, Images, normed, step

# Factor of expansion, channels, blocks and stride of each group; a first stride of 2 at 24 channels
# is for large images.
_GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    channels_in: int, classes: int, image_size: int = 32, *, width: float = 1.0
) -> nn.Module:
    """Make a MobileNetV2 for small images.

    It halves them three times instead of five. A block that keeps the image's size but not its
    channels has a projection for a shortcut, where the paper has none.

    `width` multiplies the channels of every group; 1 has 2.3 million parameters for 10 classes.

    Source:
        Sandler et al. 2018, arXiv:1801.04381, table 2, with the strides and the projections of
        Kuang's pytorch-cifar, with which Jiang et al. 2019 trained. The projections, and an
        expansion of the first group by 1, have 60,240 parameters.
    """
    last = round(1280 * width)
    return Classifier(_features(channels_in, width, last), last, classes)


def _features(channels_in: int, width: float, last: int) -> Iterator[nn.Module]:
    channels = round(32 * width)
    yield from step(channels_in, channels)
    for expansion, full, blocks, first in _GROUPS:
        wider = round(full * width)
        for block in range(blocks):
            yield _Block(channels, wider, 1 if block else first, expansion)
            channels = wider
    yield from step(channels, last, 1)


class _Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * channels_in
        self.inner = nn.Sequential(
            *step(channels_in, wide, 1),
            *step(wide, wide, stride=stride, groups=wide),
            *normed(wide, channels, 1),
        )
        self.smaller = stride > 1
        changes = channels_in != channels and not self.smaller
        self.shortcut = nn.Sequential(*(normed(channels_in, channels, 1) if changes else ()))

    def forward(self, images: Images) -> Features:
        if self.smaller:
            return self.inner(images)
        return self.shortcut(images) + self.inner(images)
