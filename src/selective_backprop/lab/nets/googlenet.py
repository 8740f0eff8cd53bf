"""GoogLeNet: modules of four branches that look at an image at several scales."""

from collections.abc import Iterator

import torch
from torch import nn

from selective_backprop.lab.nets._layers import Classifier, Features, Images, step

# Channels of a module's branches: 1 x 1; 3 x 3 and what it is reduced to before; 5 x 5 and the
# same; behind the pool. None halves the image.
_MODULES = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(
    channels_in: int, classes: int, image_size: int = 32, *, width: float = 1.0
) -> nn.Module:
    """Make a GoogLeNet with BatchNorm for small images.

    Its stem is one 3 x 3 convolution, it halves images twice, and two 3 x 3 convolutions stand for
    one of 5 x 5. There are no auxiliary classifiers.

    `width` multiplies all channels; 1 has 6.2 million parameters for 10 classes.

    Source:
        Szegedy et al. 2015, arXiv:1409.4842, table 1; BatchNorm and the two convolutions as in
        Ioffe and Szegedy 2015, arXiv:1502.03167; stem and strides of Kuang's pytorch-cifar, less
        the biases of its convolutions, which BatchNorm takes away again.
    """
    last = sum(round(part * width) for part in (384, 384, 128, 128))
    return Classifier(_features(channels_in, width), last, classes)


def _features(channels_in: int, width: float) -> Iterator[nn.Module]:
    channels = round(192 * width)
    yield from step(channels_in, channels, 3)
    for module in _MODULES:
        if module is None:
            yield nn.MaxPool2d(3, stride=2, padding=1)
            continue
        branches = _Branches(channels, [round(part * width) for part in module])
        yield branches
        channels = branches.channels


class _Branches(nn.Module):
    def __init__(self, channels_in: int, parts: list[int]) -> None:
        super().__init__()
        one, to_three, three, to_five, five, pooled = parts
        self.branches = nn.ModuleList(
            [
                nn.Sequential(*step(channels_in, one, 1)),
                nn.Sequential(*step(channels_in, to_three, 1), *step(to_three, three, 3)),
                nn.Sequential(
                    *step(channels_in, to_five, 1), *step(to_five, five, 3), *step(five, five, 3)
                ),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), *step(channels_in, pooled, 1)),
            ]
        )
        self.channels = one + three + five + pooled

    def forward(self, images: Images) -> Features:
        return torch.cat([branch(images) for branch in self.branches], dim=1)
