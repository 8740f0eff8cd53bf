import base64
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from fixture_examples import fixture_history
from fixture_runs import fixture_run
from PIL import Image

from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.statistics import Estimate
from selective_backprop_lab.report.examples import (
    class_plot,
    class_shares,
    gallery,
    group_histories,
    life_plot,
    loss_spread,
    spread_plot,
    unevenness,
    widest_classes,
)
from selective_backprop_lab.report.styles import styles

LIVES = ("life_index", "life_loss", "life_probability", "life_selected")


def kept_of(arms=("traditional", "top-k"), seeds=2, **changes):
    runs = [
        replace(fixture_run(arm, seed), path=Path(f"{arm}{seed}"))
        for arm in arms
        for seed in range(seeds)
    ]
    comparison = gather(runs)
    histories = {run.path: fixture_history(**changes) for run in runs}
    kept, _ = group_histories(comparison, histories)
    return kept, styles(comparison)


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
    seeds = [fixture_history(passes=2.0, selected=np.full(12, n, np.int32)) for n in (2, 0, 1)]
    _, look = kept_of()
    (trace,) = class_plot({"top-k": dict(enumerate(seeds))}, look).data
    assert list(trace.x) == [50.0] * 3
    assert list(trace.error_x.array) == list(trace.error_x.arrayminus) == [50.0] * 3


def test_what_trains_on_everything_says_nothing_of_classes_and_is_left_out():
    kept, look = kept_of()
    whole = fixture_history(selected=np.full(12, 4, np.int32))
    kept = {**kept, "traditional": {0: whole}}
    assert [trace.name for trace in class_plot(kept, look).data] == ["top-k"]
    assert class_plot({"traditional": {0: whole}}, look) is None


def test_a_gallery_begins_with_the_run_whose_choice_is_least_like_chance():
    examples, passes = 1200, 10
    generator = np.random.default_rng(0)
    selected = {
        "all": np.full(examples, passes),
        "random": generator.binomial(passes, 0.3, examples),
        "seldom": np.where(np.arange(examples) % 3 < 1, 8, 1),  # a third of the examples
        "half": np.where(np.arange(examples) % 2, 7, 2),
    }
    kept = {
        name: {0: fixture_history(examples, passes=10.0, selected=own.astype(np.int32))}
        for name, own in selected.items()
    }
    found = gallery(kept)
    names = [run["name"].split(",")[0] for run in found["runs"]]
    assert names[:2] == ["seldom", "half"]
    assert found["uneven"]
    assert not gallery({"all": kept["all"]})["uneven"]
    assert unevenness(kept["seldom"][0]) == pytest.approx(
        np.var([0.8, 0.1, 0.1]) - 0.0222, abs=1e-3
    )
    assert unevenness(kept["random"][0]) == pytest.approx(0.0, abs=3e-3)


def test_a_class_without_examples_has_no_share():
    history = fixture_history(class_name=("a", "b", "c", "d"))
    assert math.isnan(class_shares([history])[3].mean)
    kept, look = kept_of(class_name=("a", "b", "c", "d"))
    assert math.isnan(class_plot(kept, look).data[0].x[3])


def test_the_spread_of_losses_is_the_mean_over_seeds_of_each_quantile():
    one, other = fixture_history(), fixture_history()
    other = replace(other, cdf_loss=3 * other.cdf_loss)
    short = replace(
        other,
        cdf_loss=other.cdf_loss[:1],
        cdf_progress=other.cdf_progress[:1],
        cdf_known=other.cdf_known[:1],
    )
    progress, loss = loss_spread([one, other, short])
    assert loss == pytest.approx(2 * one.cdf_loss)
    assert progress.tolist() == [0.5, 1.0]


def test_the_slider_shows_the_quantiles_of_its_moment():
    kept, look = kept_of(arms=("<b>&", "top-k"))
    plot = spread_plot(kept, look)
    (slider,) = plot.layout.sliders
    assert [step.label for step in slider.steps] == ["50 % of the run", "100 % of the run"]
    first, last = (step.args[0]["x"] for step in slider.steps)
    assert first[1] == pytest.approx([1e-5, 0.5, 1.1])
    assert last[0] == pytest.approx([1e-5, 0.25, 0.9])
    trace = plot.data[0]
    assert trace.x == pytest.approx(last[0])
    assert list(trace.y) == [0, 50, 100]
    assert trace.name == "&lt;b&gt;&amp;"
    assert "<b>" not in plot.to_html(include_plotlyjs=False)


def test_a_run_that_saw_nothing_has_an_empty_line_or_no_figure():
    kept, look = kept_of(cdf_loss=np.full((2, 3), np.nan, np.float32))
    plot = spread_plot(kept, look)
    assert np.isnan(plot.data[0].x).all()
    assert "NaN" not in plot.to_html(include_plotlyjs=False)
    none = {"cdf_progress": np.zeros(0, np.float32), "cdf_known": np.zeros(0, np.int64)}
    kept, look = kept_of(cdf_loss=np.zeros((0, 3), np.float32), **none)
    assert spread_plot(kept, look) is None


def test_the_most_and_the_least_selected_are_what_sorting_gives():
    history = fixture_history()

    def place(i):
        return -int(history.selected[i]), -float(history.loss_mean[i])

    run = gallery(kept_of()[0])["runs"][0]
    ordered = sorted(range(12), key=place)
    assert [card["number"] for card in run["most"]] == ordered[:6]
    assert [card["number"] for card in run["least"]] == ordered[::-1][:6]
    assert not run["even"]
    assert gallery(kept_of(selected=np.full(12, 7, np.int32))[0])["runs"][0]["even"]


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
    kept, without = group_histories(comparison, {Path("1"): fixture_history()})
    assert {label: list(own) for label, own in kept.items()} == {"traditional": [1]}
    assert [(run.header.arm, run.header.seed) for run in without] == [
        ("traditional", 0),
        ("pathless", 0),
    ]


def test_the_gallery_says_of_each_example_what_its_history_says():
    clean = np.array([2, *range(1, 12)]) % 3
    kept, _ = kept_of(label_clean=clean)
    found = gallery(kept)
    history = kept["traditional"][0]
    names = [f"{arm}, seed {seed}" for arm in ("traditional", "top-k") for seed in (0, 1)]
    assert [run["name"] for run in found["runs"]] == names
    run = found["runs"][0]
    for card in (*run["most"], *run["least"]):
        i = card["number"]
        seen = f"predicted class {history.prediction[i]} ({100 * history.confidence[i]:.0f}\u00a0%)"
        assert (card["label"], card["prediction"]) == (f"class {history.label[i]}", seen)
        assert card["is_wrong"] == (history.prediction[i] != history.label[i])
        assert card["selected"] == history.selected[i]
        assert card["clean"] == ("class 2" if i == 0 else "")


def test_an_example_that_was_never_seen_is_said_to_be_and_is_not_wrong():
    kept, _ = kept_of(prediction=np.full(12, -1), confidence=np.full(12, np.nan, np.float32))
    card = gallery(kept)["runs"][0]["most"][0]
    assert (card["prediction"], card["is_wrong"]) == ("never seen", False)


@pytest.mark.parametrize(
    "pixels",
    [fixture_history().portrait_image, np.arange(576, dtype=np.uint8).reshape(12, 4, 4, 3)],
    ids=["grey", "colour"],
)
def test_faces_are_the_images_themselves(pixels):
    kept, _ = kept_of(portrait_image=pixels)
    images = gallery(kept)["images"]
    assert set(images) == set(range(12))
    kind, _, content = images[3].partition(",")
    assert kind == "data:image/png;base64"
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert image.tolist() == np.squeeze(pixels[3]).tolist()


def test_examples_that_are_no_images_are_shown_as_text_cut_short():
    texts = ("short", "long " * 100, *["x"] * 10)
    kept, _ = kept_of(portrait_image=None, portrait_text=texts)
    found = gallery(kept)
    assert found["images"] == {}
    assert found["texts"][0] == "short"
    assert len(found["texts"][1]) <= 300
    assert gallery(kept_of(portrait_image=None)[0])["texts"] == {}


def test_of_many_runs_a_page_holds_the_examples_of_one_seed_each():
    kept, _ = kept_of([f"arm {i}" for i in range(7)], seeds=2)
    assert [run["name"].split(", ")[1] for run in gallery(kept)["runs"]] == ["seed 0"] * 7


def test_a_menu_chooses_the_example_and_another_the_seed_of_a_life():
    kept, look = kept_of(arms=("<b>&", "top-k"))
    figure = life_plot(kept, look)
    history = kept["top-k"][0]
    examples, seeds = figure.layout.updatemenus
    # All runs followed the same ones, so that the hardest comes first.
    chosen = [int(re.match(r"example (\d+), label class \d", b.label)[1]) for b in examples.buttons]
    assert chosen == sorted(history.life_index.tolist(), key=lambda i: -history.loss_mean[i])
    assert [trace.visible for trace in figure.data] == [True, False, True, False] * 2
    for seed, button in enumerate(seeds.buttons):
        visible = button.args[0]["visible"]
        assert visible == [run == seed for _ in range(4) for run in (0, 1)]
    assert [trace.name for trace in figure.data[::2]] == ["&lt;b&gt;&amp;", "top-k"] * 2
    for index, button in zip(chosen, examples.buttons, strict=True):
        change, layout = button.args
        row = history.life_index.tolist().index(index)
        assert len(change["y"]) == len(change["marker.symbol"]) == len(figure.data)
        assert change["y"][0] == pytest.approx(history.life_loss[row], rel=1e-3, nan_ok=True)
        odds = 100 * history.life_probability[row]
        assert change["y"][4] == pytest.approx(odds, rel=1e-3, nan_ok=True)
        rings = [symbol == "circle-open" for symbol in change["marker.symbol"][0]]
        assert rings == (history.life_selected[row] == 0).tolist()
        assert layout["images[0].source"].startswith("data:image/png")


def test_a_run_that_did_not_follow_an_example_has_no_line_for_it():
    kept, look = kept_of(seeds=1)
    history = kept["top-k"][0]
    lives = {name: getattr(history, name)[1:] for name in LIVES}
    fewer = {**kept, "top-k": {0: replace(history, **lives)}}
    (examples,) = life_plot(fewer, look).layout.updatemenus
    last = examples.buttons[-1]  # what one run followed stands behind what both did
    assert last.label.startswith(f"example {history.life_index[0]}, ")
    assert [len(y) for y in last.args[0]["y"]] == [4, 0, 4, 0]
    none = {name: getattr(history, name)[:0] for name in LIVES}
    assert life_plot({"top-k": {0: replace(history, **none)}}, look) is None
