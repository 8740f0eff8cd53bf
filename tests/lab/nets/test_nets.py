"""The published nets: as many parameters as published, and every one of them learns."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from selective_backprop_lab.nets.models import MODELS
from selective_backprop_lab.nets.published import (
    densenet,
    googlenet,
    mobilenet_v2,
    resnet18,
    resnet20,
    wide_resnet,
)

# Of images with three channels and 10 and 100 classes. Published code of GoogLeNet has 7,904 more
# for each: the biases of its convolutions.
PUBLISHED = {
    "resnet20": (269_722, 275_572),
    "resnet18": (11_173_962, 11_220_132),
    "wide_resnet_28_10": (36_479_194, 36_536_884),
    "wide_resnet_16_8": (10_961_370, 11_007_540),
    "densenet_121": (6_956_298, 7_048_548),
    "mobilenet_v2": (2_296_922, 2_412_212),
    "googlenet": (6_166_250 - 7_904, 6_258_500 - 7_904),
}
SMALL = {
    "resnet8": partial(resnet20, depth=8),
    "resnet18": partial(resnet18, width=16),
    "wide_resnet": partial(wide_resnet, depth=10, width=2),
    "densenet": partial(densenet, depth=(2, 4, 4, 2), width=8),
    "mobilenet_v2": partial(mobilenet_v2, width=0.25),
    "googlenet": partial(googlenet, width=0.25),
}
HE = ("resnet8", "wide_resnet")  # the others begin as torch has it, as in Kuang's pytorch-cifar


def shapes_only(name: str, classes: int = 10) -> nn.Module:
    """Return a net without weights: it knows the shapes of all that it would compute."""
    with torch.device("meta"):
        return MODELS[name](3, classes, 32)


def convolutions_of(net: nn.Module) -> list[nn.Conv2d]:
    return [part for part in net.modules() if isinstance(part, nn.Conv2d)]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_net_has_as_many_parameters_as_published(name):
    counts = tuple(
        sum(parameter.numel() for parameter in shapes_only(name, classes).parameters())
        for classes in (10, 100)
    )
    assert counts == PUBLISHED[name]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32)])
def test_the_gradient_reaches_every_parameter(name, channels, side):
    torch.manual_seed(0)
    net = SMALL[name](channels, 10, side)
    logits = net(torch.randn(4, channels, side, side))
    assert logits.shape == (4, 10)
    nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.count_nonzero() > 0, parameter_name


@pytest.mark.parametrize("name", sorted(SMALL.keys() - HE))
def test_the_nets_of_pytorch_cifar_begin_as_torch_has_it(name):
    torch.manual_seed(0)
    net = SMALL[name](3, 10, 32)
    for part in convolutions_of(net):
        inputs = part.weight[0].numel()
        assert 0.5 < part.weight.abs().max() * math.sqrt(inputs) <= 1.0001  # evenly up to that
    assert net.head.bias.any()


@pytest.mark.parametrize("name", HE)
def test_weights_begin_as_he_has_them_and_biases_at_0(name):
    torch.manual_seed(0)
    net = SMALL[name](3, 10, 32)
    for part in convolutions_of(net):
        height, width = part.kernel_size
        leaving = part.out_channels // part.groups * height * width
        wanted, count = math.sqrt(2 / leaving), part.weight.numel()
        assert abs(part.weight.std(correction=0) / wanted - 1) < 5 / math.sqrt(2 * count)
        assert abs(part.weight.mean() / wanted) < 5 / math.sqrt(count)
    assert not net.head.bias.any()


def silenced(net: nn.Module, last: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Return the net with nothing coming out of its blocks but what goes past them."""
    for block in net.features:
        if hasattr(block, "inner"):
            nn.init.zeros_(last(block).weight)
    return net


def rectified_stem(net: nn.Module, images: Tensor) -> Tensor:
    convolution, norm = net.features[0], net.features[1]
    return norm(convolution(images)).relu()


def test_shortcuts_of_resnet20_take_every_other_pixel_and_add_channels_of_zeros():
    torch.manual_seed(0)
    net = silenced(resnet20(3, 10, depth=8, width=4), lambda block: block.inner[-1])
    images = torch.randn(2, 3, 9, 9)
    stem = rectified_stem(net, images)
    expected = torch.zeros(2, 16, 3, 3)
    expected[:, 6:10] = stem[:, :, ::4, ::4]  # 2 new channels on either side, then 4
    torch.testing.assert_close(net.features(images), expected)


def test_a_block_that_keeps_the_shape_lets_its_input_past_as_it_is():
    torch.manual_seed(0)
    net = silenced(resnet18(3, 10, width=4), lambda block: block.inner[-1])
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(net.features[:5](images), rectified_stem(net, images))
    wide = silenced(wide_resnet(3, 10, depth=10, width=1), lambda block: block.inner[-1])
    torch.testing.assert_close(wide.features[:2](images), wide.features[0](images))


def test_every_layer_of_a_dense_block_keeps_what_comes_before_it():
    torch.manual_seed(0)
    net = densenet(3, 10, width=2, depth=(3,))
    images = torch.randn(2, 3, 8, 8)
    seen = [net.features[: number + 1](images) for number in range(4)]
    for number, (before, after) in enumerate(pairwise(seen)):
        assert before.shape[1] == 4 + 2 * number
        torch.testing.assert_close(after[:, : before.shape[1]], before)
