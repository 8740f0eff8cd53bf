import pytest
from fixture_papers import fixture_setting
from fixture_runs import PHASES, fixture_run

from reproductions import figures
from reproductions.figures import PanelData, PanelSpec
from reproductions.jiang2019.times import (
    PARTS,
    bars_table,
    judge_parts,
    judge_speedup,
    judge_speedups,
    judge_time,
    parts_at,
    reported_speedups,
    speedup_table,
    target_of,
)
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.budget import Budget

SETTING = fixture_setting()


def filled(**errors):
    entries = {
        "traditional": figures.entry("traditional", SETTING),
        "sb": figures.entry("sb", SETTING),
        "stale": figures.entry("stale", SETTING),
    }
    chosen = {key: entries[key] for key in errors}
    arms = tuple(
        entry.arm([fixture_run(entry.plan.arm, seed, errors[key][seed]) for seed in range(3)])
        for key, entry in chosen.items()
    )
    return PanelData(PanelSpec("it", SETTING, tuple(chosen.values())), arms)


def test_the_parts_are_all_phases_up_to_the_first_evaluation_that_shows_the_target():
    run = fixture_run(errors=(50.0, 20.0, 10.0, 12.0))
    parts = parts_at(run, 20.0)
    assert parts == {
        "selection passes": 0.5 * (PHASES["score"] + PHASES["select"]),
        "forward, training": 0.5 * PHASES["forward"],
        "backward": 0.5 * PHASES["backward"],
        "other": 0.5 * (PHASES["load"] + PHASES["step"]),
    }
    assert parts.keys() == PARTS.keys()
    assert parts_at(run, 9.9) is None


def test_the_target_is_a_multiple_of_traditional_s_final_error():
    errors = [(50.0, 10.0 + seed) for seed in range(3)]
    assert target_of(filled(traditional=errors, sb=errors), 1.4) == pytest.approx(1.4 * 11.0)
    assert target_of(filled(sb=errors), 1.4) is None


def test_a_target_that_guessing_reaches_is_none():
    errors = [(88.0, 65.0 + seed) for seed in range(3)]
    assert target_of(filled(traditional=errors), 1.2) == pytest.approx(1.2 * 66.0)
    found = filled(traditional=errors, sb=errors)
    assert target_of(found, 1.4) is None
    assert [*judge_time(found, 1.4), *judge_parts(found, 1.4)] == []
    assert bars_table(found, 1.4).title == "it: guessing reaches 1.4 × Traditional's error"
    assert {row[-2] for row in bars_table(found, 1.4).rows} == {"–"}
    assert speedup_table(found, "cost").rows[1][2:5] == ("1.00×", "1.00×", "guessing does")
    *others, last = (finding for quote, finding in judge_speedups(found) if quote[:5] == "CIFAR")
    assert (last.verdict, last.measured) == (Verdict.OPEN, "guessing reaches 92.40 %")
    assert not any("guessing" in each.measured for each in others)


def test_the_paper_s_factors_are_read_off_the_quoted_rows_of_its_table():
    assert reported_speedups("CIFAR-10", "sb") == [1.4, 1.2, 1.5]
    assert reported_speedups("CIFAR-10", "stale") == [None, 1.5, 2.0]
    assert reported_speedups("SVHN", "kath18") == [1.9, 2.8, 3.4]
    assert reported_speedups("MNIST", "sb") == reported_speedups("SVHN", "random") == []


def test_who_gets_there_sooner_with_less_of_a_part_agrees_and_who_never_does_disagrees():
    slow = [(50.0 + seed, 30.0, 20.0, 10.0) for seed in range(3)]
    fast = [(13.0, 13.0, 13.0, 12.0 + seed) for seed in range(3)]
    never = [(50.0, 40.0 + seed) for seed in range(3)]
    found = filled(traditional=slow, sb=fast, stale=never)
    parts = [(quote, each.verdict) for quote, each in judge_parts(found, 1.4)]
    assert parts == [
        ("caption", Verdict.HOLDS),  # less backward time
        ("caption", Verdict.HOLDS),  # sooner
        ("forward", Verdict.FAILS),  # half of the time is in forward passes
        ("stale", Verdict.FAILS),
        ("thirds", Verdict.OPEN),
    ]
    whole = [(quote, each.verdict) for quote, each in judge_time(found, 1.4)]
    assert whole == [
        ("backpropagations", Verdict.HOLDS),
        ("half", Verdict.HOLDS),
        ("stale", Verdict.FAILS),
        ("stale", Verdict.OPEN),
        ("selection", Verdict.HOLDS),  # of runs that select in no time
    ]


def test_one_strategy_over_another_is_judged_over_all_targets():
    slow = [(50.0 + seed, 30.0, 20.0, 10.0) for seed in range(3)]
    fast = [(13.0, 13.0, 11.0, 10.0 + seed / 10) for seed in range(3)]
    found = dict(judge_speedups(filled(traditional=slow, sb=slow, stale=fast)))
    assert found["stale-sb"].verdict is Verdict.HOLDS
    assert "26 %" in found["stale-sb"].claim


HOLDS, FAILS, OPEN = Verdict


def arm(*runs):
    return RunGroup(name="any", label="any", length=Budget("epochs", 10.0), runs=runs)


def at(seconds, seeds=3):
    """An arm that reaches 20 % after so many seconds."""
    return arm(
        *(fixture_run("a", k, (20.0, 5.0), seconds=2 * seconds + k / 10) for k in range(seeds))
    )


NEVER = arm(*(fixture_run("a", k, (40.0, 30.0)) for k in range(3)))
SOMETIMES = arm(*NEVER.runs[:2], fixture_run("a", 2, (10.0, 5.0)))


@pytest.mark.parametrize(
    ("ours", "said", "verdict", "claim"),
    [
        (at(5), 1.4, HOLDS, "it is faster (1.4×)"),
        (at(20), 1.4, FAILS, "it is faster (1.4×)"),
        (NEVER, 1.4, FAILS, "it is faster (1.4×)"),
        (at(5), 0.8, FAILS, "it is no faster (0.8×)"),
        (at(20), 1.0, HOLDS, "it is no faster (1.0×)"),
        (NEVER, None, HOLDS, "it is not reached"),
        (at(20), None, FAILS, "it is not reached"),
        (at(5), None, FAILS, "it is not reached"),
        (SOMETIMES, None, OPEN, "it is not reached"),
        (at(5, seeds=1), None, OPEN, "it is not reached"),
    ],
)
def test_a_reported_speed_up_is_judged_by_its_direction(ours, said, verdict, claim):
    found = judge_speedup("it", ours, at(10), 20.0, said)
    assert (found.verdict, found.claim) == (verdict, claim)
