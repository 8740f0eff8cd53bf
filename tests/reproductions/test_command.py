import re
from dataclasses import replace

import pytest
from fixture_papers import Screen, fixture_order, fixture_scale, fixture_setting

import selective_backprop as sb
from reproductions.jiang2019 import needs
from reproductions.jiang2019.command import list_items, reproduce
from reproductions.jiang2019.judging import Verdict
from reproductions.jiang2019.registry import ITEMS, find_items, items_at
from reproductions.jiang2019.scales import SCALES, ScaleName
from selective_backprop.lab.recipe import Precision
from selective_backprop.lab.records.schema import read_runs

# So few digits are scored by so young a net that pruning may leave nothing of a class.
pytestmark = pytest.mark.filterwarnings("ignore:no example of class")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Everything, drawn from real runs."""
    out, screen = tmp_path_factory.mktemp("papers"), Screen()
    order = fixture_order(out, seeds=1)
    reproduce(screen, find_items(["all"]), order)
    return out, screen.text, order


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_is_drawn_and_written_from_records(made, name):
    out, said, _ = made
    page = (out / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"## {name}: {ITEMS[name].title}\n")
    assert all(words[:40] in page for words in ITEMS[name].reported)
    claims = name not in ("fig-3", "fig-4", "diet-images")  # which show what is there
    assert any(f"**{verdict}**" in page for verdict in Verdict) == claims
    assert page in (out / "index.md").read_text(encoding="utf-8")
    assert f"\n{name}, " in said
    if name == "table-1":
        assert "paper 1.1×" in (out / "table-1.txt").read_text(encoding="utf-8")
        assert "speed-up in CPU seconds" in said
        return
    drawn = re.findall(r">([^<]+)</t", (out / f"{name}.svg").read_text(encoding="utf-8"))
    caption = "digits, batch 32" if name == "fig-18" else "192 training examples, fixture_lab"
    assert caption in " ".join(drawn)
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_is_the_same_file_each_time_and_nothing_is_trained_again(made, monkeypatch):
    out, _, order = made
    monkeypatch.setattr(needs.Trained, "meet", None)
    drawn = (out / "fig-7.svg").read_bytes()
    reproduce(Screen(), find_items(["fig-7"]), order)
    assert (out / "fig-7.svg").read_bytes() == drawn


def test_what_the_page_has_of_other_items_stays_on_it(made, tmp_path):
    out, _, _ = made
    (tmp_path / "runs").symlink_to(out / "runs")
    whole = (out / "index.md").read_text(encoding="utf-8")
    page = tmp_path / "index.md"
    page.write_text(whole.replace("## fig-7: Error against time", "## fig-7: Once"), "utf-8")
    again = fixture_order(tmp_path, seeds=1, trains=False)
    reproduce(Screen(), find_items(["fig-7"]), again)
    assert page.read_text(encoding="utf-8") == whole
    few = replace(again.scale, items=("fig-7",))  # a scale with few items loses none of the others
    reproduce(Screen(), find_items(["fig-7"], few), replace(again, scale=few))
    assert page.read_text(encoding="utf-8") == whole
    page.unlink()
    reproduce(Screen(), find_items(["fig-7", "fig-18"]), again)
    assert re.findall(r"^## ([^:]+):", page.read_text("utf-8"), re.MULTILINE) == ["fig-7", "fig-18"]


def test_what_is_on_record_is_drawn_without_training_and_says_what_is_left_out(made, tmp_path):
    _, _, order = made
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    kept = [path for path in order.place.folder.iterdir() if "kath18" not in path.name]
    for path in kept:
        (folder / path.name).write_bytes(path.read_bytes())
    screen = Screen()
    partly = fixture_order(tmp_path, seeds=1, trains=False)
    reproduce(screen, find_items(["fig-7", "fig-18"]), partly)
    page = (tmp_path / "fig-7.md").read_text(encoding="utf-8")
    assert "Left out: 1 of 7 runs, not on record." in page
    assert "| SB |" in page
    assert "| Kath18 |" not in page
    assert len(list(folder.iterdir())) == len(kept)
    for path in folder.glob("*seed0*"):
        path.unlink()
    reproduce(screen, find_items(["fig-7", "fig-18"]), partly)
    assert "fig-7, error against time: nothing is on record" in screen.text
    nowhere = fixture_order(tmp_path / "empty", seeds=1, trains=False)
    with pytest.raises(sb.RecordError, match=r"on record in .*empty.*--no-train"):
        reproduce(screen, find_items(["fig-7"]), nowhere)


def test_a_run_that_several_items_share_is_trained_once(made):
    _, _, order = made
    runs = read_runs(order.place.folder)
    single = [len(order.needs([item])) for item in ITEMS.values()]
    assert len(runs) + 1 == len(order.needs(list(ITEMS.values()))) < sum(single)
    assert not list(order.place.folder.glob("*.partial"))


def test_records_of_other_code_are_told_of(made, tmp_path):
    _, _, order = made
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    for path in order.place.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    named = ["fig-7", "table-1"]
    path = order.needs(find_items(named[1:]))[0].file(folder)
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'"code_version": "[^"]*"', '"code_version": "git 0"', text, count=1))
    reproduce(Screen(), find_items(named), fixture_order(tmp_path, seeds=1))
    for name in named:
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert "come from different code" in page


def test_the_list_says_what_is_needed_done_and_missing(made, tmp_path):
    _, _, order = made
    done, fresh = Screen(), Screen()
    list_items(done, find_items(["fig-1", "fig-18"]), order)
    list_items(fresh, find_items(["fig-1", "fig-18"]), fixture_order(tmp_path, seeds=1))
    assert re.search(r"fig-1 .* 3 +3 +0 +– +digits", done.text)
    assert re.search(r"fig-1 .* 3 +0 +3 +\S.*digits", fresh.text)
    assert re.search(r"all .* 4 +0 +4 ", fresh.text)
    assert not list(tmp_path.iterdir())


ABSENT = fixture_setting("SVHN", data="cifar10")


def test_data_that_are_not_at_hand_are_told_of_and_the_rest_is_drawn(tmp_path):
    order = fixture_order(
        tmp_path, fixture_scale(fixture_setting(), ABSENT), root=tmp_path / "nowhere", seeds=1
    )
    reproduce(Screen(), find_items(["fig-10"]), order)
    page = (tmp_path / "fig-10.md").read_text(encoding="utf-8")
    assert "Left out, since cifar10 is not at hand" in page
    assert "nowhere" in page
    assert "CIFAR-10" in page
    screen = Screen()
    list_items(screen, find_items(["fig-10"]), order)
    assert "cifar10 missing" in screen.text
    assert "cs.toronto.edu" in screen.text


def test_an_item_without_any_data_stops_before_anything_is_trained(tmp_path):
    order = fixture_order(tmp_path, fixture_scale(ABSENT), root=tmp_path / "nowhere")
    with pytest.raises(sb.DataError, match=r"^fig-1: .*nowhere.*--root"):
        reproduce(Screen(), find_items(["fig-1"]), order)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told_of(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(sb.ConfigurationError, match="name another"):
        reproduce(Screen(), find_items(["fig-1"]), fixture_order(tmp_path))


@pytest.mark.parametrize("names", [[], ["fig-99"], ["fig-1", "tabel-1"]])
def test_what_does_not_exist_is_refused_with_what_does(names):
    with pytest.raises(sb.ConfigurationError, match=r"list, all, or fig-1|there are fig-1.*all"):
        find_items(names)


def test_items_come_once_and_in_the_order_asked_for():
    assert [item.name for item in find_items(["fig-7", "fig-1", "fig-7"])] == ["fig-7", "fig-1"]
    assert find_items(["fig-1", "all"]) == list(ITEMS.values())


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_a_scale_has_what_it_says_and_refuses_the_rest(scale):
    there = items_at(scale)
    assert [item.name for item in find_items(["all"], scale)] == [item.name for item in there]
    assert len(there) == len(scale.items or ITEMS)
    for name in ITEMS.keys() - {item.name for item in there}:
        with pytest.raises(sb.ConfigurationError, match=f"{name} is not redone at scale"):
            find_items([name], scale)


def test_scales_for_a_gpu_train_in_bf16_what_the_paper_compares():
    for name in (ScaleName.GPU, ScaleName.GPU_WIDE):
        plans = [
            entry.plan
            for item in items_at(SCALES[name])
            for panel in item.panels(SCALES[name])
            for entry in panel.entries
        ]
        assert {plan.recipe.precision for plan in plans} == {Precision.BF16}
        assert {plan.limit for plan in plans} == {None}
        assert {"traditional", "random-backprop", "selective-backprop", "stale-sb"} <= {
            plan.arm for plan in plans
        }
