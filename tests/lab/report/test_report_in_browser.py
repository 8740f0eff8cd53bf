from dataclasses import replace
from pathlib import Path

import pytest
from fixture_browser import BROWSER, Browser
from fixture_examples import fixture_history
from fixture_runs import fixture_seeds

from selective_backprop.lab.report.report import write_report

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no browser")

ARMS = ("traditional", "random-backprop", "selective-backprop")


def write(path, **changes):
    runs = [
        replace(run, path=Path(f"{arm}-{run.header.seed}.jsonl"))
        for arm in ARMS
        for run in fixture_seeds(arm, [5.0, 6.0])
    ]
    histories = {run.path: fixture_history(**changes) for run in runs}
    write_report(runs, path, histories=histories)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def watched(browser, path, width):
    """Show a page, and let a test use it; nothing may go wrong, nor be asked of anybody."""
    if browser.shows != (path.as_uri(), width):
        browser.complaints.clear()
        browser.requests.clear()
        browser.open(path, width=width)
    yield browser
    assert browser.run("document.documentElement.dataset.state") == "drawn"
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.as_uri()]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def desktop(browser, page):
    """One page for all tests that leave it as they found it."""
    yield from watched(browser, page, 1280)


def traces(browser, plot):
    """What of a figure is to be seen, by Plotly's own account."""
    script = f"document.getElementById('{plot}').data.filter(t => t.visible !== false)"
    return browser.run(f"{script}.map(t => [t.legendgroup, t.x])")


def assert_whole(browser, width):
    """All figures are drawn, all images show, and nothing makes the page wider than the screen."""
    assert browser.run("document.documentElement.scrollWidth") <= width
    drawn = "[...document.querySelectorAll('.plot')].filter(p => p.querySelector('.main-svg'))"
    figures = ["error", "pareto", "phases", "spread", "classes", "life"]
    assert browser.run(f"{drawn}.map(p => p.id)") == figures
    tables = "[...document.querySelectorAll('table')].map(t => t.parentElement)"
    assert browser.run(f"{tables}.every(box => getComputedStyle(box).overflowX === 'auto')")
    widths = browser.run(
        "Promise.all([...document.images].map(async image => "
        "{ await image.decode(); return image.naturalWidth; }))"
    )
    assert widths == [4] * 13


def test_on_a_desktop_everything_shows(desktop):
    assert_whole(desktop, 1280)
    names = "[...document.querySelectorAll('#error .annotation')].map(a => a.textContent)"
    assert sorted(desktop.run(names)) == sorted(ARMS)


def test_light_and_dark_have_colours_of_their_own(desktop):
    title = "document.querySelector('#error .xtitle')"
    colours = f"[getComputedStyle(document.body).color, {title}.style.fill]"
    seen = []
    for scheme in ("dark", "light"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        desktop.call("Emulation.setEmulatedMedia", features=[feature])
        body = "getComputedStyle(document.body).color"
        desktop.wait(f"{title}.style.fill === {body}")
        seen.append(desktop.run(colours))
    assert seen[0] != seen[1]


def test_a_click_on_an_arm_switches_it_in_every_figure(desktop):
    figures = ("error", "pareto", "spread", "classes", "life")
    shown = {figure: {group for group, _ in traces(desktop, figure)} for figure in figures}
    assert all(set(ARMS) <= groups for groups in shown.values())
    entry = """document.querySelector('[data-legend="error"][data-entry="random-backprop"]')"""
    desktop.run(f"{entry}.click()")
    for figure in figures:
        groups = {group for group, _ in traces(desktop, figure)}
        assert groups == shown[figure] - {"random-backprop"}
    twice = f"{entry}.dispatchEvent(new Event('dblclick'))"
    desktop.run(twice)
    assert {group for group, _ in traces(desktop, "error")} == {"random-backprop"}
    desktop.run(twice)
    assert {group for group, _ in traces(desktop, "error")} == set(ARMS)


def test_buttons_choose_what_the_error_is_drawn_along(desktop):
    ends = {}
    for axis in ("seconds", "trained", "updates", "candidates", "cost"):
        button = f"""[data-plot="error"][data-choice="{axis}"]"""
        desktop.run(f"document.querySelector('{button}').click()")
        ends[axis] = round(traces(desktop, "error")[1][1][-1])
    assert ends == {"cost": 10, "seconds": 20, "trained": 3200, "updates": 100, "candidates": 6400}


def test_the_slider_goes_through_the_run(desktop):
    slider = "document.querySelector('[data-steps=spread]')"
    for place, losses, share in ((0, [1e-5, 0.5, 1.1], 50), (1, [1e-5, 0.25, 0.9], 100)):
        desktop.run(f"{slider}.value = {place}; {slider}.dispatchEvent(new Event('input'))")
        assert traces(desktop, "spread")[0][1] == pytest.approx(losses)
        text = desktop.run(f"{slider}.nextElementSibling.textContent")
        assert text == f"after {share} % of the run"


def test_a_press_on_a_portrait_shows_the_example_s_life(desktop):
    desktop.run("document.querySelector('button.portrait img[alt^=\"example 9,\"]').click()")
    assert desktop.run("document.getElementById('life-example').value") == "9"
    text = desktop.run("document.getElementById('life-face').textContent")
    assert text.startswith("Example 9, label class 0. traditional: trained on 4 ×")
    trace = "document.getElementById('life').data[0]"
    assert desktop.run(f"{trace}.y") == [0.9, 0.45, 0.225, None]
    assert desktop.run(f"{trace}.marker.symbol") == ["circle"] * 4
    desktop.run("document.querySelector('[data-measure=probability]').click()")
    assert desktop.run(f"{trace}.y.slice(0, 2)") == [40.7, 63.8]
    select = "document.getElementById('life-example')"
    desktop.run(f"{select}.value = '0'; {select}.dispatchEvent(new Event('change'))")
    assert desktop.run(f"{trace}.marker.symbol") == ["circle-open"] * 4


def test_another_arm_and_seed_can_be_chosen(desktop):
    for select, value in (("gallery-arm", "random-backprop"), ("gallery-seed", "1")):
        element = f"document.getElementById('{select}')"
        desktop.run(f"{element}.value = '{value}'; {element}.dispatchEvent(new Event('change'))")
        assert desktop.run(f"{element}.value") == value
    assert desktop.run("document.querySelectorAll('.portrait').length") == 12


def test_on_a_phone_everything_shows(browser, page):
    for phone in watched(browser, page, 390):
        assert_whole(phone, 390)


@pytest.mark.parametrize("texts", [tuple(f"text <{i}>" for i in range(12)), None])
def test_examples_without_images_show_as_text_or_by_number(browser, tmp_path, texts):
    path = write(tmp_path / "report.html", portrait_image=None, portrait_text=texts)
    for page in watched(browser, path, 390):
        assert page.run("document.images.length") == 0
        words = page.run("document.querySelector('.portrait .words').textContent")
        assert words == ("text <9>" if texts else "example 9")
        assert page.run("document.documentElement.scrollWidth") <= 390
