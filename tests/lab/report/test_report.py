import base64
import gzip
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fixture_examples import fixture_history
from fixture_runs import fixture_header, fixture_run, fixture_seeds
from plotly.offline import get_plotlyjs

import selective_backprop as sb
from selective_backprop.lab.report import page as _page
from selective_backprop.lab.report.report import write_report

NASTY = '<script>alert("x")</script>&</script><!--'


class Page(HTMLParser):
    """What a page holds: its text, its elements, its scripts."""

    VOID = frozenset({"meta", "rect", "line", "input"})

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.source = source
        self.elements = []
        self.open = []
        self.text = ""
        self.scripts = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data

    @property
    def plots(self):
        return {plot["name"]: plot for plot in self.data["plots"]}

    @property
    def data(self):
        (data,) = [script for script in self.scripts if script.startswith("{")]
        return json.loads(data)

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Writes a report, without Plotly's own five megabytes, and reads it."""
    monkeypatch.setattr(_page, "get_plotlyjs", lambda: "/* plotly.js */")

    def write(runs, **more):
        path = tmp_path / "deep" / "report.html"
        write_report(runs, path, **more)
        page = Page(path.read_text(encoding="utf-8"))
        assert page.open == []
        return page

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


def test_a_report_tells_what_ran_what_came_out_and_how_to_do_it_again(report):
    page = report(runs_of(10))
    for words in (
        "Which strategy learns cheapest? fixture-data, fixture-net",
        "fixture-data · fixture-net · 10 epochs · seeds 0 to 2 · Fixture CPU",
        "Nothing beat traditional training",
        "6.00 ± 2.48",
        "in wall seconds",
        "in cost",
        "1.00×",
        "Where the time went",
        "git 0123456789ab",
        "selective-backprop compare",
        "The 6 records behind this page",
        "leave evaluation out",
        "passes of traditional training",
    ):
        assert words in page.text, words
    assert set(page.plots) == {"error", "pareto", "phases"}


def test_every_figure_has_its_place_its_buttons_and_its_legend(report):
    page = report(runs_of(3, 10))
    assert set(page.plots) == {"error", "pareto", "phases"}
    places = [a["id"] for a in page.of("div") if a.get("class") == "plot"]
    assert set(places) == set(page.plots)
    buttons = page.of("button")
    for name, plot in page.plots.items():
        here = [b for b in buttons if b.get("data-plot") == name]
        assert [b["data-choice"] for b in here if "data-choice" in b] == list(plot["choices"])
        entries = {b["data-entry"] for b in buttons if b.get("data-legend") == name}
        assert entries == {trace["legendgroup"] for trace in plot["data"]}
    pressed = [b for b in buttons if b.get("data-plot") == "error" and b["aria-pressed"] == "true"]
    assert [b.get("data-choice") or b.get("data-scale") for b in pressed] == ["cost", "log"]


def test_a_crowd_gets_a_figure_of_its_final_errors_and_a_word_on_what_is_hidden(report):
    words = "Only traditional and those that end lowest are shown at first"
    few, many = (
        report([run for i in range(count) for run in fixture_seeds(f"arm {i}", [5.0 + i, 6.0 + i])])
        for count in (9, 10)
    )
    assert "final" not in few.plots
    assert words not in few.text
    assert len(many.plots["final"]["data"][0]["y"]) == 10
    assert "Final error of every arm" in many.text
    assert words in many.text
    switches = [each for each in many.of("button") if each.get("data-legend") == "error"]
    assert [each["aria-pressed"] for each in switches] == ["true"] * 5 + ["false"] * 5


def test_what_preparing_cost_is_said(report):
    spent = {"status": "finished", "meters": {"prepared_cost": 2.5}}
    page = report([fixture_run(), replace(fixture_run("el2n"), end=spent)])
    assert "el2n: 2.5 of its cost epochs were spent on preparing, before training." in page.text


def test_nothing_is_asked_of_any_server(report):
    page = report(runs_of(10))
    assert not [a for _, a in page.elements if {"src", "href", "action", "data"} & set(a)]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp", page.source)
    (policy,) = [
        a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'unsafe-inline'; style-src")
    assert "http" not in policy


def test_plotlys_button_that_uploads_a_figure_is_not_there(report):
    script = report(runs_of(10)).scripts[-1]
    assert "showSendToCloud: false" in script
    assert "plotlyServerURL: ''" in script
    assert "modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]" in script


def test_plotly_itself_is_inside_and_compressed(tmp_path):
    write_report([fixture_run()], tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    (packed,) = [script for script in page.scripts if len(script) > 1e6]
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert (tmp_path / "report.html").stat().st_size < 2.2e6


def test_light_and_dark_and_narrow_screens_are_served(report):
    page = report([fixture_run()])
    assert "prefers-color-scheme: dark" in page.source
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.of("meta")


def test_every_text_of_a_record_is_escaped(report):
    config = dict.fromkeys(("data", "model", "lr"), NASTY)
    run = fixture_run(
        NASTY,
        config=config,
        command=NASTY,
        code_version=NASTY,
        started=NASTY,
        versions={NASTY: NASTY},
        hardware={"cpu": NASTY, "gpu": NASTY},
    )
    plain = report([fixture_run()])
    page = report([run, fixture_run(config=config)])
    assert page.text.count(NASTY) >= 9
    assert len(page.of("script")) == len(plain.of("script"))
    assert "<script>alert" not in page.source
    assert page.plots["error"]["data"][0]["legendgroup"] in {NASTY, "traditional"}


def test_an_arm_without_traditional_gets_no_speed_up_and_a_word(report):
    text = report(fixture_seeds("other", [5.0, 5.0])).text
    assert "no finished traditional run to set the targets" in text
    assert "×" not in text.split("How soon each arm gets there")[1].split("Error as")[0]


def test_unfinished_runs_are_shown_as_such(report):
    page = report([fixture_run(), fixture_run("other", finished=False, upto=2)])
    assert "other(1 unfinished)" in page.text
    assert "other, seed 0, is unfinished, at 50% of its length; it is not counted." in page.text
    assert "other, seed 0, unfinished" in page.text


@pytest.mark.parametrize(
    "runs",
    [
        [fixture_run()],
        [fixture_run(finished=False, upto=0)],
        [fixture_run(errors=[math.nan, math.nan]), fixture_run("other")],
        [fixture_run(errors=[0.0]), fixture_run("other", errors=[0.0])],
        [fixture_run(seed=0), fixture_run("other", seed=1)],
        [fixture_run(config={}, versions={}, hardware={})],
        [fixture_run(command="\udcff", arm="\ud800")],
    ],
    ids=range(7),
)
def test_partial_and_odd_sets_get_a_report(report, runs):
    assert "How to read this" in report(runs).text


def test_runs_that_cannot_be_compared_leave_no_report_and_the_old_one_alone(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(sb.RecordError):
        write_report([fixture_run(), fixture_run("a", config={"model": "b"})], path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_a_report_replaces_an_older_one_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report([fixture_run()], str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_report_names_files_and_no_folders(tmp_path, report):
    run = fixture_run()
    located = type(run)(
        header=fixture_header(), points=run.points, end=run.end, path=Path(tmp_path / "a.jsonl")
    )
    page = report([located])
    assert "a.jsonl" in page.text
    assert str(tmp_path) not in page.source


def located(*runs):
    """The same runs as if they had been read, with histories of their examples."""
    runs = [replace(run, path=Path(f"{run.header.arm}-{run.header.seed}.jsonl")) for run in runs]
    return runs, {run.path: fixture_history() for run in runs}


def test_with_histories_a_page_shows_losses_classes_examples_and_lives(report):
    runs, histories = located(*runs_of(10))
    page = report(runs, histories=histories)
    assert {"spread", "classes", "life"} < set(page.plots)
    assert len(page.data["gallery"]["runs"]) == 6
    for words in ("How losses are spread", "How much of each class", "The life of one example"):
        assert words in page.text
    assert ".examples.npz" not in page.text
    places = {a["id"] for a in page.of("div") if a.get("class") == "plot"}
    assert places == set(page.plots)
    (slider,) = [a for a in page.of("input") if a["type"] == "range"]
    assert slider["data-steps"] == "spread"
    assert int(slider["max"]) == len(page.plots["spread"]["steps"]) - 1 == 1


def test_without_histories_a_page_says_what_is_missing_and_how_to_get_it(report):
    page = report(runs_of(10))
    assert page.data["gallery"] is None
    assert "No finished run here says what became of its examples." in page.text
    assert "reproduce and study do not" in page.text
    assert "the same compare or train with --again runs them anew" in page.text
    assert page.of("select") == []


def test_with_some_histories_a_page_names_the_records_that_have_none(report):
    runs, histories = located(*runs_of(10))
    (missing,) = [run for run in runs if run.header == runs[-1].header]
    del histories[missing.path]
    page = report(runs, histories=histories)
    assert f"is not kept for {missing.path.name}." in page.text
    assert len(page.data["gallery"]["runs"]) == 5


def test_what_is_wrong_with_the_records_stands_above_all(report):
    page = report([fixture_run()], problems=[f"a.jsonl: {NASTY}"])
    head, _ = page.text.split("Error as training goes on")
    assert "What is wrong with the records" in head
    assert NASTY in head
    assert "What is wrong" not in report([fixture_run()]).text


def test_texts_of_examples_cannot_end_the_data(report):
    (runs, histories) = located(*runs_of(10))
    nasty = {
        path: fixture_history(
            class_name=(NASTY,) * 3, portrait_image=None, portrait_text=(NASTY,) * 12
        )
        for path in histories
    }
    page = report(runs, histories=nasty)
    assert len(page.of("script")) == 3
    assert page.data["gallery"]["portraits"]["0"]["text"] == NASTY
