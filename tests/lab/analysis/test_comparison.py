"""Which runs are compared, in which order, and which never are."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from fixture_runs import (
    fixture_comparison,
    fixture_header,
    fixture_history,
    fixture_record,
    fixture_run,
)

import selective_backprop as sb
from selective_backprop_lab.analysis.comparison import (
    arms,
    compared,
    leaders,
    ranking,
    read_comparable,
    read_histories,
)
from selective_backprop_lab.records.example_history import write_examples
from selective_backprop_lab.records.frame import runs_of
from selective_backprop_lab.records.schema import pack_finished


def labels(runs):
    return [*arms(fixture_comparison(runs))]


def test_traditional_comes_first_then_the_controls_then_methods_by_name():
    names = ["stale-sb", "random-scored", "auto", "traditional", "random-backprop"]
    ordered = ["traditional", "random-backprop", "random-scored", "auto", "stale-sb"]
    assert labels([fixture_run(name) for name in names]) == ordered


@pytest.mark.parametrize("config", [{"epochs": "ten"}, {"budget": 1, "budget_unit": "parsecs"}])
def test_a_length_that_means_nothing_is_refused(config):
    with pytest.raises(sb.RecordError, match="expected a number of epochs"):
        fixture_comparison([fixture_run(config=config)])


@pytest.mark.parametrize("key", ["data", "anew", "pretrained", "model"])
def test_different_data_or_models_are_never_compared(key):
    runs = [fixture_run(), fixture_run("other", config={key: "else"})]
    with pytest.raises(sb.RecordError, match=rf"{key} .*: \w+, seed 0\."):
        fixture_comparison(runs)


def test_runs_of_an_edited_rule_the_same_seed_twice_and_no_runs_are_refused():
    for year, age in ("2031", "another"), ("2020", "an older"):
        old = fixture_run("mine:rule", strategy_file="a", started=year)
        new = [fixture_run("mine:rule", seed, strategy_file="b", started="2030") for seed in (0, 1)]
        with pytest.raises(sb.RecordError, match=f"1 record of {age} version of mine:rule: mine"):
            fixture_comparison([old, *new])
    with pytest.raises(sb.RecordError, match="both traditional, seed 0"):
        fixture_comparison([fixture_run(), fixture_run()])
    with pytest.raises(sb.RecordError, match="no records"):
        fixture_comparison([])


SHORT = {"cost": 5.0, "config": {"epochs": 5}}


def crowd():
    """Four arms of two lengths, one of them unfinished, and one of the short length alone."""
    finals = {"traditional": 5.0, "good": 3.0, "bad": 9.0, "best": 2.0}
    runs = [fixture_run(arm, errors=[50.0, error]) for arm, error in finals.items()]
    runs += [fixture_run(arm, errors=[50.0, 1.0], **SHORT) for arm in ("good", "brief")]
    return fixture_comparison([*runs, fixture_run("late", upto=1, finished=False)])


def test_arms_are_ranked_by_the_final_error_of_their_longest_runs_and_unfinished_ones_last():
    *finished, last = ranking(crowd())
    assert finished == ["brief @ 5", "best @ 10", "good @ 10", "traditional @ 10", "bad @ 10"]
    assert last == "late @ 10"
    runs = [fixture_run(finished=False, upto=1), fixture_run(errors=[4.0], **SHORT)]
    assert ranking(fixture_comparison(runs)) == ["traditional @ 5"]


def test_leaders_are_traditional_and_those_that_end_lowest():
    assert leaders(crowd(), 2) == ["traditional @ 10", "best @ 10", "brief @ 5"]
    others = ["bad @ 10", "best @ 10", "good @ 10", "late @ 10", "brief @ 5"]
    assert leaders(crowd(), 9) == ["traditional @ 10", *others]


def write(folder, arm="traditional", seed=0, *, config=None, examples=12, **more):
    usual = fixture_header(arm, seed).config
    config = {**usual, "arm": arm, "seed": seed, **(config or {})}
    history = fixture_history(examples)
    return fixture_record(folder, arm, seed, history=history, config=config, **more)


def read(*places):
    evaluations, problems = read_comparable(places)
    compared(evaluations)  # which takes whatever is kept
    histories, unread = read_histories(evaluations)
    runs = runs_of(evaluations)
    paths = [Path(*pair) for pair in zip(runs.folder, runs.run, strict=True)]
    problems = [*problems, *unread]
    return SimpleNamespace(runs=runs, paths=paths, histories=histories, problems=problems)


def names(found):
    return {*zip(found.runs.arm, found.runs.seed, strict=True)}


def test_folders_and_single_records_are_read_together_and_none_twice(tmp_path):
    one, other = write(tmp_path / "a"), write(tmp_path / "b", "top-k")
    write(tmp_path / "b", "low-k")
    found = read(tmp_path / "a", other)
    assert names(found) == {("traditional", 0), ("top-k", 0)}
    assert {*found.histories} == {one, other}
    assert found.problems == []
    assert len(read(tmp_path / "a", one, tmp_path / "b").runs) == 3


def test_a_packed_record_is_read_by_its_path_as_one_in_a_file(tmp_path):
    one, other = write(tmp_path), write(tmp_path, "top-k")
    pack_finished(tmp_path)
    found = read(one)
    assert (found.paths, found.problems) == ([one], [])
    assert {*found.histories} == {one}
    with pytest.raises(sb.RecordError, match=r"no\.jsonl: no such"):
        read(other.with_name("no.jsonl"))


def test_a_record_that_is_damaged_is_left_out_and_the_rest_is_there(tmp_path):
    good, bad, empty, half = (
        write(tmp_path, arm) for arm in ("traditional", "top-k", "low-k", "el2n")
    )
    bad.write_bytes(bad.read_bytes().replace(b'"cost"', b'"most"'))
    empty.write_bytes(b"")
    half.write_bytes(half.read_bytes()[:-20])  # which is a run that did not finish
    found = read(tmp_path)
    assert {*found.paths} == {*found.histories} == {good, half}
    assert not found.runs.finished[found.runs.arm == "el2n"].item()
    assert len(found.problems) == 2
    assert f"{bad}, line 2: cost is None" in " ".join(found.problems)
    assert f"{empty}: no header" in " ".join(found.problems)
    assert all(problem.endswith("It is left out.") for problem in found.problems)


@pytest.mark.parametrize(
    ("config", "here", "there"),
    [
        ({"data": "others", "noise": 0.1}, "data others, noise 0.1", "fixture-data, noise none"),
        ({"rate": 0.25}, "rate 0.25", "rate 0.5"),
    ],
)
def test_of_records_of_two_data_sets_or_configurations_of_an_arm_the_most_are_kept(
    tmp_path, config, here, there
):
    write(tmp_path)
    for seed in (0, 1):
        write(tmp_path, "top-k", seed)
    left = write(tmp_path, "top-k", 2, config=config)
    found = read(tmp_path)
    assert names(found) == {("top-k", 0), ("top-k", 1), ("traditional", 0)}
    (problem,) = found.problems
    assert all(words in problem for words in (here, there, left.name))


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"finished": False, "started": "2030"}, {"started": "2020"}, "finished"),
        ({"started": "2020"}, {"started": "2030"}, "newer"),
    ],
)
def test_of_two_records_of_a_seed_the_finished_or_newer_one_is_kept(tmp_path, one, other, why):
    left, kept = write(tmp_path / "a", **one), write(tmp_path / "b", **other)
    found = read(tmp_path / "a", tmp_path / "b")
    assert found.paths == [kept]
    (problem,) = found.problems
    assert problem.startswith(f"{left.name} and {kept.name} are both traditional, seed 0")
    assert why in problem


def test_examples_of_another_number_or_of_other_classes_are_not_shown_beside_the_others(tmp_path):
    for seed in (0, 1):
        write(tmp_path, seed=seed)
    fewer, classes = write(tmp_path, "top-k", examples=9), write(tmp_path, "low-k")
    write_examples(fixture_history(classes=4), classes)
    found = read(tmp_path)
    assert not {fewer, classes} & found.histories.keys()
    assert "12 examples in 4 classes, but the others have 12 examples in 3" in found.problems[0]
    assert "9 examples in 3 classes, but the others have 12 examples in 3" in found.problems[1]


def test_where_there_is_nothing_to_show_everything_that_is_wrong_is_said(tmp_path):
    path = write(tmp_path)
    shutil.copy(path, path.with_name(path.name + ".replaced"))  # set aside: no record
    path.write_bytes(b"nothing\n")
    with pytest.raises(sb.RecordError, match=re.escape(f"{path}, line 1: not a line")):
        read(tmp_path)
