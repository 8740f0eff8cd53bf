import base64
import io
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import numpy as np
import pytest
from fixture_runs import fixture_comparison, fixture_history, fixture_run, fixture_seeds
from matplotlib.figure import Figure
from PIL import Image

from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.report import report as _report
from selective_backprop_lab.report.panels import styles
from selective_backprop_lab.report.report import (
    class_shares,
    draw_classes,
    gallery,
    kept_histories,
    widest_classes,
    write_report,
)

NASTY = '<script>alert("x")</script>&</script><!--{{ 7 }}'
GAIN = "The gain of each strategy"
OVERVIEW = "Error as training goes on, and at its end"


class Page(HTMLParser):
    """What a page holds: its text and its elements."""

    VOID = frozenset({"br", "meta", "img", "source"})

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.source = source
        self.elements = []
        self.open = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def figures(self):
        """The texts of the figures, by their titles."""
        found = {}
        for image in self.of("img"):
            content = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
            found[image["alt"]] = " ".join(ElementTree.fromstring(content).itertext())
        return found


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Writes a report and reads it; its large figure, which takes a second, only if asked to."""

    def write(runs, *, whole=False, **more):
        path = tmp_path / "deep" / "report.html"
        if not whole:
            monkeypatch.setattr(_report, "overview", lambda *_, **__: Figure())
        write_report(fixture_comparison(runs), path, **more)
        return Page(path.read_text(encoding="utf-8"))

    return write


def runs_of(*lengths):
    return [
        run
        for epochs in lengths
        for name in ("traditional", "selective-backprop")
        for run in fixture_seeds(
            name, [5.0, 6.0, 7.0], cost=float(epochs), config={"epochs": epochs}
        )
    ]


def located(*runs):
    """The same runs as if they had been read, with histories of their examples."""
    runs = [replace(run, path=Path(f"{i}.jsonl")) for i, run in enumerate(runs)]
    return runs, {run.path: fixture_history() for run in runs}


def test_a_report_tells_what_ran_what_came_out_and_how_to_do_it_again(report):
    page = report(runs_of(10), whole=True)
    said = ["6.00 ± 2.48", "Wall seconds", "git 0123456789ab", "selective-backprop compare"]
    said += ["The 6 records behind this page", "Cost is counted in passes"]
    for words in (
        *said,
        "level",
        "Which strategy learns cheapest? fixture-data, fixture-net",
        "fixture-data · fixture-net · 10 epochs · seeds 0 to 2 · Fixture CPU",
        "Does selection pay here? Not shown. On fixture-data, plain training ends at 6.00 % error",
    ):
        assert words in page.text, words
    assert [*page.figures] == [GAIN, OVERVIEW]
    assert "Where the time went" in page.figures[OVERVIEW]
    assert "prefers-color-scheme: dark" in page.source
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.of("meta")
    (stacked,) = page.of("source")  # a phone shows it instead of the overview
    content = base64.b64decode(stacked["srcset"].partition(",")[2])
    sides = ElementTree.fromstring(content).get("viewBox").split()
    assert (stacked["media"], float(sides[3]) > 2 * float(sides[2])) == ("(max-width: 40rem)", True)
    assert sum(cell["class"] == "right gain" for cell in page.of("td")) == 2


def test_nothing_is_asked_of_any_server_and_there_is_no_script(report):
    runs, histories = located(*runs_of(10))
    page = report(runs, histories=histories)
    assert all(image["src"].startswith("data:") for image in page.of("img"))
    assert not [a for _, a in page.elements if {"href", "action", "data"} & set(a)]
    assert not re.search(r'url\("(?!data:)|@import|<script', page.source)
    (policy,) = [
        a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert "http" not in policy


def test_every_text_of_a_record_is_escaped(report):
    config = dict.fromkeys(("data", "model", "lr"), NASTY)
    changes = {**dict.fromkeys(("command", "code_version", "started"), NASTY)}
    changes |= {"versions": {NASTY: NASTY}, "hardware": {"cpu": NASTY, "gpu": NASTY}}
    run = fixture_run(NASTY, config=config, **changes)
    run = replace(run, path=Path("a.jsonl"))
    history = fixture_history(class_name=(NASTY,) * 3)
    page = report([run, fixture_run(config=config)], histories={run.path: history})
    assert page.text.count(NASTY) >= 9
    assert "<script>alert" not in page.source


@pytest.mark.parametrize(
    "runs",
    [
        [fixture_run(finished=False, upto=0)],
        [fixture_run(errors=[math.nan, math.nan]), fixture_run("other")],
        [fixture_run(errors=[0.0]), fixture_run("other", errors=[0.0])],
        [fixture_run(config={}, versions={}, hardware={})],
    ],
    ids=range(4),
)
def test_partial_and_odd_sets_get_a_report(report, runs):
    assert "How to read this" in report(runs, whole=True).text


def test_with_histories_a_page_shows_classes_and_examples(report):
    runs, histories = located(*runs_of(10))
    page = report(runs, histories=histories)
    assert [title.split()[1] for title in page.figures][2:] == ["much"]
    runs = [summary for tag, summary in page.elements if tag == "details"]
    assert len(runs) == 1 + 6
    assert sum("open" in each for each in runs) == 1
    assert "How much of each class" in page.text
    assert ".examples.npz" not in page.text
    faces = [a for a in page.of("span") if a.get("role") == "img"]
    assert len(faces) == 6 * 12
    assert page.source.count("background-image") == 12


def test_without_histories_a_page_says_what_is_missing_and_how_to_get_it(report):
    page = report(runs_of(10))
    assert "No finished run here has a history of its examples." in page.text
    assert "reproduce and study do not" in page.text
    assert "repeat the compare or train with --again" in page.text
    assert "Which examples" not in page.text


def test_with_some_histories_a_page_names_the_records_that_have_none(report):
    runs, histories = located(*runs_of(10))
    (missing,) = [run for run in runs if run.header == runs[-1].header]
    del histories[missing.path]
    page = report(runs, histories=histories)
    assert f"There is no history of the examples for {missing.path.name}." in page.text
    assert "Which examples" in page.text


def test_what_is_wrong_with_the_records_stands_above_all(report):
    page = report([fixture_run()], problems=[f"a.jsonl: {NASTY}"])
    head, _ = page.text.split(OVERVIEW)
    assert "What is wrong with the records" in head
    assert NASTY in head
    assert "What is wrong" not in report([fixture_run()]).text


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


def test_of_many_classes_those_in_which_arms_differ_most_are_shown():
    def arm(*means):
        return [Estimate(mean, math.nan, 1) for mean in means]

    # The second arm selects half as much of everything, which is no difference between classes.
    shares = [arm(20, 20, 20, 20), arm(10, 6, 10, 14)]
    assert widest_classes(shares, 2) == [1, 3]
    assert widest_classes(shares[1:], 1) == [1]
    assert widest_classes(shares, 9) == [0, 1, 2, 3]


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
