"""What a run is known by."""

from dataclasses import replace

from fixture_lab import fixture_plan

from benchmarks.case import ROOT
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.names import fingerprint
from selective_backprop_lab.recipe import find_recipe
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.strategies import STRATEGIES, StrategyOptions
from selective_backprop_lab.training.run_config import RunConfig


def as_by_default(arm="auto"):
    recipe, length = find_recipe("digits"), Budget("cost", 8.0)
    return RunConfig(recipe, arm, StrategyOptions(), seed=3, length=length)


def test_what_was_chosen_is_named():
    chosen = {"composition": Composition(noise=0.2), "settings": StrategyOptions(0.5, keep=0.5)}
    plan = replace(as_by_default("stale-sb"), limit=100, **chosen)
    identity = plan.identity()
    assert identity["strategy"] == {"name": "stale-sb", "rate": 0.5}
    assert (identity["limit"], identity["noise"], identity["seed"]) == (100, 0.2, 3)


def test_a_net_that_was_trained_beforehand_is_named_and_is_the_same_for_all():
    plan = replace(as_by_default(), pretrained="digits:0-4")
    assert plan.identity() == {**as_by_default().identity(), "pretrained": "digits:0-4"}
    others = [replace(plan, arm="traditional", seed=7), replace(plan, length=Budget("cost", 2.0))]
    assert all(each.pretraining == plan.pretraining for each in others)
    before = plan.pretraining
    assert (before.arm, before.seed, before.pretrained) == ("traditional", 0, None)
    assert before.recipe == find_recipe("digits:0-4")
    assert before.length == Budget("epochs", 20.0)
    perceptron = replace(plan, recipe=replace(plan.recipe, model="perceptron"))
    assert perceptron.pretraining.recipe.model == "perceptron"
    assert as_by_default().pretraining is None


def test_the_file_of_a_users_own_net_is_a_part_of_what_a_run_is():
    assert fixture_plan().identity()["model_file"] == fingerprint("fixture_lab:small_net")


def test_what_a_name_stands_for_may_change_and_then_runs_are_others(monkeypatch):
    before = fixture_plan("auto").record_name
    monkeypatch.setitem(STRATEGIES, "auto", replace(STRATEGIES["auto"], revision=3))
    assert fixture_plan("auto").record_name != before


def test_committed_runs_are_found_by_what_their_command_asked_for():
    runs = {run.path.name: run for run in read_runs(ROOT / "records/demo")}
    assert len(runs) == 54
    for arm, cost in (("traditional", 10.0), ("auto", 40.0), ("auto+smoothing-0.3", 40.0)):
        for seed in range(6):
            usual, length = as_by_default(arm), Budget("cost", cost)
            recipe = replace(usual.recipe, model="perceptron")
            chosen = {"recipe": recipe, "seed": seed, "length": length, "evaluations": 16}
            plan = replace(usual, composition=Composition(noise=0.2), **chosen)
            assert runs[plan.record_name].header.identity == plan.identity()
