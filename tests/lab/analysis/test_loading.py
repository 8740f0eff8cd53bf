import re
import shutil

import pytest
from fixture_examples import fixture_history
from fixture_runs import fixture_header, fixture_point

import selective_backprop as sb
from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.loading import survey, with_histories
from selective_backprop_lab.records.example_history import examples_path, write_examples
from selective_backprop_lab.records.writer import RunWriter


def write(folder, arm="traditional", seed=0, *, config=None, finished=True, examples=12, **header):
    usual = fixture_header(arm, seed).config
    config = {**usual, "arm": arm, "seed": seed, **(config or {})}
    found = fixture_header(arm, seed, config=config, **header)
    with RunWriter.open(folder, found) as writer:
        writer.point(fixture_point())
        if finished:
            writer.end({})
    if examples:
        write_examples(fixture_history(examples), writer.path)
    return writer.path


def names(found):
    return {(run.header.arm, run.header.seed) for run in found.runs}


def test_whole_records_are_all_there_and_nothing_is_wrong(tmp_path):
    for arm in ("traditional", "top-k"):
        for seed in (0, 1):
            write(tmp_path, arm, seed)
    found = survey([tmp_path])
    assert len(found.runs) == len(found.histories) == 4
    assert found.problems == ()
    assert gather(found.runs)


def test_folders_and_single_records_are_read_together_and_none_twice(tmp_path):
    one, other = write(tmp_path / "a"), write(tmp_path / "b", "top-k")
    write(tmp_path / "b", "low-k")
    assert names(survey([tmp_path / "a", other])) == {("traditional", 0), ("top-k", 0)}
    assert len(survey([tmp_path / "a", one, tmp_path / "b"]).runs) == 3


def test_a_record_that_is_damaged_is_left_out_and_the_rest_is_there(tmp_path):
    good, bad, empty = (write(tmp_path, arm) for arm in ("traditional", "top-k", "low-k"))
    bad.write_bytes(bad.read_bytes().replace(b'"cost"', b'"most"'))
    empty.write_bytes(b"")
    found = survey([tmp_path])
    assert [run.path for run in found.runs] == [good]
    assert list(found.histories) == [good]
    assert len(found.problems) == 2
    assert f"{bad}, line 2: cost is None" in " ".join(found.problems)
    assert f"{empty}: no header" in " ".join(found.problems)
    assert all(problem.endswith("It is left out.") for problem in found.problems)


def test_a_record_that_is_half_written_is_there_as_far_as_it_goes(tmp_path):
    path = write(tmp_path, examples=0)
    path.write_bytes(path.read_bytes()[:-20])
    (run,) = survey([tmp_path]).runs
    assert (run.finished, len(run.points)) == (False, 1)


def test_of_records_of_several_data_sets_the_most_are_kept(tmp_path):
    for seed in (0, 1):
        write(tmp_path, seed=seed)
    left = write(tmp_path, config={"data": "others", "noise": 0.1})
    found = survey([tmp_path])
    assert names(found) == {("traditional", 0), ("traditional", 1)}
    (problem,) = found.problems
    assert "data others, noise 0.1" in problem
    assert "data fixture-data, noise none" in problem
    assert left.name in problem


def test_of_as_many_records_of_either_the_newest_are_kept(tmp_path):
    write(tmp_path, config={"model": "old"}, started="2020-01-01T00:00:00+00:00")
    write(tmp_path, config={"model": "new"}, started="2021-01-01T00:00:00+00:00")
    (run,) = survey([tmp_path]).runs
    assert run.header.config["model"] == "new"


def test_of_an_arm_with_two_configurations_one_is_kept(tmp_path):
    for seed in (0, 1):
        write(tmp_path, "top-k", seed)
    write(tmp_path, "traditional")
    left = write(tmp_path, "top-k", 2, config={"rate": 0.25})
    found = survey([tmp_path])
    assert names(found) == {("top-k", 0), ("top-k", 1), ("traditional", 0)}
    (problem,) = found.problems
    assert "rate 0.25" in problem
    assert "rate 0.5" in problem
    assert left.name in problem
    assert gather(found.runs)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({"finished": False, "started": "2030"}, {"started": "2020"}, "finished"),
        ({"started": "2020"}, {"started": "2030"}, "newer"),
    ],
)
def test_of_two_records_of_a_seed_the_finished_or_newer_one_is_kept(tmp_path, one, other, why):
    left, kept = write(tmp_path / "a", **one), write(tmp_path / "b", **other)
    found = survey([tmp_path / "a", tmp_path / "b"])
    assert [run.path for run in found.runs] == [kept]
    (problem,) = found.problems
    assert problem.startswith(f"{left.name} and {kept.name} are both traditional, seed 0")
    assert why in problem


def test_a_damaged_file_of_examples_costs_only_what_it_held(tmp_path):
    good, bad = write(tmp_path), write(tmp_path, "top-k")
    examples_path(bad).write_bytes(b"PK nothing")
    found = survey([tmp_path])
    assert len(found.runs) == 2
    assert list(found.histories) == [good]
    (problem,) = found.problems
    assert "damaged" in problem
    assert problem.endswith("What became of the examples of this run is not shown.")


def test_examples_without_their_record_are_named(tmp_path):
    write(tmp_path)
    lost = write(tmp_path, "top-k")
    lost.unlink()
    found = survey([tmp_path, tmp_path])
    assert len(found.runs) == 1
    (problem,) = found.problems
    assert problem.startswith(f"{examples_path(lost)}: its record {lost.name} is missing")


def test_examples_of_another_number_or_of_other_classes_are_not_shown_beside_the_others(tmp_path):
    for seed in (0, 1):
        write(tmp_path, seed=seed)
    fewer, classes = write(tmp_path, "top-k", examples=9), write(tmp_path, "low-k")
    write_examples(fixture_history(classes=4), classes)
    found = survey([tmp_path])
    assert not {fewer, classes} & found.histories.keys()
    assert "of 12 examples in 4 classes, where the others are of 12 in 3" in found.problems[0]
    assert "of 9 examples in 3 classes, where the others are of 12 in 3" in found.problems[1]


def test_where_there_is_nothing_to_show_everything_that_is_wrong_is_said(tmp_path):
    with pytest.raises(sb.RecordError, match="nowhere: no such folder"):
        survey([tmp_path / "nowhere"])
    with pytest.raises(sb.RecordError, match=r"no record to show in .*compare and train write"):
        survey([tmp_path])
    path = write(tmp_path)
    path.write_bytes(b"nothing\n")
    with pytest.raises(sb.RecordError, match=re.escape(f"{path}, line 1: not a line")):
        survey([tmp_path])


def test_what_was_set_aside_is_no_record(tmp_path):
    path = write(tmp_path)
    shutil.copy(path, path.with_name(path.name + ".replaced"))
    assert len(survey([tmp_path]).runs) == 1


def test_runs_that_are_known_keep_their_order_and_get_their_histories(tmp_path):
    for arm in ("top-k", "low-k"):
        write(tmp_path, arm)
    runs = survey([tmp_path]).runs[::-1]
    found = with_histories(runs)
    assert found.runs == runs
    assert set(found.histories) == {run.path for run in runs}
