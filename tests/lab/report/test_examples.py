import base64
import io
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from fixture_examples import fixture_history
from fixture_runs import fixture_comparison, fixture_run
from PIL import Image

from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.report.examples import (
    class_shares,
    draw_classes,
    gallery,
    kept_histories,
    widest_classes,
)
from selective_backprop_lab.report.styles import styles


def kept_of(arms=("traditional", "top-k"), seeds=2, **changes):
    runs = [
        replace(fixture_run(arm, seed), path=Path(f"{arm}{seed}"))
        for arm in arms
        for seed in range(seeds)
    ]
    comparison = fixture_comparison(runs)
    histories = {run.path: fixture_history(**changes) for run in runs}
    kept, _ = kept_histories(comparison, histories)
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
    [axes] = draw_classes({"top-k": dict(enumerate(seeds))}, look).axes
    (bars,) = axes.containers
    assert [*bars.lines[0].get_xdata()] == [50.0] * 3
    for segment in bars.lines[2][0].get_segments():
        assert [end[0] for end in segment] == [0.0, 100.0]


def test_a_class_without_examples_has_no_share():
    history = fixture_history(class_name=("a", "b", "c", "d"))
    assert math.isnan(class_shares([history])[3].mean)


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
    comparison = fixture_comparison(
        [*runs, fixture_run("pathless"), fixture_run("half", finished=False)]
    )
    kept, without = kept_histories(comparison, {Path("1"): fixture_history()})
    assert {label: list(own) for label, own in kept.items()} == {"traditional": [1]}
    assert without == ["0", "pathless, seed 0"]


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


def test_of_many_runs_a_page_holds_the_examples_of_one_seed_each():
    kept, _ = kept_of([f"arm {i}" for i in range(7)], seeds=2)
    assert [run["name"].split(", ")[1] for run in gallery(kept)["runs"]] == ["seed 0"] * 7
