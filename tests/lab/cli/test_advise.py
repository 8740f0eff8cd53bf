"""The command `advise`: what to do and why, the lines to write, and a record."""

import json

import pytest
from fixture_command import run_command

from selective_backprop.guide._advice import advise as rule

MODEL = """
from torch import nn

def make(channels, classes, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))
"""


def advise(folder, options):
    (folder / "advised_own_model.py").write_text(MODEL)
    line = f"advise {options} --batch-size 8 --model advised_own_model:make --json all/a.json"
    return run_command(line, folder, 80)


def recorded(folder):
    return json.loads((folder / "all/a.json").read_text())


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """What is said of digits of which a fifth have a wrong label, in a terminal of 80 columns."""
    folder = tmp_path_factory.mktemp("noisy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "SKIPPED", 1.0)  # however slow the machine is just now
        return folder, advise(folder, "--data digits --noise 0.2 --epochs 30")


def test_it_prints_the_verdict_the_reasons_and_the_code_in_five_lines_and_nothing_else(noisy):
    folder, outcome = noisy
    assert (outcome.status, outcome.err) == (0, "")
    said = recorded(folder)
    *lines, written = outcome.out.splitlines()
    assert lines == [said["verdict"], *said["reasons"], *said["code"]]
    assert len(lines) <= 5
    assert written == "Written: all/a.json."


def test_wrong_labels_are_seen_and_auto_is_advised(noisy):
    folder, _ = noisy
    said = recorded(folder)
    assert said["strategy"] == "auto"
    assert "labels look wrong" in said["verdict"]
    assert said["traits"]["wrong_labels"] == pytest.approx(0.2, abs=0.06)
    assert "sb.auto()" in said["code"][0]


def test_it_writes_a_record(noisy):
    folder, _ = noisy
    record = recorded(folder)
    assert record["command"].startswith("selective-backprop advise --data digits")
    assert (record["data"], record["net"]) == ("digits", "advised_own_model:make")
    assert record["cost"]["plain"] > 0
    assert record["cost"]["measured"] > 0


def test_of_images_that_are_made_up_it_tells_the_cost_and_gives_no_verdict(tmp_path):
    outcome = advise(tmp_path, "--data 1x8x8/3 --limit 96 --seconds 1")
    assert outcome.text.startswith("No verdict: the images are made up")
    assert "a plain epoch takes" in outcome.text
    record = recorded(tmp_path)
    assert (record["strategy"], record["code"]) == (None, [])


def test_no_time_to_measure_is_refused(tmp_path):
    line = "advise --limit 48 --data 1x8x8 --seconds 0 --batch-size 8"
    outcome = run_command(line, tmp_path)
    assert outcome.status == 2
    assert "seconds=0.0: a finite number above 0 is needed" in outcome.text
