from dataclasses import replace

import pytest
from fixture_papers import fixture_setting, judged, panel_of
from fixture_runs import fixture_run

from reproductions.drawing import caption
from reproductions.jiang2019.times import speedup_table, speedup_tables
from reproductions.measures import Evidence
from reproductions.settings import make_arm
from selective_backprop_lab.analysis.estimates import Verdict

HOLDS, FAILS, OPEN = Verdict
SETTING = fixture_setting()


def filled(setting=SETTING, **errors):
    runs = {
        key: [fixture_run(make_arm(key, setting).plan.arm, k, each) for k, each in enumerate(own)]
        for key, own in errors.items()
    }
    return panel_of(setting, **runs)


@pytest.mark.parametrize(("other", "axes"), [("A", ["CPU seconds", "cost"]), ("B", ["cost"])])
def test_a_run_that_changed_machines_is_compared_by_cost_alone_and_the_caption_says_so(other, axes):
    changed = fixture_run("selective-backprop", device="cpu", end={"machines": ["A", other]})
    runs = {"traditional": [fixture_run(device="cpu")], "sb": [changed]}
    evidence = Evidence(None, (panel_of(**runs),))
    assert [t.title for t in speedup_tables(evidence)] == [f"it: speed-up in {x}" for x in axes]
    assert ("1 of 2 runs changed machines" in caption(evidence)) == (other == "B")


def test_the_table_compares_the_seeds_of_both_and_names_what_has_no_runs():
    sooner, later = (20.0, 10.0), (40.0, 10.0)
    found = filled(traditional=[later, later, sooner], sb=[later])
    planned = replace(found, absent=(make_arm("released", SETTING),))
    base, sb, released = speedup_table(planned, "cost").rows
    assert [base[1], sb[1]] == ["3", "1"]
    assert sb[3:6] == ("1.00×",) * 3  # of seed 0 alone, where both are as late
    assert released[:3] == ("Stale-SB, as released", "none yet", "")
    assert len(released) == len(sb)


LATE, AT_ONCE = [(50.0, 40.0 + seed) for seed in range(3)], [(10.0, 10.0)] * 3
SOMETIMES, AS_SOON = [*LATE[:2], (10.0, 5.0)], [(50.0, 40.0, 30.0, 10.0)] * 3
FASTER, SLOWER = ("sb", "CIFAR-10", "1.1× is faster (1.4×)"), ("kath18", "CIFAR-100", "no faster")
AS_FAST = ("stale", "CIFAR-100", "1.2× is as fast (1.0×), within a tenth (our limit)")
NEVER = ("stale", "CIFAR-10", "1.1× is not reached")


@pytest.mark.parametrize(
    ("row", "errors", "verdict"),
    [
        *((FASTER, AT_ONCE, HOLDS), (FASTER, LATE, OPEN), (FASTER, LATE[:2], OPEN)),
        *((SLOWER, AT_ONCE, FAILS), (SLOWER, LATE, OPEN)),
        *((AS_FAST, AS_SOON, HOLDS), (AS_FAST, AT_ONCE, FAILS), (AS_FAST, LATE, OPEN)),
        *((NEVER, LATE, OPEN), (NEVER, AT_ONCE, FAILS), (NEVER, AT_ONCE[:2], OPEN)),
        (NEVER, SOMETIMES, OPEN),
    ],
)
def test_a_reported_speed_up_is_judged_by_its_direction(row, errors, verdict):
    key, data, claim = row
    base = [(50.0, 40.0, 30.0, 10.0 + seed / 10) for seed in range(3)]
    panel = filled(fixture_setting(data), traditional=base, **{key: errors})
    found = [each for _, each in judged("table-1", panel) if claim in each.claim]
    assert found[0].verdict is verdict
