"""The command `bench`: tables and a record, of the user's own model too."""

import json

import pytest
from fixture_command import run_command

from selective_backprop_lab.bench import rounds


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "LEAST", 2)
        line = "bench --data 1x8x8/3 --batch-size 8 --model fixture_lab:small_net --seconds 0"
        options = "--precision bf16 --json all/a.json"
        outcome = run_command(f"{line} {options}", folder)
    return folder, outcome


def test_it_prints_what_was_measured_and_a_row_for_each_scorer_and_strategy(measured):
    _, outcome = measured
    assert (outcome.status, outcome.err) == (0, "")
    assert "fixture_lab:small_net on 1x8x8/3, images of 1x8x8, batches of 8 in bf16" in outcome.text
    assert "a rate of 1/3, on cpu; CPU seconds of the process" in outcome.text
    firsts = {line.split()[0] for line in outcome.out.splitlines() if line.split()}
    assert {"forward", "fp32", "traditional", "selective-backprop", "recorded-sb"} <= firsts


def test_it_writes_a_record(measured):
    folder, outcome = measured
    record = json.loads((folder / "all/a.json").read_text())
    assert record["command"].startswith("selective-backprop bench --data 1x8x8/3")
    assert set(record["scorers"]) - {"quantized"} == {"forward", "fp32"}
    assert record["config"]["precision"] == "bf16"
    assert record["rounds"] == 2
    assert {"code_version", "versions", "hardware", "written"} <= record.keys()
    assert [file.name for file in (folder / "all").iterdir()] == ["a.json"]
    assert outcome.text.endswith("Written: all/a.json.")


def test_what_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setattr("selective_backprop_lab.cli.bench.make_workload", None)
    said = {"folder.json": "folder.json: this is a folder", "taken/a.json": "taken cannot be"}
    for path, message in said.items():
        outcome = run_command(f"bench --data 1x8x8/2 --json {path}", tmp_path)
        assert (outcome.status, message in outcome.text) == (2, True)


def test_wrong_labels_are_seen_and_verdict_reasons_and_code_are_all_that_is_printed(tmp_path):
    line = "advise --data digits --noise 0.2 --epochs 30 --json all/a.json"
    outcome = run_command(line, tmp_path, 80)
    said = json.loads((tmp_path / "all/a.json").read_text())
    assert (outcome.status, outcome.err) == (0, "")
    *lines, written = outcome.out.splitlines()
    assert lines == [said["verdict"], *said["reasons"], *said["code"]]
    assert len(lines) == 4
    assert written == "Written: all/a.json."
    assert said["command"].startswith("selective-backprop advise --data digits")
    assert (said["data"], said["strategy"]) == ("digits", "auto")
    assert "labels look wrong" in said["verdict"]
    assert said["traits"]["wrong_labels"] == pytest.approx(0.2, abs=0.06)
    assert "sb.auto()" in said["code"][0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--data 3x32x32", "there is no data set '3x32x32'"),
        ("--limit 48 --seconds 0", "seconds=0.0: a finite number above 0 is needed"),
    ],
)
def test_what_says_nothing_about_data_is_refused(options, words, tmp_path):
    outcome = run_command(f"advise {options}", tmp_path)
    assert outcome.status == 2
    assert words in outcome.text
