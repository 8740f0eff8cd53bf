"""The command `advise`: what to do and why, the lines to write, and a record."""

import json

import pytest
from fixture_command import run_command


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """What is said of digits of which a fifth have a wrong label, and the record of it."""
    folder = tmp_path_factory.mktemp("noisy")
    line = "advise --data digits --noise 0.2 --epochs 30 --json all/a.json"
    return run_command(line, folder, 80), json.loads((folder / "all/a.json").read_text())


def test_it_prints_the_verdict_the_reasons_and_the_code_and_nothing_else(noisy):
    outcome, said = noisy
    assert (outcome.status, outcome.err) == (0, "")
    *lines, written = outcome.out.splitlines()
    assert lines == [said["verdict"], *said["reasons"], *said["code"]]
    assert len(lines) == 4
    assert written == "Written: all/a.json."


def test_wrong_labels_are_seen_and_auto_is_advised(noisy):
    _, said = noisy
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
        ("--model linear", "No such option"),
    ],
)
def test_what_says_nothing_about_data_is_refused(options, words, tmp_path):
    outcome = run_command(f"advise {options}", tmp_path)
    assert outcome.status == 2
    assert words in outcome.text
