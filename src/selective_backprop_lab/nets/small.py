"""The lab's own nets: small enough for a CPU."""

from torch import Tensor, nn

from selective_backprop_lab.nets.published import Images, Logits, step
from selective_backprop_lab.shapes import Float


def small_cnn(channels_in: int, classes: int, image_size: int, *, width: int = 32) -> nn.Module:
    """Make a net of three convolutions, each with BatchNorm and ReLU, and a linear layer.

    Images need at least 4 pixels a side. They are halved after each of the first two convolutions,
    and by the first itself if they have more than 16 pixels a side.
    """
    return nn.Sequential(
        _block(channels_in, width, stride=2 if image_size > 16 else 1),
        nn.MaxPool2d(2),
        _block(width, 2 * width),
        nn.MaxPool2d(2),
        _block(2 * width, 2 * width),
        _Brightest(),
        nn.Linear(2 * width, classes),
    )


def linear(channels_in: int, classes: int, image_size: int) -> nn.Module:
    """Make a linear layer on the pixels, as a model that cannot learn everything."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels_in * image_size**2, classes))


def perceptron(channels_in: int, classes: int, image_size: int) -> nn.Module:
    """Make a perceptron with two hidden layers of 256 and 128 units, for inputs of any shape."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels_in * image_size**2, 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def resnet9(channels_in: int, classes: int, image_size: int = 32, *, width: int = 64) -> nn.Module:
    """Make a residual net of eight convolutions and a linear layer, for images of 8 pixels or more.

    A width of 64 has 6.6 million parameters; a width of 16 trains ten times faster on a CPU.

    Source:
        Page 2018, "How to train your ResNet", with the maximum over the last feature map in place
        of a 4 x 4 pool, so that images of 28 x 28 pixels work as well as 32 x 32.
    """
    return nn.Sequential(
        _block(channels_in, width),
        _block(width, 2 * width),
        nn.MaxPool2d(2),
        _Residual(2 * width),
        _block(2 * width, 4 * width),
        nn.MaxPool2d(2),
        _block(4 * width, 8 * width),
        nn.MaxPool2d(2),
        _Residual(8 * width),
        _Brightest(),
        _Scaled(nn.Linear(8 * width, classes, bias=False), 0.125),
    )


def _block(channels_in: int, channels: int, *, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(*step(channels_in, channels, stride=stride))


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(_block(channels, channels), _block(channels, channels))

    def forward(self, images: Images) -> Images:
        return images + self.inner(images)


class _Brightest(nn.Module):
    """The maximum of each channel. Unlike adaptive pooling, its backward pass is deterministic."""

    def forward(self, images: Images) -> Float[Tensor, "candidate channel"]:
        return images.amax(dim=(2, 3))


class _Scaled(nn.Module):
    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor

    def forward(self, features: Float[Tensor, "candidate feature"]) -> Logits:
        return self.inner(features) * self.factor
