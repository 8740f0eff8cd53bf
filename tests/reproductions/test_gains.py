"""Gains, and what is said of them, are those that can be worked out by hand."""

from dataclasses import replace

import pytest
from fixture_runs import fixture_run

from reproductions.auto.page import added, by_job, by_kind, compose, counts
from reproductions.auto.protocol import STAGES
from reproductions.auto.results import Results, judged
from reproductions.auto.tuning import Tuned
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.frame import frame_of

BY_NAME = {each.name: each for stage in STAGES.values() for each in stage.workloads}
PLAIN, WRONG, CLICKS = (BY_NAME[name] for name in ("mnist", "mnist-20-wrong", "clicks"))
NOISE = (-0.1, 0.0, 0.1)  # of the seeds; all strategies share it


def results(workload, curve, **arms):
    """Traditional training with an error at each length, and others at those that they have."""
    ends = {("traditional", length): error for length, error in curve.items()}
    ends |= {(arm, length): error for arm, own in arms.items() for length, error in own.items()}
    runs = [
        fixture_run(arm, seed, (error + noise,), cost=length, config={"budget": length})
        for (arm, length), error in ends.items()
        for seed, noise in enumerate(NOISE)
    ]
    rates = {(arm, Budget("cost", length)): Tuned({0.1: e}) for (arm, length), e in ends.items()}
    return Results(workload, frame_of(runs), frame_of([]), rates, 0)


def column(name, *found):
    """A column of the table of jobs, by its heading."""
    table = by_job(found)
    place = [each.name for each in table.set_columns].index(name)
    return [row[place] for row in table.rows[1:]]


def verdicts(*found, arm="auto"):
    return [job.verdict for job in judged(found, arm)]


def test_the_rival_is_the_best_traditional_training_up_to_the_same_cost():
    found = results(WRONG, {2: 7, 4: 5, 8: 6, 16: 9, 32: 1}, auto={4: 5.5, 16: 4})
    assert (found.rival(4.0), found.rival(16.0)) == (4.0, 4.0)
    assert found.gain("auto", 4.0).mean == pytest.approx(0.5)
    assert found.gain("auto", 16.0).mean == pytest.approx(-1.0)
    assert verdicts(found) == ["loses", "gains"]
    assert found.change(16.0).mean == pytest.approx(-20.0)
    assert column("best traditional (after passes)", found) == ["5.00 ± 0.25 (4)"] * 2


def test_the_rival_is_chosen_by_the_tuning_seeds_and_not_by_those_that_are_judged():
    found = results(PLAIN, {4: 5, 16: 6}, auto={16: 5.5})
    lucky = {("traditional", Budget("cost", 4.0)): Tuned({0.1: 9.0})}
    found = replace(found, rates={**found.rates, **lucky})
    assert found.rival(16.0) == 16.0
    assert verdicts(found) == ["gains"]


def test_a_difference_within_its_interval_is_level_and_two_seeds_tell_nothing():
    found = results(PLAIN, {4: 5, 16: 3}, auto={4: 5, 16: 3})
    assert verdicts(found) == ["level", "level"]
    few = replace(found, runs=found.runs[found.runs.seed < 2])
    assert verdicts(few) == ["–", "–"]
    assert [row[2:5] for row in counts([few]).rows] == [("0", "0", "0")]


def test_log_loss_is_taken_times_a_hundred():
    found = results(CLICKS, {2: 5, 8: 3}, auto={2: 4, 8: 4})
    assert found.error("auto", 2.0).mean == pytest.approx(20.0)
    assert column("job, at a cost in passes", found)[0] == "Clicks at 2, 100 × log-loss"


def test_tables_count_by_kind_and_by_strategy_and_show_what_is_resolved_in_bold():
    shown = [
        results(WRONG, {4: 5, 16: 9}, auto={4: 5.5, 16: 4}, infobatch={4: 5, 16: 5}),
        results(PLAIN, {4: 5, 16: 4}, auto={4: 4, 16: 4}),
    ]
    assert [row[:5] for row in by_kind(shown).rows] == [
        ("images as published", "2", "1", "1", "0"),
        ("wrong labels", "2", "1", "0", "1"),
        ("all", "4", "2", "1", "1"),
    ]
    assert [row[0:2] for row in counts(shown).rows] == [("auto", "4"), ("infobatch", "2")]
    rows = {row[0]: row[2:4] for row in by_job(shown).rows}
    assert rows["jobs: gains, level, loses"] == ["2, 1, 1", "0, 2, 0"]
    assert rows["MNIST, 20 % wrong at 4"] == ["**+0.50**", "+0.00"]
    assert rows["MNIST at 16"] == ["+0.00", "–"]


def test_where_classes_are_skewed_the_gain_as_they_come_stands_beside():
    found = results(BY_NAME["mnist-skewed"], {2: 5, 8: 4}, auto={2: 4, 8: 4})
    errors = [(error, 9.0) for error in found.runs.error]
    shares = [{"class_shares": [0.75, 0.25]}] * len(errors)
    runs = found.runs.assign(class_errors=errors, meters=shares)
    plain = results(PLAIN, {4: 5, 16: 3}, auto={4: 5, 16: 3})
    both = replace(found, runs=runs), plain
    assert column("auto, as classes come", *both) == ["−0.75", "+0.00", "", ""]
    assert "as classes come" not in compose([plain])


def noisy(workload, curve, own):
    """As `results`, of `auto` at two lengths with errors of their own for each seed."""
    found = results(workload, curve, auto=dict.fromkeys(own, 0.0))
    chosen = found.runs.arm == "auto"
    errors = found.runs.error.where(
        ~chosen,
        [
            own[length][seed] if length in own else 0.0
            for length, seed in zip(found.runs.length, found.runs.seed, strict=True)
        ],
    )
    return replace(found, runs=found.runs.assign(error=errors))


def test_jobs_of_a_page_are_judged_together():
    # The p-values of the differences are 0.004, and 0.04.
    clear, near = (3.9, 3.9, 3.85), (3.9, 3.9, 3.25)
    alone = noisy(PLAIN, {4: 5, 16: 5}, {16: near})
    assert verdicts(alone) == ["gains"]
    both = noisy(PLAIN, {4: 5, 16: 5}, {4: clear, 16: near})
    assert verdicts(both) == ["gains", "gains"]
    pair = noisy(PLAIN, {4: 5, 16: 5}, {4: near, 16: near})
    assert verdicts(pair) == ["level", "level"]


def test_passes_are_said_of_a_job_that_gains_and_never_beyond_the_curve():
    found = results(PLAIN, {1: 9, 4: 7, 16: 5, 32: 5}, auto={4: 6, 16: 4})
    level = results(WRONG, {4: 5, 16: 3}, auto={4: 5, 16: 3})
    assert column("passes", found, level) == ["2.0", "not within 32", "", ""]  # 8 passes for 4
    assert "| passes |" not in compose([level])


def test_what_chance_does_and_what_the_oracle_gains_stand_beside():
    arms = {"auto": {4: 5.5, 16: 4}, "reseeded": {4: 5, 16: 9}, "oracle": {4: 5, 16: 1}}
    found = results(WRONG, {4: 5, 16: 9}, **arms)
    assert column("reseeded", found)[1] == "+0.00"  # its best length is 4, too
    assert column("oracle", found)[1] == "**−4.00**"
    assert by_kind([found]).rows[-1][1:5] == ("2", "0", "2", "0")
    assert "what chance does" in by_kind([found]).rows[-1][0]
    assert "what chance does" not in compose([results(PLAIN, {4: 5}, auto={4: 4})])


def test_auto_with_a_rival_is_held_against_that_rival_alone():
    arms = {"traditional+trimming": {4: 4, 16: 4}, "auto+trimming": {4: 3, 16: 4}, "auto": {4: 5}}
    found = results(WRONG, {4: 5, 16: 9}, **arms)
    assert added([found]).rows == [("trimming", "2", "1", "1", "0")]
    assert column("traditional+trimming", found) == ["**−1.00**"] * 2
    assert column("auto+trimming", found) == ["**−2.00**", "**−1.00**"]
    assert "against the treatment alone" in compose([found])


def test_what_is_not_on_record_is_named():
    empty = results(PLAIN, {})
    assert compose([empty]) == "Not on record yet: MNIST.\n"


def test_each_workload_is_of_one_kind():
    names = ("mnist-skewed", "mnist-20-wrong", "mnist-1d", "clicks", "source-bytes", "mnist-copies")
    assert [BY_NAME[name].kind for name in names] == [
        "skewed or repeated",
        "wrong labels",
        "images as published",
        "tables",
        "text",
        "skewed or repeated",
    ]
    assert BY_NAME["help-bytes-after-source-bytes"].kind == "fine-tuning"
