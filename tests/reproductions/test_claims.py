"""A claim is a row, judged by the evaluations of the arms that it names."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from fixture_papers import panel_of
from fixture_runs import fixture_run, fixture_seeds

from reproductions.claims import MEASURES, NOTHING, Case, Claim, judge
from reproductions.jiang2019.times import reaches_sooner
from reproductions.measures import Evidence, beside, timed
from reproductions.papers import FIGURES
from selective_backprop_lab.analysis.estimates import Verdict
from selective_backprop_lab.records.frame import frame_of

HOLDS, FAILS, OPEN = Verdict
ENDS = Claim("q", "{0} ends higher than {1}", MEASURES["final error"], ("sb", "traditional"))


def verdicts(claim, *panels):
    return [(found.claim, found.verdict) for _, found in judge([claim], Evidence(None, panels))]


def test_every_claim_of_a_source_is_of_a_sentence_that_it_quotes():
    rows = [(figure, claim) for figure in FIGURES.values() for claim in figure.claims]
    assert len(rows) > 100
    assert [claim for figure, claim in rows if claim.of not in figure.reported.quotes] == []


@pytest.mark.parametrize(
    ("side", "limit", "verdict"),
    [
        *(("above", 1.5, HOLDS), ("below", 1.5, FAILS), ("above", 2.0, OPEN)),
        *(("within", 2.5, HOLDS), ("within", 1.5, FAILS), ("within", 2.0, OPEN)),
    ],
)
def test_a_claim_agrees_where_the_whole_interval_lies_on_its_side_of_the_limit(
    side, limit, verdict
):
    base, own = fixture_seeds("t", (10.0, 11.0, 12.0)), fixture_seeds("s", (12.0, 13.1, 13.9))
    shown = panel_of(traditional=base, sb=own)
    ((_, found),) = verdicts(replace(ENDS, side=side, limit=limit), shown)
    assert found is verdict


@pytest.mark.parametrize(
    ("change", "axes"),
    [
        ({}, ("cpu_seconds", "cost")),
        ({"code": "git 2"}, ("cost",)),
        ({"started": "2026-01-03T00:00:00+00:00"}, ("cost",)),
        ({"seconds": math.nan, "cpu_seconds": math.nan}, ("cost",)),
        # A run takes 20 seconds.
        ({"device": "cuda", "started": "2026-01-01T00:00:21+00:00"}, ("seconds", "cost")),
        ({"device": "cuda", "started": "2026-01-01T00:00:19+00:00"}, ("cost",)),
    ],
)
def test_seconds_stand_only_where_runs_are_of_one_day_machine_and_code_and_shared_no_gpu(
    change, axes
):
    device = change.get("device", "cpu")
    one = frame_of([fixture_run(device=device)]).assign(started="2026-01-01T00:00:00+00:00")
    runs = pd.concat([one, one.assign(**change)])
    assert timed(("seconds", "cost"), runs) == axes


def sooner(mine, theirs):
    return reaches_sooner(Case((), frame_of(mine), frame_of(theirs), "seconds"), 20.0)


def at_half(*seconds, errors=(20.0, 5.0)):
    return [fixture_run("a", seed, errors, seconds=s) for seed, s in enumerate(seconds)]


def test_a_speed_up_is_a_ratio_seed_by_seed_and_what_never_arrives_is_not_faster():
    fast, slow = at_half(10.0, 11.0, 10.0), at_half(20.0, 22.0, 21.0)
    verdict, words = sooner(fast, slow)
    assert verdict is HOLDS
    assert words.startswith("2.03× as fast to 20.00 % error, in wall seconds (1.")
    assert sooner(slow, fast)[0] is FAILS
    never = at_half(20.0, 20.0, 20.0, errors=(40.0, 30.0))
    assert sooner(never, slow) == (NOTHING, "never reached 20.00 % with 3 of 3 seeds")
    once = [*never[:2], fixture_run("a", 2, (10.0, 5.0))]
    assert sooner(once, slow)[0] is OPEN
    assert sooner(never[:1], slow)[0] == NOTHING


def test_seconds_are_compared_with_the_seeds_of_one_machine_code_and_day():
    runs = [fixture_run("a", seed, (20.0, 10.0), device="cpu") for seed in range(4)]
    mine, theirs = frame_of(runs), frame_of(runs)
    changes = {"machine": "another", "code": "older", "started": "1999-01-01T00:00:00+00:00"}
    for seed, column in enumerate(changes):
        mine.loc[mine.seed == seed, column] = changes[column]
    assert [{*each.seed} for each in beside(mine, theirs)] == [{3}, {3}]
    assert beside(mine.assign(device="cuda"), theirs.assign(device="cuda"))[0].empty
