"""Residual nets: ResNet-18 with a stem for small images, and ResNet-20, which is made for them."""

from collections.abc import Iterator, Sequence

from jaxtyping import Float
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.nets._layers import Classifier, normed


def resnet18(channels_in: int, classes: int, image_size: int = 32, *, width: int = 64) -> nn.Module:
    """Make a ResNet-18 whose stem is one 3 x 3 convolution, so that small images stay large.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels. The net is the same for all.
        width: channels of the stem and the first group; the last has eight times as many. 64 has
            11.2 million parameters for 10 classes.

    Returns:
        A net from images to logits.

    Source:
        He et al. 2016, arXiv:1512.03385, table 1, without the pooling and the strides of its stem,
        as Kuang's pytorch-cifar has it, with which Jiang et al. 2019 trained.
    """
    groups = [(width, 2), (2 * width, 2), (4 * width, 2), (8 * width, 2)]
    return Classifier(_features(channels_in, groups, _Projection), 8 * width, classes)


def resnet20(
    channels_in: int, classes: int, image_size: int = 32, *, depth: int = 20, width: int = 16
) -> nn.Module:
    """Make a residual net for small images, whose shortcuts have no parameters.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels. The net is the same for all.
        depth: layers, 6 n + 2: three groups of n blocks of two convolutions each.
        width: channels of the first group; the last has four times as many. 16 has 0.27 million
            parameters at a depth of 20.

    Returns:
        A net from images to logits.

    Raises:
        ConfigurationError: if the depth is not 6 n + 2.

    Source:
        He et al. 2016, arXiv:1512.03385, section 4.2; shortcuts of their option A.
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise sb.ConfigurationError(
            f"depth={depth}: a ResNet for small images has 6 n + 2 layers, such as 8, 20 or 56"
        )
    groups = [(width, blocks), (2 * width, blocks), (4 * width, blocks)]
    return Classifier(_features(channels_in, groups, _Padding), 4 * width, classes)


def _features(
    channels_in: int,
    groups: Sequence[tuple[int, int]],
    shortcut: "type[_Projection] | type[_Padding]",
) -> Iterator[nn.Module]:
    channels = groups[0][0]
    yield from (*normed(channels_in, channels), nn.ReLU(inplace=True))
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
            *normed(channels_in, channels, stride=stride),
            nn.ReLU(inplace=True),
            *normed(channels, channels),
        )
        self.shortcut = shortcut

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate wider lower narrower"]:
        past = images if self.shortcut is None else self.shortcut(images)
        return (past + self.inner(images)).relu_()


class _Projection(nn.Sequential):
    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__(*normed(channels_in, channels, 1, stride=2))


class _Padding(nn.Module):
    """Every other pixel, and channels of zeros for those that are new."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.new = channels - channels_in

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate wider lower narrower"]:
        before = self.new // 2
        return nn.functional.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, before, self.new - before))
