"""Settings are trained as they say, and what is missing is trained."""

import json
from dataclasses import replace

import pytest
from fixture_lab import carry_out, few_digits
from fixture_papers import Screen, fixture_order, fixture_scale, fixture_setting
from fixture_runs import fixture_run

import selective_backprop as sb
from reproductions import training
from reproductions.jiang2019.scales import EXPERIMENTS, SCALES
from reproductions.papers import find_figures
from reproductions.settings import EXAMPLES, cost_of_sb, make_arm
from reproductions.training import (
    StepTiming,
    is_done,
    pace_of,
    read_step_times,
    seconds_left,
    train_missing,
)

SETTING = fixture_setting(epochs=4, limit=256)
TRADITIONAL, SELECTIVE = (make_arm(key, SETTING).plan for key in ("traditional", "sb"))


def test_what_sb_is_expected_to_cost_is_about_what_it_costs():
    last = carry_out(SELECTIVE, few_digits()).points[-1]
    # Rows of an incomplete batch wait, and coins fall as they fall.
    assert last.cost == pytest.approx(cost_of_sb(SETTING), rel=0.15)


def test_a_run_that_ends_by_the_clock_takes_as_long_as_it_says():
    scale = SCALES["full"].ending_after(12)
    (setting, *_) = scale["main"]
    timed = make_arm("sb", setting).plan
    assert (timed.length.unit, timed.length.value) == ("seconds", 43_200)
    assert "candidates of 200 epochs" in timed.description()["schedules_follow"]
    hours = {group: {each.hours for each in own} for group, own in scale.groups.items() if own}
    assert [group for group in hours if hours[group] != {12}] == ["pruned", "scored", "remarked"]


def test_runs_of_the_same_net_and_data_are_taken_for_the_rest(tmp_path, monkeypatch):
    took = iter((40.0, 4.0, 50.0))  # of which the second is too short to say anything
    monkeypatch.setattr(
        "reproductions.training.RunStore.read",
        lambda *_: replace(
            fixture_run(device="cpu"), end={"status": "finished", "elapsed": next(took)}
        ),
    )
    monkeypatch.setattr("reproductions.training.is_recorded", lambda path: True)
    pace = pace_of([TRADITIONAL, SELECTIVE, SELECTIVE], tmp_path)
    assert [seconds_left([SELECTIVE] * runs, pace, 2) for runs in (1, 2, 3)] == [45.0, 45.0, 67.5]
    unknown = replace(TRADITIONAL, device="cuda")
    assert seconds_left([TRADITIONAL, unknown], pace, 2) is None


def test_what_is_missing_is_trained_and_how_long_it_takes_is_said(tmp_path):
    scale = fixture_scale(fixture_setting(model="tiny_cnn"))
    order = fixture_order(tmp_path, scale, seeds=1)
    plans, screen = order.jobs_of(find_figures(["fig-1"], scale)), Screen()
    train_missing(screen, plans[:1], order, order.folder)
    first = order.folder / plans[0].record_name
    before = first.read_bytes()
    train_missing(screen, plans, order, order.folder)
    assert all(is_done(plan, order.folder) for plan in plans)
    assert first.read_bytes() == before
    assert "3 runs: 1 on record, 2 to do, about " in screen.text


def test_the_longest_run_is_begun_first_where_several_run_at_a_time(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(training, "run_grid", lambda plans, *_, **__: begun.append(plans))
    keys = ("stale", "third", "random", "sb", "traditional", "half")
    plans = [make_arm(key, SETTING).plan for key in keys]
    for jobs in (1, 2):
        train_missing(Screen(), plans, fixture_order(tmp_path, jobs=jobs), tmp_path)
    assert begun[0] == plans
    order = [keys[plans.index(plan)] for plan in begun[1]]
    # 4, 3, 2.33, 2, 2 and 1.33 passes
    assert order == ["traditional", "sb", "stale", "random", "half", "third"]


def test_times_are_recorded_whole_and_read_back_and_what_is_no_record_of_them_is_told_of(tmp_path):
    timing = StepTiming(fixture_setting().recipe)
    timing.measure(tmp_path, root=None, command="typed")
    (path,) = tmp_path.iterdir()
    assert path == tmp_path / timing.record_name
    found, recorded = read_step_times(path), json.loads(path.read_text())
    assert found.config == timing.config
    assert all(found.phases[name] > 0 for name in ("forward", "backward", "step"))
    assert 0 < found.backward.low <= found.backward.median <= found.backward.high
    for changes in ({"kind": "run"}, {"hardware": "fast"}, {"phases": 3}, None):
        content = "" if changes is None else json.dumps(recorded | changes)
        path.write_text(content, encoding="utf-8")
        with pytest.raises(sb.RecordError, match=f"{path.name}.*Move that file away"):
            read_step_times(path)


# As the authors' runs were told: the learning rate from so many candidates on. Runs of the other
# schedule were told 0.8 times as many.
PUBLISHED = {
    "cifar10": {0: 0.1, 3_000_000: 0.02, 6_000_000: 0.004, 8_000_000: 0.0008},
    "cifar100": {0: 0.1, 3_000_000: 0.01, 6_000_000: 0.001},
    "svhn": {0: 0.1, 36_263_280: 0.01, 72_526_560: 0.001},
}


@pytest.mark.parametrize("data", PUBLISHED)
def test_the_learning_rate_falls_where_it_fell_in_the_authors_runs(data):
    experiment, rates = EXPERIMENTS[data], [*PUBLISHED[data].values()]
    candidates = experiment.recipe.epochs * EXAMPLES[experiment.recipe.data]
    for steps, share in ((experiment.recipe.steps, 1.0), (experiment.accelerated, 0.8)):
        recipe = replace(experiment.recipe, steps=steps)
        moments = [round(share * moment) for moment in PUBLISHED[data]]
        found = [recipe.learning_rate_at(moment / candidates) for moment in moments]
        ends = [moment - 1 for moment in (*moments[1:], candidates)]
        assert found == pytest.approx(rates)
        assert [recipe.learning_rate_at(end / candidates) for end in ends] == pytest.approx(rates)
