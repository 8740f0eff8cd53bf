"""A scorer that learns disturbs nothing and goes on from its state."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from fixture_loaders import NotedSampler, bits, fixture_data, fresh_net, same_tensors, streams
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


PROXY = sb.scorers.Proxy(small, momentum)


def make_loader(model: nn.Module, **options: Any) -> sb.SelectiveLoader:
    return sb.SelectiveLoader(
        DataLoader(fixture_data(), 6, sampler=NotedSampler(40)),
        model,
        nn.CrossEntropyLoss(),
        sb.selective_backprop(1 / 2, scorer=PROXY, **options),
        generator=torch.Generator().manual_seed(0),
    )


def learned(loader: sb.SelectiveLoader) -> object:
    return bits(loader.state_dict()["parts"]["scorer"])


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_model_and_the_global_streams_are_not_touched(warmup):
    model = fresh_net()
    model.layers[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    next(iter(DataLoader(fixture_data(), 6, sampler=NotedSampler(40))))
    expected = streams()[:2]
    torch.manual_seed(4)
    next(iter(make_loader(model, warmup_epochs=warmup)))
    assert streams()[:2] == expected
    assert same_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_it_learns_where_the_loop_runs_without_gradients():
    loader = make_loader(fresh_net(), warmup_epochs=0)
    before = learned(loader)
    with torch.no_grad():
        next(iter(loader))
    assert learned(loader) != before


def test_training_goes_on_bit_for_bit_where_its_state_was_taken():
    def rest(loader: sb.SelectiveLoader) -> list[list[float]]:
        torch.manual_seed(0)
        return [batch[0][:, 0].tolist() for batch in loader]

    whole, resumed = (make_loader(fresh_net(), warmup_epochs=0) for _ in range(2))
    list(whole)
    state = whole.state_dict()
    before = repr(state)
    expected = rest(whole)
    assert repr(state) == before
    for _ in range(2):
        resumed.sampler.generator.manual_seed(0)
        list(resumed.sampler)  # the pass that the other one has made
        resumed.load_state_dict(state)
        assert rest(resumed) == expected
        assert learned(resumed) == learned(whole)
        assert resumed.agreement == whole.agreement
    assert repr(state) == before


def test_what_stands_for_it_in_a_saved_state_is_the_same_in_every_process():
    assert "momentum" in repr(PROXY)
    assert "small" in set(repr(PROXY).replace("=", ",").split(","))
    assert " at 0x" not in repr(PROXY)
