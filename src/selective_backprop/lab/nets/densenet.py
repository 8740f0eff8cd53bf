"""Densely connected nets: every layer sees the features of all layers before it in its block."""

from collections.abc import Sequence

import torch
from torch import nn

from selective_backprop.lab.nets._layers import Classifier, Features, Images, activated, convolution


def densenet(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    width: int = 32,
    depth: Sequence[int] = (6, 12, 24, 16),
) -> nn.Module:
    """Make a DenseNet with bottlenecks and compression (BC), whose stem is one 3 x 3 convolution.

    Each layer adds `width` channels, called k, or growth, in the paper, and `depth` has the layers
    of each block. 6, 12, 24 and 16 of width 32 are DenseNet-121, with 7.0 million parameters for 10
    classes; three times 16 of width 12 are the DenseNet-BC of 100 layers, with 0.8.

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
        for _ in range(layers):
            features.append(_Layer(channels, width))
            channels += width
    return Classifier([*features, *activated(channels)], channels, classes)


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

    def forward(self, images: Images) -> Features:
        return torch.cat([images, self.inner(images)], dim=1)
