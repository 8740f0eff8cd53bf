"""What a store of runs makes beside records: the nets that runs go on from."""

from dataclasses import replace

import pytest
import torch
from fixture_lab import fixture_plan
from fixture_loaders import same_tensors

import selective_backprop as sb
from selective_backprop_lab.recipe import RECIPES
from selective_backprop_lab.runner import run_store
from selective_backprop_lab.runner.grid import run_grid
from selective_backprop_lab.runner.run_store import RunStore
from selective_backprop_lab.training.run import TrainingRun

HEAD = {"5.weight", "5.bias"}  # the perceptron's last layer


@pytest.fixture
def plan(monkeypatch):
    """A run on the later digits, after two epochs on the earlier ones."""
    monkeypatch.setitem(RECIPES, "digits", replace(RECIPES["digits"], epochs=2))
    made = fixture_plan("traditional", model="perceptron", epochs=1)
    return replace(
        made, recipe=replace(made.recipe, data="digits:5-9"), pretrained="digits:0-4", limit=200
    )


def test_every_seed_and_strategy_begins_with_one_net_but_for_its_last_layer(plan, tmp_path):
    store = RunStore(tmp_path)
    plans = [plan, replace(plan, seed=1), replace(plan, arm="selective-backprop", seed=1)]
    first, second, third = (
        TrainingRun(each, store.data(each), weights=store.weights(each)).model.state_dict()
        for each in plans
    )
    taken = store.weights(plan)
    assert taken.keys() == first.keys()
    for name, value in taken.items():
        assert torch.equal(value, first[name]) != (name in HEAD)
        assert torch.equal(first[name], second[name]) != (name in HEAD)
    assert same_tensors(second, third)


def test_the_net_is_that_of_a_traditional_run_on_its_own_data(plan, tmp_path):
    store, before = RunStore(tmp_path), plan.pretraining
    run = TrainingRun(before, store.data(before))
    while not run.finished:
        run.advance()
    assert (before.recipe.data, run.meter.updates) == ("digits:0-4", 2 * 12)
    assert same_tensors(store.weights(plan), run.model.state_dict())


def test_a_net_that_cannot_be_read_is_named_with_what_to_do(plan, tmp_path):
    RunStore(tmp_path).weights(plan)
    (path,) = tmp_path.glob("*.weights")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(sb.RecordError, match=rf"{path.name}: .*Move that file away"):
        RunStore(tmp_path).weights(plan)


def test_a_net_that_cannot_be_written_is_named_with_what_to_do(plan, tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(sb.RecordError, match=r"weights cannot be written: .*another folder"):
        RunStore(tmp_path / "taken").weights(plan)


def test_a_folder_trains_it_once_and_its_cost_is_counted_for_nobody(plan, tmp_path, monkeypatch):
    (tuned, other) = run_grid([plan, replace(plan, seed=1)], RunStore(tmp_path))
    (plain,) = run_grid([replace(plan, pretrained=None)], RunStore(tmp_path))
    assert tuned.points[-1].cost == plain.points[-1].cost == 1.0
    assert tuned.points[0].test_error != plain.points[0].test_error
    assert tuned.header.config["pretrained"] == "digits:0-4"
    assert len(list(tmp_path.glob("*.weights"))) == 1
    monkeypatch.setattr(run_store, "TrainingRun", None)
    again = run_grid([plan, replace(plan, seed=2)], RunStore(tmp_path))
    assert again[0].points == tuned.points
    assert other.points != tuned.points


def test_a_net_for_images_of_another_size_is_refused_before_it_is_trained(plan, tmp_path):
    wrong = replace(plan, pretrained="mnist1d")
    with pytest.raises(sb.ConfigurationError, match=r"mnist1d have the shape 40.* 1 x 8 x 8"):
        RunStore(tmp_path).weights(wrong)
    assert not list(tmp_path.iterdir())
