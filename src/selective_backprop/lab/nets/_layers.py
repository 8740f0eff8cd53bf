"""What the published nets are built from, and the weights that they begin with."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Classifier(nn.Module):
    """Features, averaged over the image, and a linear layer; it begins with He's weights.

    Args:
        features: from images to feature maps, in the order in which they are applied.
        channels: of the last feature maps.
        classes: logits to return.

    Source:
        He et al. 2015, arXiv:1502.01852, equation 14, which keeps the size of gradients from
        layer to layer; the published code of most of these nets begins so.
    """

    def __init__(self, features: Iterable[nn.Module], channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.head = nn.Linear(channels, classes)
        for part in self.features.modules():
            if isinstance(part, nn.Conv2d):
                _begin(part)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate logit"]:
        """Return logits, whatever the size of the images."""
        # Unlike adaptive pooling, the mean has a deterministic backward.
        return self.head(self.features(images).mean(dim=(2, 3)))


def convolution(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Make a convolution that keeps the image's size, but for its stride, and has no bias.

    Args:
        channels_in: of its input.
        channels: of its output.
        side: height and width of the kernel in pixels, odd.
        stride: pixels between places; 2 halves the image.
        groups: into how many parts the channels fall that do not see each other.
    """
    return nn.Conv2d(
        channels_in,
        channels,
        side,
        stride=stride,
        padding=side // 2,
        groups=groups,
        bias=False,  # a BatchNorm comes somewhere behind it
    )


def normed(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """Make a convolution and the BatchNorm behind it."""
    return (
        convolution(channels_in, channels, side, stride=stride, groups=groups),
        nn.BatchNorm2d(channels),
    )


def activated(channels: int) -> tuple[nn.BatchNorm2d, nn.ReLU]:
    """Make the BatchNorm and ReLU that stand before a convolution in pre-activation nets."""
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)


def _begin(layer: nn.Conv2d) -> None:
    # Of a channel that comes in, each weight counts once for every channel of its group.
    height, width = layer.kernel_size
    leaving = layer.out_channels // layer.groups * height * width
    with torch.no_grad():
        layer.weight.normal_(0.0, math.sqrt(2.0 / leaving))
