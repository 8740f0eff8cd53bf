from pathlib import Path

from fixture_papers import fixture_scale

from reproductions.jiang2019.needs import Needs, Trained, needs_of
from reproductions.jiang2019.probes import LossQuantiles
from reproductions.jiang2019.registry import ITEMS, find_items

SCALE = fixture_scale()


def plans(*names, others=()):
    items = find_items(names)
    found = Needs([*items, *others], SCALE, seeds=1, device="cpu").of(items)
    return {need.file(Path()).name: need.plan for need in found if isinstance(need, Trained)}


def test_items_that_share_a_run_need_it_once():
    six, seven, both = plans("fig-6"), plans("fig-7"), plans("fig-6", "fig-7", "table-1")
    assert six.keys() == seven.keys() == both.keys()


def test_a_shared_run_has_the_probes_of_all_who_may_need_it():
    (probed,) = plans("fig-3").keys()
    assert plans("fig-7")[probed].probes == ()
    shared = plans("fig-7", others=ITEMS.values())
    assert shared.keys() == plans("fig-7").keys()
    wanted = {
        probe
        for item in ITEMS.values()
        for panel in item.panels(SCALE)
        for entry in panel.entries
        if entry.plan.config() == shared[probed].config()
        for probe in entry.plan.probes
    }
    assert LossQuantiles() in wanted
    assert len(wanted) > 1
    assert set(shared[probed].probes) == wanted
    assert len(shared[probed].probes) == len(wanted)


def test_other_seeds_scales_and_devices_are_other_runs():
    def names(**changes):
        settings = {"scale": SCALE, "seeds": 2, "device": "cpu"} | changes
        return {need.file(Path()) for need in needs_of(find_items(["fig-1"]), **settings)}

    assert len(names()) == 2 * len(names(seeds=1))
    assert not names() & names(device="cuda")
