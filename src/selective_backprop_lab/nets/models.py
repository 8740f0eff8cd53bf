"""Nets by name: small ones of the lab, published ones, or the user's own by import path."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.names import find_name, find_object, is_import_path
from selective_backprop_lab.nets import published
from selective_backprop_lab.nets.published import Images, Logits, step
from selective_backprop_lab.nets.transformers import ByteLM, vision_transformer
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


# Makes a net from the number of channels (or features, or tokens), the number of classes and the
# image's side (or 1).
ModelFactory = Callable[[int, int, int], nn.Module]
MODELS: Mapping[str, ModelFactory] = {
    "linear": linear,
    "perceptron": perceptron,
    "small_cnn": small_cnn,
    "tiny_cnn": partial(small_cnn, width=8),
    "resnet9": resnet9,
    "resnet9_narrow": partial(resnet9, width=16),
    "vit_small": vision_transformer,
    "resnet20": published.resnet20,
    "resnet18": published.resnet18,
    "resnet18_narrow": partial(published.resnet18, width=16),
    "wide_resnet_28_10": published.wide_resnet,
    "wide_resnet_16_8": partial(published.wide_resnet, depth=16, width=8, dropout=0.4),
    "densenet_121": published.densenet,
    "mobilenet_v2": published.mobilenet_v2,
    "googlenet": published.googlenet,
    "googlenet_narrow": partial(published.googlenet, width=0.25),
    "byte_lm": ByteLM,
}
LANGUAGE_MODELS = frozenset({"byte_lm"})  # for text; all others are for images and tables


def make_model(name: str, data: LabData, *, seed: int) -> nn.Module:
    """Make the net that a name or import path stands for, for some data, on the CPU.

    The same seed gives the same weights, and torch's global random stream stays unchanged. Weights
    have the memory format channels last, in which convolutions are fastest.
    """
    name = model_name(name)
    needed = "a function of (channels_in, classes, image_size)"
    factory = MODELS.get(name) or find_object(name, kind="model", needed=needed)
    if name in MODELS and (name in LANGUAGE_MODELS) != data.is_text:
        wanted = LANGUAGE_MODELS if data.is_text else MODELS.keys() - LANGUAGE_MODELS
        raise sb.ConfigurationError(
            f"{data.name} is {'' if data.is_text else 'no '}text, but the model {name!r} is for "
            f"{'images and tables' if data.is_text else 'text'}; choose {', '.join(sorted(wanted))}"
        )
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the GPUs, which fork_rng does not restore here.
        torch.default_generator.manual_seed(seed)
        if name in MODELS:
            model = factory(data.channels, data.classes, data.image_size)
        else:
            model = _make_users(name, factory, data)
    model.to(memory_format=torch.channels_last)  # ty: ignore[no-matching-overload]
    return model


def take_over(model: nn.Module, weights: Mapping[str, Tensor], *, head: bool = False) -> None:
    """Give a net the weights of another net of its kind; without `head`, its last layer stays."""
    *_, (last, _) = ((n, m) for n, m in model.named_modules() if [*m.parameters(recurse=False)])
    state = {} if head else model.state_dict()
    own = {name: value for name, value in state.items() if name.rpartition(".")[0] == last}
    try:
        model.load_state_dict({**weights, **own})
    except RuntimeError as error:
        raise sb.ConfigurationError(
            "the net cannot take over the weights of the net that was trained beforehand: "
            + " ".join(str(error).split())
        ) from error


def model_name(name: str) -> str:
    """Return a net's name as in `MODELS`, or an import path unchanged."""
    if is_import_path(name):
        return name
    return find_name("model", name, MODELS, more=", and package.module:factory for one of your own")


def _make_users(name: str, factory: ModelFactory, data: LabData) -> nn.Module:
    sizes = (data.channels, data.classes, data.image_size)
    kind = torch.int64 if data.is_text else torch.float32
    inputs = torch.zeros(2, *data.train_inputs.shape[1:], dtype=kind)
    doing = f"be made with (channels_in, classes, image_size) of {sizes}"
    try:
        model: object = factory(*sizes)
        if not isinstance(model, nn.Module):
            raise TypeError(f"it is a {type(model).__name__}, not a torch.nn.Module")
        doing = f"run on inputs of shape {tuple(inputs.shape)}"
        training = {part: part.training for part in model.modules()}
        with torch.no_grad():
            outputs = model.eval()(inputs)
        for part, mode in training.items():
            part.training = mode
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        doing = "be trained"
        wanted = (2, data.classes, *data.train_labels.shape[1:])
        if shape != wanted:
            raise ValueError(
                f"it turns 2 inputs into {shape}, but one number for each of {data.classes} "
                f"classes is needed, shape {wanted}"
            )
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError("it has no parameter that requires a gradient")
    except Exception as error:  # the user's code may raise anything
        raise sb.ConfigurationError(
            f"the model {name!r} cannot {doing}: {type(error).__name__}: {error}"
        ) from error
    return model
