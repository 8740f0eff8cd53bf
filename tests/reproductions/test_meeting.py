import pytest
from fixture_lab import untimed
from fixture_papers import fixture_scale, fixture_setting

import selective_backprop as sb
from reproductions.jiang2019.meeting import meet_all
from reproductions.jiang2019.needs import needs_of
from reproductions.jiang2019.registry import find_items
from selective_backprop.lab.records.schema import read_run
from selective_backprop.lab.runner.run_store import RunStore as Place

SCALE = fixture_scale(fixture_setting(model="tiny_cnn"))


def needs(*names, scale=SCALE, seeds=1):
    return needs_of(find_items(names), scale, seeds=seeds, device="cpu")


def place(folder):
    return Place(folder, None, "typed")


@pytest.fixture
def meet(tmp_path):
    def run(wanted, *, jobs=1, watch=lambda *_: None):
        meet_all(wanted, place(tmp_path), jobs=jobs, threads=1, watch=watch)

    return run


def test_what_is_met_tells_of_each_evaluation_and_then_of_its_end(meet):
    (need,) = needs("fig-1")[:1]
    told = []
    meet([need], watch=lambda who, words: told.append((who, words)))
    assert [who for who, _ in told] == [need] * (need.steps + 1)
    assert all(words.startswith("error ") for _, words in told[:-1])
    assert told[-1][1] is None


def test_an_interruption_costs_the_run_that_was_under_way_and_no_other(meet, tmp_path):
    wanted = needs("fig-1")
    told = []

    def watch(need, words):
        told.append(need)
        if len(told) == wanted[0].steps + 2:  # one evaluation into the second
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        meet(wanted, watch=watch)
    assert [need.is_met(tmp_path) for need in wanted] == [True, False, False]
    assert len(read_run(wanted[1].file(tmp_path)).points) == 1
    first = wanted[0].file(tmp_path).read_bytes()
    meet([need for need in wanted if not need.is_met(tmp_path)])
    assert all(need.is_met(tmp_path) for need in wanted)
    assert wanted[0].file(tmp_path).read_bytes() == first
    assert len(list(tmp_path.glob("*.partial"))) == 1


def test_a_half_written_record_is_repeated(meet, tmp_path):
    wanted = needs("fig-1")[:1]
    meet(wanted)
    path = wanted[0].file(tmp_path)
    whole = read_run(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert not wanted[0].is_met(tmp_path)
    meet(wanted)
    assert untimed(list(read_run(path).points)) == untimed(list(whole.points))


def test_a_damaged_record_is_told_of(meet, tmp_path):
    wanted = needs("fig-1")[:1]
    meet(wanted)
    path = wanted[0].file(tmp_path)
    path.write_bytes(b"no record\n" + path.read_bytes())
    with pytest.raises(sb.RecordError, match=f"{path.name}.*move that file away"):
        wanted[0].is_met(tmp_path)


def test_several_processes_record_what_one_does(meet, tmp_path):
    wanted = needs("fig-1")[1:]
    told = []
    meet(wanted, jobs=2, watch=lambda need, words: told.append((need, words)))
    beside = [read_run(need.file(tmp_path)) for need in wanted]
    assert [told.count((need, None)) for need in wanted] == [1] * len(wanted)
    alone = tmp_path / "alone"
    meet_all(wanted, place(alone), jobs=1, threads=1, watch=lambda *_: None)
    for need, run in zip(wanted, beside, strict=True):
        assert untimed(list(run.points)) == untimed(list(read_run(need.file(alone)).points))
