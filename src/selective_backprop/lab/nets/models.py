"""Networks by name: small ones of the lab, published ones, or the user's own by import path."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.nets.densenet import densenet
from selective_backprop.lab.nets.googlenet import googlenet
from selective_backprop.lab.nets.mobilenet_v2 import mobilenet_v2
from selective_backprop.lab.nets.resnet import resnet18, resnet20
from selective_backprop.lab.nets.vision_transformer import vision_transformer
from selective_backprop.lab.nets.wide_resnet import wide_resnet

ModelFactory = Callable[[int, int, int], nn.Module]
"""Makes a net from the number of input channels, the number of classes and the image's side."""


def small_cnn(channels_in: int, classes: int, image_size: int, *, width: int = 32) -> nn.Module:
    """Make a net of three convolutions, each with BatchNorm and ReLU, and a linear layer.

    Images are halved after each of the first two, and once more at the start where they have
    more than 16 pixels a side.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels, at least 4.
        width: channels of the first convolution; the others have twice as many.

    Returns:
        A net from images to logits.
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
    """Make a linear layer on the pixels, for what cannot learn all that it is shown.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels.

    Returns:
        A net from images to logits.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(channels_in * image_size**2, classes))


def resnet9(channels_in: int, classes: int, image_size: int = 32, *, width: int = 64) -> nn.Module:
    """Make a residual net of eight convolutions and a linear layer.

    Args:
        channels_in: of an image.
        classes: logits to return.
        image_size: height and width in pixels, at least 8. The net is the same for all.
        width: channels of the first convolution; the last have eight times as many. 64 has 6.6
            million parameters; 16 trains more than ten times faster on a CPU.

    Returns:
        A net from images to logits.

    Source:
        Page 2018, "How to train your ResNet", with the maximum over whatever is left of the
        image in place of a 4 x 4 pool, so that 28 x 28 pixels will do as well as 32 x 32.
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


MODELS: Mapping[str, ModelFactory] = {
    "linear": linear,
    "small_cnn": small_cnn,
    "tiny_cnn": partial(small_cnn, width=8),
    "resnet9": resnet9,
    "resnet9_narrow": partial(resnet9, width=16),
    "vit_small": vision_transformer,
    "vit_narrow": partial(vision_transformer, width=48, depth=4, heads=3),
    "resnet20": resnet20,
    "resnet8": partial(resnet20, depth=8),
    "resnet18": resnet18,
    "resnet18_narrow": partial(resnet18, width=16),
    "wide_resnet_28_10": wide_resnet,
    "wide_resnet_16_8": partial(wide_resnet, depth=16, width=8, dropout=0.4),
    "wide_resnet_10_2": partial(wide_resnet, depth=10, width=2),
    "densenet_121": densenet,
    "densenet_bc_100_12": partial(densenet, depth=(16, 16, 16), width=12),
    "densenet_narrow": partial(densenet, depth=(2, 4, 4, 2), width=8),
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v2_narrow": partial(mobilenet_v2, width=0.25),
    "googlenet": googlenet,
    "googlenet_narrow": partial(googlenet, width=0.25),
}
"""The nets by name. Narrow or shallow siblings of the published ones are for a CPU."""


def make_model(name: str, data: ImageData, *, seed: int, channels_last: bool = True) -> nn.Module:
    """Make the net that a name stands for, shaped for a data set, on the CPU.

    The same seed gives the same weights, and torch's global stream is left where it was. What a
    factory of the user's draws from NumPy, Python or a GPU is its own affair.

    Args:
        name: a key of `MODELS`, or `package.module:factory`, which is called with the number of
            input channels, the number of classes and the image's side.
        data: whose images it is for.
        seed: of the weights.
        channels_last: whether the weights lie in the memory format that convolutions are fastest
            in.

    Returns:
        The net, in training mode.

    Raises:
        ConfigurationError: if the name is unknown or cannot be imported, or what it names makes
            no `torch.nn.Module` of three arguments that can be trained and turns images into one
            number for each class.
    """
    factory = find_factory(name)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the GPUs too, and nothing would put those back.
        torch.default_generator.manual_seed(seed)
        model = factory(data.channels, data.classes, data.image_size)
        if not isinstance(model, nn.Module):
            raise sb.ConfigurationError(
                f"the model {name!r} gave a {type(model).__name__}, but a torch.nn.Module is needed"
            )
        if name not in MODELS:
            _try_out(name, model, data)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # ty: ignore[no-matching-overload]
    return model


def find_factory(name: str) -> ModelFactory:
    """Return what makes the nets that a name stands for, importing it if need be.

    Raises:
        ConfigurationError: if the name is unknown or cannot be imported, or names no function of
            three arguments.
    """
    if name in MODELS:
        return MODELS[name]
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise sb.ConfigurationError(
            f"there is no model {name!r}. Choose one of {', '.join(MODELS)}, or name your own as "
            f"package.module:factory"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise sb.ConfigurationError(
            f"the model {name!r} cannot be imported: {error}. Is its folder on PYTHONPATH?"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise sb.ConfigurationError(
            f"{attribute} in {module_name} is {factory!r:.80}, but the model {name!r} needs a "
            f"function of (channels_in, classes, image_size) there"
        )
    _check_arguments(name, factory)
    return factory


def _try_out(name: str, model: nn.Module, data: ImageData) -> None:
    """Pass two blank images through a net of the user's, before anything is trained or written."""
    images = torch.zeros(2, data.channels, *data.train_images.shape[2:])
    training = {part: part.training for part in model.modules()}
    try:
        with torch.no_grad():
            outputs = model.eval()(images)
    except Exception as error:  # the user's model may raise anything
        raise sb.ConfigurationError(
            f"the model {name!r} cannot run on images of shape {tuple(images.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    for part, mode in training.items():
        part.training = mode
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if shape != (2, data.classes):
        raise sb.ConfigurationError(
            f"the model {name!r} turns 2 images into {shape}, but one number for each of "
            f"{data.classes} classes is needed, of shape {(2, data.classes)}"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise sb.ConfigurationError(
            f"the model {name!r} has no parameter that requires a gradient, so that there is "
            "nothing to train"
        )


def _check_arguments(name: str, factory: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return  # A factory in C may not tell; calling it will.
    try:
        signature.bind(1, 10, 32)
    except TypeError as error:
        raise sb.ConfigurationError(
            f"the model {name!r} takes {signature}, but is called with (channels_in, classes, "
            f"image_size): {error}"
        ) from error


def _block(channels_in: int, channels: int, *, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        # BatchNorm has a bias of its own.
        nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(_block(channels, channels), _block(channels, channels))

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate channel height width"]:
        return images + self.inner(images)


class _Brightest(nn.Module):
    """The maximum of each channel: unlike adaptive pooling, its backward is deterministic."""

    def forward(
        self, images: Float[Tensor, "candidate channel height width"]
    ) -> Float[Tensor, "candidate channel"]:
        return images.amax(dim=(2, 3))


class _Scaled(nn.Module):
    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor

    def forward(
        self, features: Float[Tensor, "candidate feature"]
    ) -> Float[Tensor, "candidate logit"]:
        return self.inner(features) * self.factor
