import base64
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import plotly.graph_objects as go
import pytest
from fixture_examples import fixture_history
from fixture_runs import fixture_run
from PIL import Image

from selective_backprop.lab.analysis.grouping import gather
from selective_backprop.lab.analysis.statistics import Estimate
from selective_backprop.lab.report.example_gallery import gallery
from selective_backprop.lab.report.inside import (
    class_shares,
    extreme_examples,
    look_inside,
    loss_spread,
    widest_classes,
)
from selective_backprop.lab.report.inside_plots import class_plot, life_plot, spread_plot
from selective_backprop.lab.report.styles import styles


def inside_of(arms=("traditional", "top-k"), seeds=2, **changes):
    runs = [
        replace(fixture_run(arm, seed), path=Path(f"{arm}{seed}"))
        for arm in arms
        for seed in range(seeds)
    ]
    comparison = gather(runs)
    histories = {run.path: fixture_history(**changes) for run in runs}
    insides, _ = look_inside(comparison, histories)
    return insides, styles(comparison.arms), frozenset(arms)


def test_the_share_of_a_class_is_what_counting_its_examples_gives():
    history = fixture_history()
    other = fixture_history(selected=np.full(12, 2, np.int32))
    found = class_shares([history, other])
    for number in range(3):
        shares = []
        for each in (history, other):
            own = [i for i in range(12) if each.label[i] == number]
            trained = sum(int(each.selected[i]) for i in own)
            shares.append(100 * trained / (each.passes * len(own)))
        assert found[number].mean == pytest.approx(fmean(shares))
        assert found[number].seeds == 2
    assert class_shares([other])[0].mean == 50.0


def test_intervals_of_shares_end_where_there_is_nothing():
    history = fixture_history(passes=3.0, selected=np.full(12, 3, np.int32))
    other = fixture_history(passes=3.0, selected=np.full(12, 0, np.int32))
    insides, look, shown = inside_of()
    runs = [run for run, _ in insides[0].runs]
    inside = replace(insides[0], runs=tuple(zip(runs, (history, other), strict=True)))
    (trace,) = class_plot([inside], look, shown).data
    assert trace["x"] == [50.0] * 3
    assert trace["error_x"]["array"] == trace["error_x"]["arrayminus"] == [50.0] * 3


def test_a_class_without_examples_has_no_share():
    history = fixture_history(class_name=("a", "b", "c", "d"))
    assert math.isnan(class_shares([history])[3].mean)
    insides, look, shown = inside_of(class_name=("a", "b", "c", "d"))
    assert class_plot(insides, look, shown).data[0]["x"][3] is None


def test_the_spread_of_losses_is_the_mean_over_seeds_of_each_quantile():
    one, other = fixture_history(), fixture_history()
    other = replace(other, cdf_loss=3 * other.cdf_loss)
    short = replace(
        other,
        cdf_loss=other.cdf_loss[:1],
        cdf_progress=other.cdf_progress[:1],
        cdf_known=other.cdf_known[:1],
    )
    spread = loss_spread([one, other, short])
    assert spread.loss == pytest.approx(2 * one.cdf_loss)
    assert spread.progress.tolist() == [0.5, 1.0]


def test_the_slider_shows_the_quantiles_of_its_moment():
    insides, look, shown = inside_of()
    plot = spread_plot(insides, look, shown)
    assert [step["name"] for step in plot.steps] == ["50 % of the run", "100 % of the run"]
    assert plot.steps[0]["x"][1] == pytest.approx([1e-5, 0.5, 1.1])
    assert plot.steps[1]["x"][0] == plot.data[0]["x"] == pytest.approx([1e-5, 0.25, 0.9])
    assert plot.data[0]["y"] == [0, 50, 100]


def test_a_run_that_saw_nothing_has_an_empty_line():
    insides, look, shown = inside_of(cdf_loss=np.full((2, 3), np.nan, np.float32))
    plot = spread_plot(insides, look, shown)
    assert plot.data[0]["x"] == [None] * 3
    json.dumps(plot.as_json(), allow_nan=False)
    none = {"cdf_progress": np.zeros(0, np.float32), "cdf_known": np.zeros(0, np.int64)}
    insides, look, shown = inside_of(cdf_loss=np.zeros((0, 3), np.float32), **none)
    assert spread_plot(insides, look, shown) is None


def test_the_most_and_the_least_selected_are_what_sorting_gives():
    history = fixture_history()

    def place(i):
        return -int(history.selected[i]), -float(history.loss_mean[i])

    found = extreme_examples(history)
    ordered = sorted(range(12), key=place)
    assert found.most.tolist() == ordered[:6]
    assert found.least.tolist() == ordered[::-1][:6]
    assert not found.even
    assert extreme_examples(fixture_history(selected=np.full(12, 7, np.int32))).even


def test_of_many_classes_those_in_which_arms_differ_most_are_shown():
    def arm(*means):
        return [Estimate(mean, math.nan, 1) for mean in means]

    # The second arm selects half as much of everything, which is no difference between classes.
    shares = [arm(20, 20, 20, 20), arm(10, 6, 10, 14)]
    assert widest_classes(shares, 2) == [1, 3]
    assert widest_classes(shares[1:], 1) == [1]
    assert widest_classes(shares, 9) == [0, 1, 2, 3]


def test_runs_without_a_history_are_named():
    runs = [replace(fixture_run(seed=seed), path=Path(str(seed))) for seed in range(2)]
    comparison = gather([*runs, fixture_run("pathless"), fixture_run("half", finished=False)])
    insides, without = look_inside(comparison, {Path("1"): fixture_history()})
    assert [run.header.seed for run, _ in insides[0].runs] == [1]
    assert [(run.header.arm, run.header.seed) for run in without] == [
        ("traditional", 0),
        ("pathless", 0),
    ]


def test_the_gallery_says_of_each_example_what_its_history_says():
    clean = np.array([2, *range(1, 12)]) % 3
    insides, look, _ = inside_of(label_clean=clean)
    found = json.loads(json.dumps(gallery(insides, look), allow_nan=False))
    history = insides[0].histories[0]
    assert [(run["arm"], run["seed"]) for run in found["runs"]] == [
        ("traditional", 0),
        ("traditional", 1),
        ("top-k", 0),
        ("top-k", 1),
    ]
    run = found["runs"][0]
    ends = extreme_examples(history)
    assert (run["most"], run["least"]) == (ends.most.tolist(), ends.least.tolist())
    for index, example in run["examples"].items():
        i = int(index)
        assert example["label"] == history.label[i]
        assert example["prediction"] == history.prediction[i]
        assert example["selected"] == history.selected[i]
        assert example["confidence"] == pytest.approx(history.confidence[i], rel=0.005)
        assert example["loss"] == pytest.approx(history.loss_mean[i], rel=0.005)
        assert example.get("clean") == (2 if i == 0 else None)
    assert run["epochs"] == [1, 2, 3, 4]
    for row, index in enumerate(history.life_index.tolist()):
        life = run["lives"][str(index)]
        loss = [math.nan if each is None else each for each in life["loss"]]
        assert loss == pytest.approx(history.life_loss[row], rel=0.005, nan_ok=True)
        odds = [math.nan if each is None else each for each in life["probability"]]
        assert odds == pytest.approx(100 * history.life_probability[row], rel=0.005, nan_ok=True)
        assert life["selected"] == history.life_selected[row].tolist()


def test_portraits_are_the_images_themselves():
    insides, look, _ = inside_of()
    portraits = gallery(insides, look)["portraits"]
    assert set(portraits) == set(range(12))
    kind, _, content = portraits[3]["image"].partition(",")
    assert kind == "data:image/png;base64"
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert image.tolist() == fixture_history().portrait_image[3, :, :, 0].tolist()


def test_colour_portraits_are_in_colour():
    pixels = np.arange(12 * 48, dtype=np.uint8).reshape(12, 4, 4, 3)
    insides, look, _ = inside_of(portrait_image=pixels)
    content = gallery(insides, look)["portraits"][0]["image"].partition(",")[2]
    assert np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))).tolist() == (
        pixels[0].tolist()
    )


def test_examples_that_are_no_images_are_shown_as_text_cut_short_or_by_index():
    texts = ("short", "long " * 100, *["x"] * 10)
    insides, look, _ = inside_of(portrait_image=None, portrait_text=texts)
    portraits = gallery(insides, look)["portraits"]
    assert portraits[0] == {"text": "short"}
    assert len(portraits[1]["text"]) == 301
    insides, look, _ = inside_of(portrait_image=None)
    assert gallery(insides, look)["portraits"] == {}


def test_of_many_runs_a_page_holds_the_examples_of_one_seed_an_arm():
    insides, look, _ = inside_of([f"arm {i}" for i in range(7)], seeds=2)
    assert [run["seed"] for run in gallery(insides, look)["runs"]] == [0] * 7


def test_plotly_accepts_the_figures_and_their_slider():
    insides, look, shown = inside_of(arms=("<b>&", "top-k"))
    for plot in (make(insides, look, shown) for make in (spread_plot, class_plot, life_plot)):
        json.dumps(plot.as_json(), allow_nan=False)
        go.Figure(plot.data, plot.layout)
        assert [entry.label for entry in plot.legend] == ["<b>&", "top-k"]
        assert "<b>" not in json.dumps([trace["name"] for trace in plot.data])
        for step in plot.steps:
            assert [len(x) for x in step["x"]] == [len(trace["y"]) for trace in plot.data]
