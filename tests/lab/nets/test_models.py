"""Networks by name: shapes, repeatable weights, and clear words about the user's own."""

import pytest
import torch
from fixture_lab import blank_data

import selective_backprop as sb
from selective_backprop_lab.nets.models import MODELS, make_model, take_over

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
        "import torch\n"
        "def factory(channels_in, classes, image_size):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(),\n"
        "        torch.nn.Linear(channels_in * image_size**2, classes))\n"
        "def of_two(channels_in, classes): ...\n"
        "def of_nothing(*arguments): return 'a net'\n"
        "number = 3\n"
        "def of_seven(*_): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 10))\n"
        "def of_one_class(*_):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1))\n"
        "def of_no_weights(*_): return torch.nn.Sequential(torch.nn.Flatten(),\n"
        "    torch.nn.AdaptiveAvgPool1d(10))\n"
        "def of_norm(*_): return torch.nn.Sequential(torch.nn.Flatten(),\n"
        "    torch.nn.BatchNorm1d(64).eval(), torch.nn.Dropout(), torch.nn.Linear(64, 10))\n"
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
        ("my_nets_for_tests:", r"no model 'my_nets_for_tests:'"),
        (":factory", r"no model ':factory'"),
        (".nets:factory", r"no model '\.nets:factory'"),
        ("no_such_module_at_all:net", "no_such_module_at_all.* PYTHONPATH"),
        ("my_broken_nets_for_tests:net", "no_such_package_at_all"),
        ("my_nets_for_tests:missing", "missing in my_nets_for_tests is None"),
        ("my_nets_for_tests:number", "number in my_nets_for_tests is 3"),
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


def test_a_net_takes_over_its_last_layer_too_where_classes_are_the_same():
    old, model = (make_model("linear", blank_data(1, 8), seed=seed) for seed in (0, 1))
    take_over(model, old.state_dict(), head=True)
    for mine, others in zip(model.parameters(), old.parameters(), strict=True):
        assert torch.equal(mine, others)
