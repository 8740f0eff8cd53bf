"""Networks by name: shapes, repeatable weights, and clear words about the user's own."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from fixture_lab import blank_data
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.nets.models import MODELS, make_model, take_over
from selective_backprop_lab.nets.published import (
    densenet,
    googlenet,
    mobilenet_v2,
    resnet18,
    resnet20,
    wide_resnet,
)
from selective_backprop_lab.nets.transformers import ByteLM, vision_transformer

# The full nets are their narrow twins in everything but size, and slow.
OWN = ["linear", "perceptron", "small_cnn", "tiny_cnn", "resnet9_narrow"]


def test_a_seed_decides_the_weights_and_no_global_stream_is_moved():
    data = blank_data(1, 8)
    before = torch.get_rng_state()
    first = make_model("small_cnn", data, seed=1).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    second = make_model("small_cnn", data, seed=1).state_dict()
    other = make_model("small_cnn", data, seed=2).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["0.0.weight"], other["0.0.weight"])


@pytest.fixture
def users_module(tmp_path, monkeypatch):
    (tmp_path / "my_nets_for_tests.py").write_text(
        "from torch import nn\n"
        "def factory(channels, classes, side):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side**2, classes))\n"
        "def of_two(channels_in, classes): ...\n"
        "def of_nothing(*_): return 'a net'\n"
        "def of_seven(*_): return nn.Sequential(nn.Flatten(), nn.Linear(7, 10))\n"
        "def of_one_class(*_): return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))\n"
        "def of_no_weights(*_): return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(10))\n"
        "def of_norm(*_): return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64).eval(),\n"
        "    nn.Dropout(), nn.Linear(64, 10))\n"
    )
    (tmp_path / "my_broken_nets_for_tests.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("users_module")
def test_the_users_own_net_is_made_by_its_import_path():
    model = make_model("my_nets_for_tests:factory", blank_data(1, 8), seed=0)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    again = make_model("my_nets_for_tests:factory", blank_data(1, 8), seed=0)
    assert torch.equal(model[1].weight, again[1].weight)


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet", "no model 'resnet'.*linear, .*resnet18"),
        ("no_such_module_at_all:net", "no_such_module_at_all.* PYTHONPATH"),
        ("my_broken_nets_for_tests:net", "no_such_package_at_all"),
        ("my_nets_for_tests:missing", "missing in my_nets_for_tests is missing"),
        ("my_nets_for_tests:of_two", r"made with .*\(1, 10, 8\): TypeError: .*of_two"),
        ("my_nets_for_tests:of_nothing", r"is a str, not a torch\.nn\.Module"),
        ("my_nets_for_tests:of_seven", r"cannot run on inputs of .*1, 8, 8\): RuntimeError: mat1"),
        ("my_nets_for_tests:of_one_class", r"2 inputs into \(2, 1\), but .* shape \(2, 10\)"),
        ("my_nets_for_tests:of_no_weights", "no parameter"),
    ],
)
def test_a_name_that_makes_no_net_is_refused_with_the_reason(name, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        make_model(name, blank_data(1, 8), seed=0)


@pytest.mark.usefixtures("users_module")
def test_a_net_that_was_tried_out_is_as_it_was_made():
    model = make_model("my_nets_for_tests:of_norm", blank_data(1, 8), seed=0)
    assert [part.training for part in model] == [True, False, True, True]
    assert model[1].num_batches_tracked == 0


@pytest.mark.parametrize("name", [*OWN, *(each for each in MODELS if each.endswith("_narrow"))])
def test_a_net_takes_over_all_of_another_but_its_last_layer(name):
    old, new = (
        make_model(name, blank_data(3, 32, classes), seed=seed).state_dict()
        for classes, seed in ((7, 0), (5, 1))
    )
    model = make_model(name, blank_data(3, 32, 5), seed=1)
    take_over(model, old)
    fresh = {key for key, value in model.state_dict().items() if not torch.equal(value, old[key])}
    assert {old[key].shape[0] for key in fresh} == {7}
    assert all(torch.equal(model.state_dict()[key], new[key]) for key in fresh)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 5)


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
    "vit_small": (21_341_578, 21_376_228),
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
@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 32)])
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


@pytest.fixture
def net():
    torch.manual_seed(0)
    return vision_transformer(3, 5, 8, width=12, depth=2, heads=3).double()


def test_a_block_attends_as_its_formula_says(net):
    block, patches = net[1], torch.randn(2, 4, 12, dtype=torch.float64)
    normal = block.before_attention(patches)
    queries, keys, values = block.inward(normal).chunk(3, dim=2)
    heads = []
    for head in range(3):
        mine = slice(4 * head, 4 * head + 4)
        scores = queries[..., mine] @ keys[..., mine].mT / 2.0
        heads.append(scores.softmax(2) @ values[..., mine])
    attended = patches + block.outward(torch.cat(heads, dim=2))
    torch.testing.assert_close(block(patches), attended + block.perceptron(attended))


def test_sides_that_do_not_divide_are_refused():
    with pytest.raises(sb.ConfigurationError, match="9 pixels a side cannot be cut into patches"):
        vision_transformer(3, 10, 9)


def test_a_byte_changes_the_predictions_from_its_own_place_on():
    torch.manual_seed(0)
    net = ByteLM(8, 256, 1, width=36, depth=2).double()
    window = torch.arange(8).view(1, 8)
    other = window.clone()
    other[0, 5] = 200
    changed = (net(window) != net(other)).any(1)[0]
    assert changed.tolist() == [False] * 5 + [True] * 3
