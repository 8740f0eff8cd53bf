"""The command `advise`: what was found, what to do and why, and a record."""

import json
from itertools import count

import pytest
from fixture_command import run_command

from selective_backprop.guide import _advise
from selective_backprop.guide._budget import Budget

MODEL = """
from torch import nn

def make(channels, classes, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))

class Loud(nn.Linear):
    def forward(self, rows):
        return float("inf") * super().forward(rows)

def wild(channels, classes, side):
    return nn.Sequential(nn.Flatten(), Loud(channels * side * side, classes))
"""


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advise")
    return folder, advise(folder, "make")


def advise(folder, factory, data="1x8x8/3 --limit 96"):
    """Ask by a clock that tells how often it is looked at."""
    (folder / "advised_own_model.py").write_text(MODEL)
    moments = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_advise, "Budget", lambda seconds: Budget(seconds, lambda: next(moments)))
        line = f"advise --data {data} --batch-size 8 --model advised_own_model:{factory}"
        return run_command(f"{line} --budget 10 --epochs 4 --json all/a.json", folder)


def test_it_says_what_was_measured_what_epochs_cost_what_is_known_and_what_to_do(advised):
    _, outcome = advised
    assert (outcome.status, outcome.err) == (0, "")
    assert "advised_own_model:make on 1x8x8/3, 96 examples, batches of 8, a rate" in outcome.text
    assert "A traditional epoch is" in outcome.text
    assert "of the loss and supply" in outcome.text
    firsts = {line.split()[0] for line in outcome.out.splitlines() if line.split()}
    assert {"int8", "traditional", "selective-backprop", "stale-sb", "easy-skip"} <= firsts
    assert ("equalled" in outcome.text) != ("nobody knows" in outcome.text)
    assert ("Do not select here." in outcome.text) != ("because:" in outcome.text)
    assert outcome.text.endswith("Written: all/a.json.")


def test_code_stands_in_lines_that_can_be_copied_and_phases_the_largest_first(advised):
    folder, outcome = advised
    record = json.loads((folder / "all/a.json").read_text())
    lines = outcome.out.splitlines()
    for line in record["recommendation"]["code"]:
        assert f"    {line}" in lines
    ordered = sorted(record["shares"], key=lambda phase: -record["shares"][phase])
    assert f"A traditional epoch is {ordered[0]} " in outcome.text
    assert "The images are made up" in outcome.text


def test_of_few_rounds_no_interval_is_claimed(advised):
    folder, outcome = advised
    rounds = json.loads((folder / "all/a.json").read_text())["rounds"]
    assert rounds < 6
    assert "all rounds" in outcome.text
    assert "95 %" not in outcome.text
    assert f"; {rounds} round{'s' if rounds > 1 else ''} in " in outcome.text


def test_it_writes_a_record(advised):
    folder, _ = advised
    record = json.loads((folder / "all/a.json").read_text())
    assert record["command"].startswith("selective-backprop advise --data 1x8x8/3")
    assert record["config"]["examples"] == 96
    assert record["forecasts"]["selective-backprop"]["scored"] == 96
    assert record["forecasts"]["random-backprop"]["training"] > 0
    assert record["redundancy"]["rate"] == pytest.approx(1 / 3)
    assert (record["data"], record["traits"]["sample"]) == ("1x8x8/3", 96)
    assert set(record["recommendation"]) == {"strategy", "reasons", "code"}


def test_it_says_what_the_data_are_made_up_of_unless_they_are_made_up(advised, tmp_path):
    assert "of the inputs repeat" not in advised[1].text
    outcome = advise(tmp_path, "make", "digits")
    assert (outcome.status, outcome.err) == (0, "")
    traits = json.loads((tmp_path / "all/a.json").read_text())["traits"]
    assert traits["sample"] == traits["examples"] == 1437
    assert f"{traits['copies']:.1%} of the inputs repeat another one exactly" in outcome.text
    assert "10 classes are as uncertain as 10.0 of equal size" in outcome.text
    assert f"{traits['wrong_labels']:.1%} ± " in outcome.text


def test_of_a_model_that_diverges_it_prints_and_writes_what_was_measured(tmp_path):
    outcome = advise(tmp_path, "wild")
    assert (outcome.status, outcome.err) == (0, "")
    assert "Do not select here. The model diverged" in outcome.text
    assert "losses and gradients: the copy diverged in its warm-up" in outcome.text
    assert "nan" not in outcome.text
    record = json.loads((tmp_path / "all/a.json").read_text())
    assert record["redundancy"] is None
    assert record["forecasts"]["selective-backprop"]["scored"] == 96


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--data 5", "no data set '5'; there are digits"),
        ("--data 1x8x8 --model no.such:net", "cannot be imported"),
        ("--data 1x8x8 --rate 3", "rate=3"),
        ("--data 1x8x8 --limit -5", "Invalid value for '--limit'"),
        ("--data 1x8x8 --limit 0", "Invalid value for '--limit'"),
        ("--data 1x8x8 --budget 0", "budget=0.0: a finite number above 0 is needed"),
        ("--data 1x8x8 --budget 1e-9", "the shortest answer"),
    ],
)
def test_what_cannot_be_advised_on_is_refused(options, message, tmp_path):
    outcome = run_command(f"advise --limit 48 {options} --batch-size 8", tmp_path)
    assert outcome.status == 2
    assert message in outcome.text
