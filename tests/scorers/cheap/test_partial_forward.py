"""A model that is run as far as one of its modules is otherwise as if it had not been run."""

import pytest
import torch
from fixture_doors import Net, fresh_net, same_tensors
from fixture_lone_rank import lone_rank  # noqa: F401
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.scorers.cheap._early_exit import FirstBlocks

INPUTS = torch.linspace(-1, 1, 24).reshape(12, 2).sin()


def counted(model: nn.Module) -> list[str]:
    """The names of modules as they return, from now on."""
    called: list[str] = []
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    return called


def hooks(model: nn.Module) -> list[int]:
    return [
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    ]


class Odd(nn.Module):
    """Returns whatever it is told to; some of its parts are never called."""

    def __init__(self, output: object = None, *, fails: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2)])
        self.told, self.output, self.fails = nn.Identity(), output, fails

    def forward(self, inputs: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        hidden = self.blocks[0](inputs * scale)
        if self.fails:
            raise ArithmeticError("the model failed")
        try:
            self.told(hidden if self.output is None else self.output)
        except Exception:
            return hidden
        return hidden


@pytest.mark.parametrize("training", [False, True])
def test_it_returns_what_the_module_returns_in_eval_mode_or_that_of_training(training) -> None:
    model = fresh_net()
    model.layers[3].eval()
    features = FirstBlocks(model, "layers", training=training).run((INPUTS,), {})
    assert not features.requires_grad
    model.train(training).layers[3].eval()
    assert torch.equal(features, model.layers(INPUTS))


def test_nothing_behind_the_module_is_called() -> None:
    model = fresh_net()
    called = counted(model)
    FirstBlocks(model, "layers.1", training=False).run((INPUTS,), {})
    assert called == ["layers.0", "layers.1"]


def test_what_a_hook_of_the_users_makes_of_the_output_is_what_counts() -> None:
    model = fresh_net()
    model.layers[0].register_forward_hook(lambda module, inputs, output: output * 0 + 7)
    features = FirstBlocks(model, "layers.0", training=False).run((INPUTS,), {})
    assert bool((features == 7).all())


def test_a_model_that_catches_exceptions_is_left_all_the_same() -> None:
    features = FirstBlocks(model := Odd(), "told", training=False).run((INPUTS,), {"scale": 2.0})
    assert torch.equal(features, model.blocks[0](2 * INPUTS))


@pytest.mark.parametrize("training", [False, True])
def test_modes_buffers_and_hooks_are_left_as_they_were(training: bool) -> None:
    model = fresh_net()
    model.layers[3].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes, hung = [module.training for module in model.modules()], hooks(model)
    blocks = FirstBlocks(model, "layers.1", training=training)
    for _ in range(2):
        blocks.run((INPUTS,), {})
        assert same_tensors(model.state_dict(), before)
        assert [module.training for module in model.modules()] == modes
        assert hooks(model) == hung


def test_a_model_that_fails_keeps_nothing_of_the_attempt() -> None:
    model = Odd(fails=True)
    hung = hooks(model)
    with pytest.raises(ArithmeticError):
        FirstBlocks(model, "told", training=False).run((INPUTS,), {})
    assert hooks(model) == hung
    assert model.training


def test_the_first_tensor_of_a_tuple_is_taken() -> None:
    blocks = FirstBlocks(Odd((None, INPUTS, INPUTS + 1)), "told", training=False)
    assert torch.equal(blocks.run((INPUTS,), {}), INPUTS)


@pytest.mark.parametrize("output", [{"features": INPUTS}, (None,), [INPUTS]])
def test_an_output_without_a_tensor_is_refused_by_its_type(output: object) -> None:
    name = type(output).__name__
    with pytest.raises(sb.ConfigurationError, match=f"after='told' returns a {name}.*a tuple"):
        FirstBlocks(Odd(output), "told", training=False).run((INPUTS,), {})


def test_a_module_that_is_never_called_is_refused_with_what_to_write_instead() -> None:
    model = Odd()
    hung = hooks(model)
    expected = r"having called after='blocks' \(ModuleList\).*such as 'blocks.0'"
    with pytest.raises(sb.ConfigurationError, match=expected):
        FirstBlocks(model, "blocks", training=False).run((INPUTS,), {})
    assert hooks(model) == hung


@pytest.mark.parametrize(
    ("model", "after", "near"),
    [
        (Net(), "layer.2", "near are: 'layers.[0-3]'"),
        (Net(), "zzz", ": 'layers', 'layers.0', 'layers.1'"),
        (nn.Linear(2, 2), "0", "no parts"),
    ],
)
def test_a_name_that_no_module_has_is_refused_with_the_nearest(
    model: nn.Module, after: str, near: str
) -> None:
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"after='{after}' is no.*{near}"):
        FirstBlocks(model, after, training=False)


def test_a_module_that_has_two_names_answers_to_both() -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    both = [FirstBlocks(model, name, training=False).run((INPUTS,), {}) for name in ("0", "2")]
    assert torch.equal(both[0], both[1]), "the first call ends the pass"


@pytest.mark.parametrize("part", ["whole", "in place", "behind", "before"])
@pytest.mark.filterwarnings("ignore:Dynamo")
def test_a_compiled_model_is_run_as_it_was_written(part: str) -> None:
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(1)
        return graph

    model = Odd()
    given: nn.Module = model
    if part == "whole":
        given = torch.compile(model, backend=backend)  # ty: ignore[invalid-assignment]
    elif part == "in place":
        model.compile(backend=backend)
    elif part == "behind":
        given = nn.Sequential(model, torch.compile(nn.Linear(2, 2), backend=backend))
    else:
        given = nn.Sequential(torch.compile(nn.Linear(2, 2), backend=backend), model)
    after = "blocks.0" if given is model or part == "whole" else ("0" if part == "behind" else "1")
    features = FirstBlocks(given, after, training=False).run((INPUTS,), {})
    assert not compiled
    before = given[0]._orig_mod(INPUTS) if part == "before" else INPUTS
    assert torch.allclose(features, model.blocks[0](before))
    with torch.no_grad():
        given(INPUTS)
    assert compiled, "afterwards it is compiled as ever"


@pytest.mark.usefixtures("lone_rank")
def test_a_wrapped_model_is_run_without_its_wrapper() -> None:
    model = fresh_net()
    wrapped = DistributedDataParallel(model)
    wrapped.register_forward_pre_hook(lambda *_: pytest.fail("the wrapper was run"))
    features = FirstBlocks(wrapped, "layers.0", training=False).run((INPUTS,), {})
    assert torch.equal(features, model.layers[0](INPUTS))
