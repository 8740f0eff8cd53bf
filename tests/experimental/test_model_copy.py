"""A copy of a model to score with: brought up to date in place, and never trained."""

import copy
import threading

import pytest
from fixture_loaders import fixture_data, fresh_net
from fixture_pipelined import step
from torch import nn

import selective_backprop as sb
from selective_backprop.experimental._pipelined import copy_model, tensors_of, update

INPUTS = fixture_data().tensors[0][:16]


def outputs(model: nn.Module) -> list[list[float]]:
    """What a model makes of a batch, in the modes that it is in."""
    return copy.deepcopy(model)(INPUTS).tolist()


def test_it_takes_on_weights_buffers_and_modes_when_it_is_updated_and_only_then():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    twin = copy_model(model)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    for module in (model[1], model):
        before = outputs(twin)
        step(model)
        module.eval()
        assert outputs(twin) == before
        update(twin, model)
        assert outputs(twin) == outputs(model)
        assert [each.training for each in twin.modules()] == [m.training for m in model.modules()]


def test_an_update_allocates_no_tensors_anew_and_what_is_shared_stays_shared():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3))
    model[1].weight = model[0].weight
    twin = copy_model(model)
    places = [tensor.data_ptr() for tensor in tensors_of(twin).values()]
    for _ in range(3):
        step(model)
        update(twin, model)
    assert twin[1].weight is twin[0].weight
    assert outputs(twin) == outputs(model)
    assert [tensor.data_ptr() for tensor in tensors_of(twin).values()] == places
    assert not set(places) & {tensor.data_ptr() for tensor in tensors_of(model).values()}


def test_a_model_whose_parts_changed_or_that_cannot_be_copied_is_refused():
    model = nn.Sequential(nn.Linear(2, 3))
    twin = copy_model(model)
    model[0] = nn.Linear(2, 5)
    with pytest.raises(sb.LoaderError, match=r"0\.bias, 0\.weight.*changed"):
        update(twin, model)
    model = fresh_net()
    model.lock = threading.Lock()
    with pytest.raises(sb.ConfigurationError, match=r"\(Net\).*pickle"):
        copy_model(model)
