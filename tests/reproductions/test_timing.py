import json

import pytest
from fixture_papers import fixture_setting

import selective_backprop as sb
from reproductions.timing import StepTiming, read_step_times

TIMING = StepTiming(fixture_setting().recipe)


def test_times_are_recorded_whole_and_read_back(tmp_path):
    TIMING.measure(tmp_path, root=None, command="typed")
    assert [path.name for path in tmp_path.iterdir()] == [TIMING.file(tmp_path).name]
    found = read_step_times(TIMING.file(tmp_path))
    assert found.config == TIMING.config()
    assert all(found.phases[name] > 0 for name in ("forward", "backward", "step"))
    assert 0 < found.backward.low <= found.backward.median <= found.backward.high


@pytest.mark.parametrize("content", ["", "{}", '{"kind": "run", "schema": 1}', "\x00"])
def test_what_is_no_record_of_times_is_told_of(tmp_path, content):
    path = TIMING.file(tmp_path)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(sb.RecordError, match=f"{path.name}.*Move that file away"):
        read_step_times(path)


@pytest.mark.parametrize(
    ("name", "value"), [("backward", {"median": "long"}), ("hardware", "fast"), ("phases", 3)]
)
def test_times_of_another_type_are_told_of(tmp_path, name, value):
    TIMING.measure(tmp_path, root=None, command="typed")
    path = TIMING.file(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}), encoding="utf-8")
    with pytest.raises(sb.RecordError, match=f"{path.name}.*Move that file away"):
        read_step_times(path)


def test_other_nets_have_files_of_their_own(tmp_path):
    other = StepTiming(fixture_setting(model="tiny_cnn").recipe)
    assert other.file(tmp_path) != TIMING.file(tmp_path)
