from dataclasses import replace

import pytest
from fixture_runs import fixture_comparison, fixture_run, fixture_seeds

from selective_backprop_lab.analysis.facts import evaluation_note, facts, headline, notes


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"code_version": "git ffffffffffff"}, "different code: git 0123456789ab and git ffff"),
        ({"hardware": {"cpu": "Fixture CPU", "capability": "AVX2"}}, "same seed trains to other"),
        ({"versions": {"python": "3.13.0"}}, "different versions"),
        ({"config": {"batch_size": 8}}, "do not share one recipe: batch size is unset and 8"),
        ({"code_version": "git 0123456789ab + uncommitted changes"}, "had uncommitted changes"),
        ({"model_file": "edited"}, "The file of the model was changed between the runs."),
    ],
)
def test_whatever_else_differs_is_said(change, note):
    files = {"model_file": "0123456789abcdef"}
    alike = fixture_comparison([fixture_run(**files), fixture_run("other", **files)])
    assert notes(alike) == []
    mixed = fixture_comparison([fixture_run(**files), fixture_run("other", **files | change)])
    assert any(note in line for line in notes(mixed)), notes(mixed)


def test_a_group_s_own_options_and_its_seed_are_no_difference_of_recipe():
    other = fixture_run("other", config={"strategy": {"rate": 0.25}})
    seeds = [fixture_run(seed=seed, config={"seed": seed}) for seed in (0, 1)]
    for runs in ([fixture_run(), other], seeds):
        assert notes(fixture_comparison(runs)) == []


def test_the_headline_says_what_ran():
    hardware = {"cpu": "Fixture CPU", "capability": "AVX2", "cores": 2}
    ran = {"config": {"data": "digits"}, "hardware": hardware}
    runs = [fixture_run(seed=seed, **ran) for seed in range(3)]
    assert headline(fixture_comparison(runs)) == (
        "digits · fixture-net · 10 epochs · seeds 0 to 2 · Fixture CPU, AVX2, 2 cores "
        "· code git 0123456789ab"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"noise": 0.2}, "fixture-data with a fifth of the labels wrong"),
        ({"noise": 0.07, "limit": 500}, "500 training examples of fixture-data with 7 % of the"),
        (
            {"noise": 1 / 3, "composition": {"skew": 1.5, "places": 80, "noise_kind": "neighbour"}},
            "fixture-data with skewed classes (1.5), places (80) and a third of the labels wrong "
            "(neighbour)",
        ),
    ],
)
def test_what_the_data_are_made_of_is_named_with_them_and_not_in_the_recipe(config, words):
    comparison = fixture_comparison([fixture_run(config=config)])
    assert facts(comparison)["data"].startswith(words)
    assert headline(comparison).startswith(words)
    assert facts(comparison)["recipe"] == "rate 0.5"


def test_what_the_learning_rate_follows_is_in_the_recipe_and_a_note_where_it_is_unusual():
    usual = fixture_comparison([fixture_run(config={"schedules_follow": "candidates seen"})])
    assert facts(usual)["recipe"] == "rate 0.5, schedules follow candidates seen"
    assert notes(usual) == []
    config = {"schedules_follow": "share of traditional updates"}
    runs = [fixture_run(seed=seed, config=config) for seed in (0, 1)]
    [note] = notes(fixture_comparison(runs))
    assert note.startswith("The learning rate follows the share of traditional updates: an arm ")


def prepared(arm, *costs, **changes):
    """Runs of one arm, of which each spent so much before it trained."""
    return [
        replace(run, end={"status": "finished", "meters": {"prepared_cost": cost}})
        for run, cost in zip(fixture_seeds(arm, [5.0] * len(costs), **changes), costs, strict=True)
    ]


def test_what_each_length_of_a_group_spent_on_preparing_is_said_as_a_mean_over_finished_runs():
    long, short = {"config": {"epochs": 9}}, {"config": {"epochs": 3}, "cost": 3.0}
    silent = replace(fixture_run("older", **long), end={"status": "finished"})
    runs = [
        *prepared("el2n", 2.0, 3.0, **long),
        *prepared("el2n", 0.25, 0.25, **short),
        *prepared("traditional", 0.0, 0.0, **long),
        silent,
    ]
    told = [
        note.split(" of its ")[0] for note in notes(fixture_comparison(runs)) if "preparing" in note
    ]
    assert told == ["el2n @ 9: 2.5", "el2n @ 3: 0.25"]


@pytest.mark.parametrize(("seconds", "said"), [(2.0, ""), (3.0, "Testing took 38%")])
def test_that_testing_took_over_a_third_of_the_time_is_said(seconds, said):
    run = fixture_run()  # four evaluations in 20 s of training
    points = [replace(each, overhead=9.0 + i * seconds) for i, each in enumerate(run.points)]
    assert evaluation_note(fixture_comparison([replace(run, points=tuple(points))]))[:16] == said


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([{"budget": 2}, {"budget": 1}], "2 and 1 passes"),
        ([{"budget": 3, "budget_unit": "seconds"}, {"epochs": 1}], "3 seconds and 1 epoch"),
    ],
)
def test_lengths_are_put_into_words(lengths, words):
    runs = [fixture_run(config=length) for length in lengths]
    assert facts(fixture_comparison(runs))["length"] == words


@pytest.mark.parametrize(
    ("runs", "note"),
    [
        ([fixture_run("other"), fixture_run(finished=False)], "no finished traditional run"),
        (
            [*fixture_seeds("traditional", [5.0, 5.0]), *fixture_seeds("other", [5.0])],
            "do not have the same seeds",
        ),
        ([fixture_run(), fixture_run(seed=1, upto=0)], "traditional, seed 1, has no evaluation"),
        (
            [fixture_run(), fixture_run(seed=1, upto=2, finished=False)],
            "traditional, seed 1, is unfinished, at 50% of its length; it is not counted",
        ),
    ],
)
def test_what_is_missing_is_said(runs, note):
    assert any(note in line for line in notes(fixture_comparison(runs)))
