"""Residual nets: ResNet-18 with a stem for small images, ResNet-20 for them, and wide ones."""

from collections.abc import Callable, Iterator, Sequence

from torch import nn

import selective_backprop as sb
from selective_backprop.lab.nets._layers import (
    Classifier,
    Features,
    Images,
    activated,
    convolution,
    normed,
    step,
)


def resnet18(channels_in: int, classes: int, image_size: int = 32, *, width: int = 64) -> nn.Module:
    """Make a ResNet-18 whose stem is one 3 x 3 convolution, so that small images stay large.

    The stem and the first group have `width` channels, the last group eight times as many. 64 has
    11.2 million parameters for 10 classes.

    Source:
        He et al. 2016, arXiv:1512.03385, table 1, without the pooling and the strides of its stem,
        as Kuang's pytorch-cifar has it, with which Jiang et al. 2019 trained.
    """
    groups = [(width, 2), (2 * width, 2), (4 * width, 2), (8 * width, 2)]
    return Classifier(_features(channels_in, groups, _projection), 8 * width, classes)


def resnet20(
    channels_in: int, classes: int, image_size: int = 32, *, depth: int = 20, width: int = 16
) -> nn.Module:
    """Make a residual net for small images, whose shortcuts have no parameters.

    Of its `depth` of 6 n + 2 layers, three groups have n blocks of two convolutions each. The first
    group has `width` channels, the last four times as many. 16 has 0.27 million parameters at a
    depth of 20.

    Source:
        He et al. 2016, arXiv:1512.03385, section 4.2; shortcuts of their option A.
    """
    blocks = _blocks(depth, 2)
    groups = [(width, blocks), (2 * width, blocks), (4 * width, blocks)]
    return Classifier(_features(channels_in, groups, _Padding), 4 * width, classes)


def wide_resnet(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    depth: int = 28,
    width: int = 10,
    dropout: float = 0.3,
) -> nn.Module:
    """Make a wide residual net.

    Of its `depth` of 6 n + 4 layers, three groups have n blocks of two convolutions each, of 16, 32
    and 64 channels times `width`. Between a block's convolutions, a share `dropout` of the features
    is dropped. For 10 classes, 28 layers of width 10 have 36.5 million parameters, 16 of width 8
    have 11.0.

    Source:
        Zagoruyko and Komodakis 2016, arXiv:1605.07146; dropout 0.3 for CIFAR, 0.4 for SVHN.
    """
    features: list[nn.Module] = [convolution(channels_in, 16)]
    channels = 16
    for group, wider in enumerate((16 * width, 32 * width, 64 * width)):
        for block in range(_blocks(depth, 4)):
            stride = 2 if group and not block else 1
            features.append(_WideBlock(channels, wider, stride, dropout))
            channels = wider
    return Classifier([*features, *activated(channels)], channels, classes)


def _blocks(depth: int, others: int) -> int:
    """Return the blocks of two layers in each of three groups, of a net with so many others."""
    blocks, rest = divmod(depth - others, 6)
    if rest or blocks < 1:
        raise sb.ConfigurationError(
            f"depth={depth}: such a net has 6 n + {others} layers, such as {6 + others} or "
            f"{18 + others}"
        )
    return blocks


def _features(
    channels_in: int,
    groups: Sequence[tuple[int, int]],
    shortcut: Callable[[int, int], nn.Module],
) -> Iterator[nn.Module]:
    channels = groups[0][0]
    yield from step(channels_in, channels)
    for wider, blocks in groups:
        for _ in range(blocks):
            same = channels == wider
            yield _Block(channels, wider, None if same else shortcut(channels, wider))
            channels = wider


class _Block(nn.Module):
    def __init__(self, channels_in: int, channels: int, shortcut: nn.Module | None) -> None:
        super().__init__()
        stride = 1 if shortcut is None else 2
        self.inner = nn.Sequential(
            *step(channels_in, channels, stride=stride),
            *normed(channels, channels),
        )
        self.shortcut = shortcut

    def forward(self, images: Images) -> Features:
        past = images if self.shortcut is None else self.shortcut(images)
        return (past + self.inner(images)).relu_()


def _projection(channels_in: int, channels: int) -> nn.Module:
    return nn.Sequential(*normed(channels_in, channels, 1, stride=2))


class _Padding(nn.Module):
    """Every other pixel, and channels of zeros for those that are new."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.new = channels - channels_in

    def forward(self, images: Images) -> Features:
        before = self.new // 2
        return nn.functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, before, self.new - before))


class _WideBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(*activated(channels_in))
        self.inner = nn.Sequential(
            convolution(channels_in, channels, stride=stride),
            *activated(channels),
            *([nn.Dropout(dropout)] if dropout else []),
            convolution(channels, channels),
        )
        same = channels_in == channels and stride == 1
        self.shortcut = None if same else convolution(channels_in, channels, 1, stride=stride)

    def forward(self, images: Images) -> Features:
        ready = self.before(images)
        # Where a shortcut changes the shape, it begins behind the shared activation.
        past = images if self.shortcut is None else self.shortcut(ready)
        return past + self.inner(ready)
