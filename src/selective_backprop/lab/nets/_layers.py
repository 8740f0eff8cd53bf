"""What the nets are built from, and the weights that the published ones begin with."""

import math
from collections.abc import Iterable

from jaxtyping import Float
from torch import Tensor, nn

Images = Float[Tensor, "candidate channel height width"]
Features = Float[Tensor, "candidate feature lower narrower"]
"""Feature maps, of other channels or another size than what they are made from."""
Logits = Float[Tensor, "candidate logit"]


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
                # A channel that comes in goes to the channels of its own group alone.
                height, width = part.kernel_size
                leaving = part.out_channels // part.groups * height * width
                nn.init.normal_(part.weight, 0.0, math.sqrt(2.0 / leaving))
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Images) -> Logits:
        """Return logits, whatever the size of the images."""
        # Unlike adaptive pooling, the mean has a deterministic backward.
        return self.head(self.features(images).mean(dim=(2, 3)))


def convolution(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Make a convolution of an odd `side` that keeps the image's size, but for its stride.

    It has no bias, since a BatchNorm comes somewhere behind it.
    """
    padding = side // 2
    return nn.Conv2d(channels_in, channels, side, stride, padding, groups=groups, bias=False)


def normed(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """Make a convolution and the BatchNorm behind it."""
    layer = convolution(channels_in, channels, side, stride=stride, groups=groups)
    return layer, nn.BatchNorm2d(channels)


def step(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    """Make a convolution, and the BatchNorm and ReLU behind it."""
    layers = normed(channels_in, channels, side, stride=stride, groups=groups)
    return (*layers, nn.ReLU(inplace=True))


def activated(channels: int) -> tuple[nn.BatchNorm2d, nn.ReLU]:
    """Make the BatchNorm and ReLU that stand before a convolution in pre-activation nets."""
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
