from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from fixture_command import run_command
from fixture_lab import few_digits, fixture_plan, open_session, untimed
from fixture_loaders import same_tensors

import selective_backprop as sb
from selective_backprop_lab.recipe import RECIPES
from selective_backprop_lab.records.files import locked
from selective_backprop_lab.runner import grid
from selective_backprop_lab.runner.grid import RunStore, run_grid
from selective_backprop_lab.training.process import Stop
from selective_backprop_lab.training.run import TrainingRun


@pytest.mark.parametrize(
    ("jobs", "device", "shared"), [(2, "cuda", True), (1, "cuda", False), (2, "cpu", False)]
)
def test_runs_that_share_a_gpu_are_recorded_as_such(jobs, device, shared, tmp_path, monkeypatch):
    def carry_out(work, **_):
        raise ZeroDivisionError(*(group.options["shared_gpu"] for group in work))

    monkeypatch.setattr(grid, "run_local", carry_out)
    plans = [replace(fixture_plan(seed=seed), device=device) for seed in (0, 1)]
    with pytest.raises(ZeroDivisionError) as found:
        run_grid(plans, RunStore(tmp_path), jobs=jobs)
    assert found.value.args == (shared, shared)


@pytest.mark.usefixtures("signals_as_usual")
def test_several_processes_record_what_one_does_and_keep_what_they_have_begun(tmp_path):
    lengths = {"traditional": 1, "low-k": 1, "auto": 2000}
    plans = [
        fixture_plan(arm, epochs=epochs, seed=seed, evaluations=1 + epochs // 20, model="linear")
        for arm, epochs in lengths.items()
        for seed in (0, 1)
    ]
    heard = []

    def interrupt(plan, point):
        heard.append((plan, point))
        short = [each for each, _ in heard if each.arm != "auto"]
        if plan.arm == "auto" and len(short) == 4:
            raise KeyboardInterrupt

    beside = RunStore(tmp_path / "beside")
    with pytest.raises(KeyboardInterrupt):
        run_grid(plans, beside, jobs=2, interleave=False, watch=interrupt)
    assert all(beside.has_finished(plan) for plan in plans[:4])
    assert any(beside.path(plan).with_suffix(".checkpoint").exists() for plan in plans[4:])
    alone = run_grid(plans[:4], RunStore(tmp_path / "alone"))
    for plan, one in zip(plans, alone, strict=False):
        other = beside.read(plan)
        assert one.path.name == other.path.name
        assert untimed(list(one.points)) == untimed(list(other.points))
        assert [point for each, point in heard if each == plan] == list(other.points)


def test_the_table_of_a_comparison_does_without_runs_that_failed(tmp_path, undrawn):
    line = (
        "compare --lr 1e6 --model tiny_cnn --limit 128 --epochs 2 --seeds 2 --no-shorter "
        "--evaluations 2 --strategies traditional,selective-backprop --out out"
    )
    outcome = run_command(line, tmp_path)
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 2
    for seed in (0, 1):
        assert f"selective-backprop, seed {seed}: 64 of 64 losses are not finite" in outcome.err
    assert outcome.err.count("Lower the learning rate: --lr of train and compare.\n") == 2
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| selective-backprop (2 unfinished) | – |" in table
    assert "| traditional | " in table


@pytest.mark.skipif(find_spec("fcntl") is None, reason="this system has no locks")
@pytest.mark.parametrize("finishes", [True, False])
def test_runs_that_another_process_trains_are_waited_for_and_trained_only_if_it_ends_before_them(
    tmp_path, monkeypatch, finishes
):
    plans = [fixture_plan(arm, model="linear") for arm in ("traditional", "low-k", "auto")]
    data, heard, waited = few_digits(), [], []
    others = [open_session(plan, data, tmp_path, command="other's") for plan in plans[:2]]

    @contextmanager
    def while_the_other_goes_on(path):
        waited.append(path.name)
        for session in others:
            while finishes and not session.run.finished:
                session.advance(Stop())
            session.close()
        with locked(path):
            yield

    monkeypatch.setattr(grid, "locked", while_the_other_goes_on)
    with pytest.warns(sb.SelectionWarning, match=r"another process.*traditional-.*low-k-"):
        runs = run_grid(plans, RunStore(tmp_path), watch=lambda *of: heard.append(of))
    assert waited == [plans[0].record_name]
    assert all(run.finished for run in runs)
    assert [run.header.command for run in runs] == [*["other's" if finishes else ""] * 2, ""]
    assert {plan for plan, _ in heard[:3]} == {plans[2]}
    assert (heard[3:] == [(plan, None) for plan in plans[:2]]) == finishes
    assert not [path for path in tmp_path.iterdir() if "replaced" in path.name]


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


def test_a_net_that_cannot_be_read_is_named_with_what_to_do(plan, tmp_path):
    RunStore(tmp_path).weights(plan)
    (path,) = tmp_path.glob("*.weights")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(sb.RecordError, match=rf"{path.name}: .*Move that file away"):
        RunStore(tmp_path).weights(plan)


def test_a_folder_trains_it_once_and_its_cost_is_counted_for_nobody(plan, tmp_path):
    (tuned, other) = run_grid([plan, replace(plan, seed=1)], RunStore(tmp_path))
    (plain,) = run_grid([replace(plan, pretrained=None)], RunStore(tmp_path))
    assert tuned.points[-1].cost == plain.points[-1].cost == 1.0
    assert tuned.points[0].test_error != plain.points[0].test_error
    assert tuned.header.config["pretrained"] == "digits:0-4"
    (weights,) = tmp_path.glob("*.weights")
    written = weights.stat().st_mtime_ns
    again = run_grid([plan, replace(plan, seed=2)], RunStore(tmp_path))
    assert weights.stat().st_mtime_ns == written
    assert again[0].points == tuned.points
    assert other.points != tuned.points


def test_a_net_for_images_of_another_size_is_refused_before_it_is_trained(plan, tmp_path):
    wrong = replace(plan, pretrained="mnist1d")
    with pytest.raises(sb.ConfigurationError, match=r"have the shape \(40,\).* \(1, 8, 8\)"):
        RunStore(tmp_path).weights(wrong)
    assert not list(tmp_path.iterdir())
