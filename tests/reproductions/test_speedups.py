import pytest
from fixture_papers import fixture_setting
from fixture_runs import fixture_run

from reproductions.jiang2019 import lineup
from reproductions.jiang2019.items import Filled, Panel
from reproductions.jiang2019.judging import Verdict
from reproductions.jiang2019.speedups import _judge, _one, _table
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.budget import Length

AGREES, DISAGREES, UNCLEAR = Verdict


def arm(*runs):
    return Arm(name="any", label="any", length=Length("epochs", 10.0), runs=runs)


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
        (at(5), 1.4, AGREES, "it is faster (1.4×)"),
        (at(20), 1.4, DISAGREES, "it is faster (1.4×)"),
        (NEVER, 1.4, DISAGREES, "it is faster (1.4×)"),
        (at(5), 0.8, DISAGREES, "it is no faster (0.8×)"),
        (at(20), 1.0, AGREES, "it is no faster (1.0×)"),
        (NEVER, None, AGREES, "it is not reached"),
        (at(20), None, DISAGREES, "it is not reached"),
        (at(5), None, DISAGREES, "it is not reached"),
        (SOMETIMES, None, UNCLEAR, "it is not reached"),
        (at(5, seeds=1), None, UNCLEAR, "it is not reached"),
    ],
)
def test_a_reported_speed_up_is_judged_by_its_direction(ours, said, verdict, claim):
    found = _one("it", ours, at(10), 20.0, said)
    assert (found.verdict, found.claim) == (verdict, claim)


def test_a_target_that_guessing_reaches_is_nobody_s_speed_up():
    setting = fixture_setting()
    entries = (lineup.traditional(setting), lineup.selective(setting))
    arms = tuple(
        entry.arm([fixture_run(entry.plan.arm, k, (88.0, 70.0 + k)) for k in range(3)])
        for entry in entries
    )
    found = Filled(Panel("it", setting, entries), arms)
    assert _table(found, "cost").rows[1][2:5] == ("1.00×", "1.00×", "guessing does")
    *others, last = _judge(found)
    assert last.verdict is UNCLEAR
    assert last.words == "guessing reaches 99.40 %"
    assert not any("guessing" in each.words for each in others)
