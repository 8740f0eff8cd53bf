"""Densely connected nets: every layer sees the features of all layers before it in its block."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from selective_backprop.lab.nets._layers import Classifier, activated, convolution


def densenet(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    width: int = 32,
    depth: Sequence[int] = (6, 12, 24, 16),
) -> nn.Module:
    """Make a DenseNet with bottlenecks and compression (BC), whose stem is one 3 x 3 convolution.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels, halved between blocks. The net is the same for all.
        width: channels that each layer adds, called k, or growth, in the paper.
        depth: layers of each block. 6, 12, 24 and 16 of width 32 are DenseNet-121, with 7.0
            million parameters for 10 classes; three times 16 of width 12 are the DenseNet-BC of
            100 layers, with 0.8.

    Returns:
        A net from images to logits.

    Source:
        Huang et al. 2017, arXiv:1608.06993. Jiang et al. 2019 trained the DenseNet-121 of Kuang's
        pytorch-cifar, which is this one.
    """
    channels = 2 * width
    features: list[nn.Module] = [convolution(channels_in, channels)]
    for number, layers in enumerate(depth):
        if number:
            features += [*activated(channels), convolution(channels, channels // 2, 1)]
            features.append(nn.AvgPool2d(2))
            channels //= 2
        features += _block(channels, layers, width)
        channels += layers * width
    return Classifier([*features, *activated(channels)], channels, classes)


def _block(channels: int, layers: int, width: int) -> Iterator[nn.Module]:
    return (_Layer(channels + number * width, width) for number in range(layers))


class _Layer(nn.Module):
    def __init__(self, channels_in: int, width: int) -> None:
        super().__init__()
        narrow = 4 * width
        self.inner = nn.Sequential(
            *activated(channels_in),
            convolution(channels_in, narrow, 1),
            *activated(narrow),
            convolution(narrow, width),
        )

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate more height width"]:
        return torch.cat([images, self.inner(images)], dim=1)
