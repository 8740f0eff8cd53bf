import pytest
from fixture_papers import fixture_setting
from fixture_runs import PHASES, fixture_run

from reproductions.jiang2019 import lineup
from reproductions.jiang2019.breakdown import (
    PARTS,
    _judge,
    _table,
    parts_at,
    target_of,
)
from reproductions.jiang2019.items import Filled, Panel
from reproductions.jiang2019.judging import Verdict

SETTING = fixture_setting()


def filled(**errors):
    entries = {
        "traditional": lineup.traditional(SETTING),
        "sb": lineup.selective(SETTING),
        "stale": lineup.stale(SETTING),
    }
    chosen = {key: entries[key] for key in errors}
    arms = tuple(
        entry.arm([fixture_run(entry.plan.arm, seed, errors[key][seed]) for seed in range(3)])
        for key, entry in chosen.items()
    )
    return Filled(Panel("it", SETTING, tuple(chosen.values())), arms)


def test_the_parts_are_all_phases_up_to_the_first_evaluation_that_shows_the_target():
    run = fixture_run(errors=(50.0, 20.0, 10.0, 12.0))
    parts = parts_at(run, 20.0)
    assert parts == {
        "selection passes": 0.5 * (PHASES["score"] + PHASES["select"]),
        "forward, training": 0.5 * PHASES["forward"],
        "backward": 0.5 * PHASES["backward"],
        "other": 0.5 * (PHASES["load"] + PHASES["step"]),
    }
    assert list(parts) == list(PARTS)
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
    assert list(_judge(found, 1.4)) == []
    assert _table(found, 1.4).title == "it: guessing reaches 1.4 × Traditional's error"
    assert {row[-2] for row in _table(found, 1.4).rows} == {"–"}


def test_who_gets_there_with_less_backward_time_agrees_and_who_never_does_disagrees():
    slow = [(50.0 + seed, 30.0, 20.0, 10.0) for seed in range(3)]
    fast = [(13.0, 13.0, 13.0, 12.0 + seed) for seed in range(3)]
    never = [(50.0, 40.0 + seed) for seed in range(3)]
    found = {
        each.claim: each for each in _judge(filled(traditional=slow, sb=fast, stale=never), 1.4)
    }
    sooner, later, backward, selection = found.values()
    assert sooner.claim == "it: SB gets there sooner than Traditional"
    assert later.claim == "it: Stale-SB gets there sooner than SB"
    assert backward.claim.endswith("less time in backward passes than Traditional")
    assert [each.verdict for each in (sooner, later, backward, selection)] == [
        Verdict.AGREES,
        Verdict.DISAGREES,
        Verdict.AGREES,
        Verdict.UNCLEAR,
    ]
    assert selection.words == "no seed with both"
