"""Everything is trained once, drawn from what is on record, and told of where it is missing."""

import re
import shutil
from dataclasses import replace

import pytest
from fixture_papers import Screen, fixture_order, fixture_scale, fixture_setting

import selective_backprop as sb
from reproductions.jiang2019.scales import SCALES
from reproductions.papers import FIGURES, figures_at, find_figures, limited, list_figures, reproduce
from reproductions.probes import LossQuantiles, LossRanks
from reproductions.settings import STRATEGIES
from selective_backprop_lab.records.schema import read_runs

# Of so few digits, pruning may leave nothing of a class, and a tenth is less than a batch.
pytestmark = pytest.mark.filterwarnings(
    "ignore:no example of class", "ignore:epoch . yielded no training batch"
)
SCALE = fixture_scale()


def named(*names):
    return find_figures(names, SCALE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything, drawn from real runs."""
    out, screen = tmp_path_factory.mktemp("papers"), Screen()
    order = fixture_order(out, seeds=1)
    reproduce(screen, named("all"), order)
    return out, screen.text, order


UNJUDGED = {"fig-3", "fig-4", "tuning", "diet-images"}
TABLES = {"table-1": "paper 1.1×", "tuning": "at 0.05", "small-gradients": "correlation of ranks"}


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "tuned"])  # of other data
def test_every_figure_is_drawn_and_written_from_records(made, name):
    out, said, _ = made
    page = (out / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"## {name}: {FIGURES[name].reported.title}\n")
    assert all(quote.text in page for quote in FIGURES[name].reported.quotes.values())
    claims = name not in UNJUDGED
    assert ("| of | claim | verdict | measured |" in page) == claims
    assert page in (out / "index.md").read_text(encoding="utf-8")
    assert f"\n{name}, " in said
    if name in TABLES:
        wanted = TABLES[name]
        assert wanted in page
        assert wanted in said
        return
    drawn = re.findall(r">([^<]+)</t", (out / f"{name}.svg").read_text(encoding="utf-8"))
    caption = "digits, batch 32" if name == "fig-18" else "192 training examples, fixture_lab"
    assert caption in " ".join(drawn)
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_the_page_has_of_other_figures_stays_on_it(made, tmp_path):
    out, _, _ = made
    (tmp_path / "runs").symlink_to(out / "runs")
    whole = (out / "index.md").read_text(encoding="utf-8")
    page = tmp_path / "index.md"
    page.write_text(whole.replace("## fig-7: Error against time", "## fig-7: Once"), "utf-8")
    again = fixture_order(tmp_path, seeds=1, trains=False)
    few = replace(SCALE, figures=("fig-7",))  # which has none of the others
    reproduce(Screen(), find_figures(["all"], few), replace(again, scale=few))
    assert page.read_text(encoding="utf-8") == whole
    page.unlink()
    reproduce(Screen(), named("fig-7", "fig-18"), again)
    assert re.findall(r"^## ([^:]+):", page.read_text("utf-8"), re.MULTILINE) == ["fig-7", "fig-18"]


def test_what_is_on_record_is_drawn_without_training_and_says_what_is_left_out(made, tmp_path):
    partly, screen = fixture_order(tmp_path, seeds=1, trains=False), Screen()
    shutil.copytree(made[2].folder, partly.folder)
    jobs = partly.jobs_of(named("fig-7"))
    kath18 = next(job for job in jobs if job.arm.startswith("kath18"))
    for job in (kath18, partly.jobs_of(named("diet-overlap"))[-1]):  # one of two panels
        (partly.folder / job.record_name).unlink()
    reproduce(screen, named("fig-7", "fig-18", "diet-overlap"), partly)
    assert "not all is on record" in screen.text
    page = (tmp_path / "fig-7.md").read_text(encoding="utf-8")
    assert f"Left out: 1 of {len(jobs)} runs, not on record. CIFAR-10: Kath18 (seed 0)." in page
    assert "| SB |" in page
    assert not (partly.folder / kath18.record_name).exists()
    for job in jobs:
        (partly.folder / job.record_name).unlink(missing_ok=True)
    reproduce(screen, named("fig-7", "fig-18"), partly)
    assert "fig-7, error against time: nothing is on record" in screen.text
    nowhere = fixture_order(tmp_path / "empty", seeds=1, trains=False)
    with pytest.raises(sb.RecordError, match=r"on record in .*empty.*--from-records"):
        reproduce(screen, named("fig-7"), nowhere)


def test_figures_show_what_there_is_of_the_strategies_that_are_asked_for(made, tmp_path):
    (tmp_path / "runs").symlink_to(made[0] / "runs")
    part, figures = limited(SCALE, named("all"), ["random", "el2n", "Traditional"], [])
    order, screen = fixture_order(tmp_path, part, seeds=1, trains=False), Screen()
    known = {name for key in part.arms for name in (key, STRATEGIES.get(key, [key] * 2)[1])}
    assert {job.arm for job in order.jobs_of(figures)} <= known
    assert not {"diet-images", "diet-overlap"} & {figure.name for figure in figures}
    few = [figure for figure in figures if figure.name in {"fig-7", "table-1"}]
    reproduce(screen, few, order)
    assert "not on record" not in screen.text
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert page.count(f"Asked for was only {', '.join(part.arms)}.") == len(few) == 2


def test_a_figure_that_needs_nothing_of_what_is_asked_for_is_refused():
    assert limited(SCALE, named("fig-5", "fig-7"), ["sb"], [])[1] == named("fig-7")
    groups = {**SCALE.groups, "gated": (fixture_setting(data="mnist"),)}
    gated = replace(SCALE, lineup=("sb",), groups=groups)
    with pytest.raises(sb.ConfigurationError, match="nothing of fig-7 is left with only kath18 on"):
        limited(gated, named("fig-7"), ["kath18"], ["digits"])


def test_a_run_that_several_figures_share_is_trained_once(made):
    _, _, order = made
    figures = figures_at(order.scale)
    single = [len(order.jobs_of([figure])) for figure in figures]
    every = order.jobs_of(figures)
    assert len(read_runs(order.folder)) + 1 == len(every) < sum(single)
    # It has the probes of every figure, so that none has to train it again.
    (probed,) = order.jobs_of(named("fig-3"))
    assert probed in order.jobs_of(named("fig-7"))
    assert {LossQuantiles(), LossRanks()} <= {*probed.probes}


def test_the_list_says_what_is_needed_done_and_missing(made, tmp_path):
    _, _, order = made
    done, fresh = Screen(), Screen()
    list_figures(done, named("fig-1", "fig-18"), order)
    list_figures(fresh, named("fig-1", "fig-18"), fixture_order(tmp_path, seeds=1))
    assert re.search(r"fig-1 +3 of 3 +– +Where the .* digits", done.text)
    assert re.search(r"fig-1 +0 of 3 +\S.* Where the .* digits", fresh.text)
    assert re.search(r"all +0 of 4 ", fresh.text)
    assert not list(tmp_path.iterdir())


ABSENT = fixture_setting("SVHN", data="cifar10")


def test_data_that_are_not_at_hand_are_told_of_and_the_rest_is_drawn(tmp_path):
    scale = fixture_scale(fixture_setting(), ABSENT)
    order = fixture_order(tmp_path, scale, root=tmp_path / "nowhere", seeds=1)
    reproduce(Screen(), named("fig-10"), order)
    page = (tmp_path / "fig-10.md").read_text(encoding="utf-8")
    assert "Left out, since cifar10 is not at hand" in page
    assert "nowhere" in page
    assert "CIFAR-10" in page
    screen = Screen()
    list_figures(screen, named("fig-10"), order)
    assert re.search(r"fig-10 +\d+ of \d+ +.*\* .* cifar10", screen.text)
    assert "cs.toronto.edu" in screen.text


def test_a_figure_without_any_data_stops_before_anything_is_trained(tmp_path):
    order = fixture_order(tmp_path, fixture_scale(ABSENT), root=tmp_path / "nowhere")
    with pytest.raises(sb.DataError, match=r"^fig-1: .*nowhere.*--root"):
        reproduce(Screen(), named("fig-1"), order)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_scale_has_what_it_says_and_refuses_the_rest(scale):
    there = figures_at(scale)
    assert find_figures(["all"], scale) == there
    tuned = 2 * int(not scale.figures and not scale.tuned)  # "tuned" and "tuning" have nothing
    assert len(there) == len(scale.figures or FIGURES) - tuned
    for name in FIGURES.keys() - {figure.name for figure in there}:
        with pytest.raises(sb.ConfigurationError, match=f"{name} is not redone at scale"):
            find_figures([name], scale)


def test_a_figure_that_shows_examples_stays_as_it_is_where_the_data_are_not_at_hand(made, tmp_path):
    (tmp_path / "runs").symlink_to(made[0] / "runs")
    (tmp_path / "fig-2.png").write_bytes(b"drawn before")
    order, screen = fixture_order(tmp_path, seeds=1, trains=False), Screen()

    def absent(name, *_, **__):
        raise sb.DataError(f"{name} is not here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reproductions.measures.load_data", absent)
        reproduce(screen, named("fig-2", "fig-3"), order)
    assert "fig-2: left as it is. digits is not here" in screen.text
    assert (tmp_path / "fig-2.png").read_bytes() == b"drawn before"
    assert (tmp_path / "fig-3.png").is_file()
