"""Published nets for small images: ResNets, DenseNets, GoogLeNet and MobileNetV2."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from selective_backprop_lab.shapes import Float

Images = Float[Tensor, "candidate channel height width"]
Features = Float[Tensor, "candidate feature lower narrower"]
"""Feature maps, whose channels and size differ from those of the images."""
Logits = Float[Tensor, "candidate logit"]


class Classifier(nn.Module):
    """Features with so many channels at last, averaged over the image, and a linear layer.

    With `he`, it begins with He's weights and biases of 0, else with torch's defaults.

    Source:
        He et al. 2015, arXiv:1502.01852, equation 14.
    """

    def __init__(
        self, features: Iterable[nn.Module], channels: int, classes: int, *, he: bool = True
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.head = nn.Linear(channels, classes)
        if not he:
            return
        for part in self.features.modules():
            if isinstance(part, nn.Conv2d):
                # An input channel feeds only the output channels of its own group.
                height, width = part.kernel_size
                leaving = part.out_channels // part.groups * height * width
                nn.init.normal_(part.weight, 0.0, math.sqrt(2.0 / leaving))
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Images) -> Logits:
        """Return logits for images of any size."""
        # Unlike adaptive pooling, the mean has a deterministic backward pass.
        return self.head(self.features(images).mean(dim=(2, 3)))


def convolution(
    channels_in: int, channels: int, side: int = 3, *, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Make a convolution of an odd `side` that keeps the image's size, divided by its stride."""
    padding = side // 2
    return nn.Conv2d(channels_in, channels, side, stride, padding, groups=groups, bias=False)


def normed(*sizes: int, **more: int) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """Make a convolution followed by a BatchNorm."""
    layer = convolution(*sizes, **more)
    return layer, nn.BatchNorm2d(layer.out_channels)


def step(*sizes: int, **more: int) -> tuple[nn.Module, ...]:
    """Make a convolution followed by a BatchNorm and a ReLU."""
    return (*normed(*sizes, **more), nn.ReLU(inplace=True))


def activated(channels: int) -> tuple[nn.BatchNorm2d, nn.ReLU]:
    """Make the BatchNorm and ReLU that come before a convolution in pre-activation nets."""
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True)


def resnet18(channels_in: int, classes: int, image_size: int = 32, *, width: int = 64) -> nn.Module:
    """Make a ResNet-18 whose stem is one 3 x 3 convolution, so that small images stay large.

    The stem and the first group have `width` channels, the last group eight times as many.

    Source:
        He et al. 2016, arXiv:1512.03385, table 1, without the pooling and the strides of its stem,
        as in Kuang's pytorch-cifar, which Jiang et al. 2019 used.
    """
    groups = [(width, 2), (2 * width, 2), (4 * width, 2), (8 * width, 2)]
    features = _residual_features(
        channels_in, groups, lambda *sizes: nn.Sequential(*normed(*sizes, 1, stride=2))
    )
    return Classifier(features, 8 * width, classes, he=False)


def resnet20(
    channels_in: int, classes: int, image_size: int = 32, *, depth: int = 20, width: int = 16
) -> nn.Module:
    """Make a residual net for small images, whose shortcuts have no parameters.

    It has `depth` = 6 n + 2 layers: three groups of n blocks with two convolutions each, and two
    more. The first group has `width` channels, the last four times as many.

    Source:
        He et al. 2016, arXiv:1512.03385, section 4.2, with shortcuts of their option A.
    """
    blocks = _blocks(depth, 2)
    groups = [(width, blocks), (2 * width, blocks), (4 * width, blocks)]
    return Classifier(_residual_features(channels_in, groups, _Padding), 4 * width, classes)


def wide_resnet(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    depth: int = 28,
    width: int = 10,
    dropout: float = 0.3,
) -> nn.Module:
    """Make a wide residual net of three groups, with 16, 32 and 64 times `width` channels.

    It has `depth` = 6 n + 4 layers: n blocks of two convolutions in each group, between which a
    share `dropout` of the features is dropped.

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
    blocks, rest = divmod(depth - others, 6)
    assert blocks and not rest, f"such a net has 6 n + {others} layers, not {depth}"
    return blocks


def _residual_features(
    channels_in: int, groups: Sequence[tuple[int, int]], shortcut: Callable[[int, int], nn.Module]
) -> Iterator[nn.Module]:
    channels = groups[0][0]
    yield from step(channels_in, channels)
    for wider, blocks in groups:
        for _ in range(blocks):
            same = channels == wider
            yield _ResidualBlock(channels, wider, None if same else shortcut(channels, wider))
            channels = wider


class _ResidualBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, shortcut: nn.Module | None) -> None:
        super().__init__()
        stride = 1 if shortcut is None else 2
        self.inner = nn.Sequential(
            *step(channels_in, channels, stride=stride), *normed(channels, channels)
        )
        self.shortcut = shortcut

    def forward(self, images: Images) -> Features:
        past = images if self.shortcut is None else self.shortcut(images)
        return (past + self.inner(images)).relu_()


class _Padding(nn.Module):
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
        # A shortcut that changes the shape begins after the shared activation.
        past = images if self.shortcut is None else self.shortcut(ready)
        return past + self.inner(ready)


def densenet(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    width: int = 32,
    depth: Sequence[int] = (6, 12, 24, 16),
) -> nn.Module:
    """Make a DenseNet with bottlenecks and compression (BC), whose stem is one 3 x 3 convolution.

    Each layer adds `width` channels (the growth rate k of the paper). `depth` is the number of
    layers in each block. 6, 12, 24 and 16 layers of width 32 are DenseNet-121.

    Source:
        Huang et al. 2017, arXiv:1608.06993. Jiang et al. 2019 trained this DenseNet-121, from
        Kuang's pytorch-cifar.
    """
    channels = 2 * width
    features: list[nn.Module] = [convolution(channels_in, channels)]
    for number, layers in enumerate(depth):
        if number:
            features += [*activated(channels), convolution(channels, channels // 2, 1)]
            features.append(nn.AvgPool2d(2))
            channels //= 2
        for _ in range(layers):
            features.append(_DenseLayer(channels, width))
            channels += width
    return Classifier([*features, *activated(channels)], channels, classes, he=False)


class _DenseLayer(nn.Module):
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


# Channels of a module's branches: 1 x 1; the reduction before 3 x 3, and 3 x 3; the reduction
# before 5 x 5, and 5 x 5; after the pool. None halves the image.
_GOOGLENET = (
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

    Its stem is one 3 x 3 convolution, it halves images twice, and two 3 x 3 convolutions replace
    each 5 x 5 convolution. There are no auxiliary classifiers. `width` multiplies all channels.

    Source:
        Szegedy et al. 2015, arXiv:1409.4842, table 1; BatchNorm and the two convolutions as in
        Ioffe and Szegedy 2015, arXiv:1502.03167; stem and strides as in Kuang's pytorch-cifar.
    """
    last = sum(round(part * width) for part in (384, 384, 128, 128))
    return Classifier(_googlenet_features(channels_in, width), last, classes, he=False)


def _googlenet_features(channels_in: int, width: float) -> Iterator[nn.Module]:
    channels = round(192 * width)
    yield from step(channels_in, channels, 3)
    for module in _GOOGLENET:
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


# Expansion factor, channels, blocks and stride of each group. In the paper, for large images, the
# group of 24 channels has a stride of 2.
_MOBILENET = (
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

    It halves images three times, not five times. A block that changes the channels but not the
    image's size has a projection as its shortcut; in the paper it has no shortcut. `width`
    multiplies the channels of every group.

    Source:
        Sandler et al. 2018, arXiv:1801.04381, table 2, with the strides and the projections of
        Kuang's pytorch-cifar, which Jiang et al. 2019 used.
    """
    last = round(1280 * width)
    return Classifier(_mobilenet_features(channels_in, width, last), last, classes, he=False)


def _mobilenet_features(channels_in: int, width: float, last: int) -> Iterator[nn.Module]:
    channels = round(32 * width)
    yield from step(channels_in, channels)
    for expansion, full, blocks, first in _MOBILENET:
        wider = round(full * width)
        for block in range(blocks):
            yield _InvertedBlock(channels, wider, 1 if block else first, expansion)
            channels = wider
    yield from step(channels, last, 1)


class _InvertedBlock(nn.Module):
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
