"""Wide residual nets: few blocks with many channels, and dropout inside each."""

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.nets._layers import Classifier, activated, convolution


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

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels. The net is the same for all.
        depth: layers, 6 n + 4: three groups of n blocks of two convolutions each.
        width: how many times wider than ResNet: 16, 32 and 64 channels times this.
        dropout: share of the features that is dropped between a block's two convolutions.

    Returns:
        A net from images to logits. For 10 classes, 28 layers of width 10 have 36.5 million
        parameters, 16 of width 8 have 11.0.

    Raises:
        ConfigurationError: if the depth is not 6 n + 4.

    Source:
        Zagoruyko and Komodakis 2016, arXiv:1605.07146; dropout 0.3 for CIFAR, 0.4 for SVHN.
    """
    blocks, rest = divmod(depth - 4, 6)
    if rest or blocks < 1:
        raise sb.ConfigurationError(
            f"depth={depth}: a wide ResNet has 6 n + 4 layers, such as 10, 16 or 28"
        )
    channels = 64 * width
    features = _features(channels_in, blocks, width, dropout)
    return Classifier([*features, *activated(channels)], channels, classes)


def _features(channels_in: int, blocks: int, width: int, dropout: float) -> Iterator[nn.Module]:
    channels = 16
    yield convolution(channels_in, channels)
    for group in range(3):
        wider = 16 * 2**group * width
        for block in range(blocks):
            stride = 2 if group and not block else 1
            yield _Block(channels, wider, stride, dropout)
            channels = wider


class _Block(nn.Module):
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

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate wider lower narrower"]:
        ready = self.before(images)
        # Where a shortcut changes the shape, it begins behind the shared activation.
        past = images if self.shortcut is None else self.shortcut(ready)
        return past + self.inner(ready)
