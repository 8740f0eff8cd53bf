"""Scorers that learn, a proxy or a head, disturb nothing and go on from their state."""

import pytest
import torch
from fixture_doors import NotedSampler, bits, fixture_data, fresh_net, same_tensors, streams
from fixture_early_exit import door, early, momentum
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


def head() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))


SCORERS = {
    "proxy": sb.scorers.Proxy(small, momentum),
    "early exit": early(make_head=head, check=sb.scorers.Check(2, 5, least=0)),
}
every_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)


def learned(loader: sb.SelectiveLoader) -> object:
    return bits(loader.state_dict()["parts"]["scorer"])


@every_scorer
@pytest.mark.parametrize("warmup", [0, 1])
def test_the_model_and_the_global_streams_are_not_touched(scorer, warmup):
    model = fresh_net()
    model.layers[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    next(iter(DataLoader(fixture_data(), 6, sampler=NotedSampler(40))))
    expected = streams()[:2]
    torch.manual_seed(4)
    next(iter(door(model, scorer, warmup_epochs=warmup)))
    assert streams()[:2] == expected
    assert same_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@every_scorer
def test_it_learns_where_the_loop_runs_without_gradients(scorer):
    loader = door(fresh_net(), scorer, warmup_epochs=0)
    before = learned(loader)
    with torch.no_grad():
        next(iter(loader))
    assert learned(loader) != before


@every_scorer
def test_training_goes_on_bit_for_bit_where_its_state_was_taken(scorer):
    def rest(loader: sb.SelectiveLoader) -> list[list[float]]:
        torch.manual_seed(0)
        return [batch[0][:, 0].tolist() for batch in loader]

    whole, resumed = (door(fresh_net(), scorer, warmup_epochs=0) for _ in range(2))
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


@every_scorer
def test_what_stands_for_it_in_a_saved_state_is_the_same_in_every_process(scorer):
    assert "momentum" in repr(scorer)
    assert {"small", "head"} & set(repr(scorer).replace("=", ",").split(","))
    assert " at 0x" not in repr(scorer)
