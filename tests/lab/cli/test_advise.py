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
    """What is said of images that are made up, with all that was measured."""
    folder = tmp_path_factory.mktemp("advise")
    return folder, advise(folder, "make", "1x8x8/3 --limit 96 --verbose")


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    """What is said of digits by default, in a terminal of 80 columns."""
    folder = tmp_path_factory.mktemp("verdict")
    return folder, advise(folder, "make", "digits", columns=80)


def advise(folder, factory, data, columns=120):
    """Ask by a clock that goes 100 seconds on at each look, whatever else the machine does."""
    (folder / "advised_own_model.py").write_text(MODEL)
    moments = count(step=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_advise, "Budget", lambda seconds: Budget(seconds, lambda: next(moments)))
        line = f"advise --data {data} --batch-size 8 --model advised_own_model:{factory}"
        return run_command(f"{line} --budget 1000 --epochs 4 --json all/a.json", folder, columns)


def recorded(folder):
    return json.loads((folder / "all/a.json").read_text())


def test_the_verdict_comes_first_in_five_lines_with_the_code_and_nothing_else(verdict):
    folder, outcome = verdict
    assert (outcome.status, outcome.err) == (0, "")
    said = recorded(folder)["recommendation"]
    head, _, rest = outcome.out.partition("\n\n")
    assert head.splitlines() == [said["verdict"], *said["reasons"]]
    assert len(head.splitlines()) <= 5
    assert ("Do not select here" in head) == (said["strategy"] is None)
    assert rest.splitlines() == [*(f"    {line}" for line in said["code"]), "Written: all/a.json."]
    assert len(said["code"]) >= 3
    traits = recorded(folder)["traits"]
    assert f"{traits['near_copies']:.0%} repeated; 10 classes;" in head


def test_verbose_says_what_was_measured_and_what_epochs_cost(advised):
    _, outcome = advised
    assert (outcome.status, outcome.err) == (0, "")
    assert "advised_own_model:make on 1x8x8/3, 96 examples, batches of 8, a rate" in outcome.text
    assert "A traditional epoch is" in outcome.text
    assert "of the loss and supply" in outcome.text
    firsts = {line.split()[0] for line in outcome.out.splitlines() if line.split()}
    assert {"int8", "traditional", "selective-backprop", "stale-sb", "easy-skip"} <= firsts
    assert outcome.text.endswith("Written: all/a.json.")


def test_of_images_that_are_made_up_it_tells_costs_and_gives_no_verdict(advised):
    folder, outcome = advised
    assert outcome.text.startswith("No verdict: the images are made up")
    assert "of the inputs repeat" not in outcome.text
    record = recorded(folder)
    assert (record["recommendation"]["strategy"], record["recommendation"]["code"]) == (None, [])
    assert {each["worth"] for each in record["forecasts"].values()} == {None}


def test_phases_stand_in_order_the_largest_first(advised):
    folder, outcome = advised
    shares = recorded(folder)["shares"]
    assert f"A traditional epoch is {max(shares, key=shares.__getitem__)} " in outcome.text


def test_strategies_are_ranked_by_their_worth_and_what_is_not_on_record_by_its_cost(tmp_path):
    outcome = advise(tmp_path, "make", "digits --verbose")
    _, _, table = outcome.out.partition("Strategies, by what they are likely worth")
    rows = [line.split() for line in table.splitlines() if line.endswith(("yes", " "))]
    forecasts = recorded(tmp_path)["forecasts"]
    rows = [row for row in rows if row and row[0] in forecasts]
    known = [float(row[1]) for row in rows if row[1] != "–"]
    assert known == sorted(known, reverse=True)
    assert {row[0] for row in rows[: len(known)]} >= {"traditional", "recorded-sb"}
    costs = [float(row[3]) for row in rows[len(known) :]]
    assert len(costs) > 3
    assert costs == sorted(costs)
    assert "of the inputs repeat another one exactly" in outcome.text
    assert "10 classes are as uncertain as 10.0 of equal size" in outcome.text


def test_of_few_rounds_no_interval_is_claimed(advised):
    folder, outcome = advised
    rounds = recorded(folder)["rounds"]
    assert rounds < 6
    assert "all rounds" in outcome.text
    assert "95 %" not in outcome.text
    assert f"; {rounds} round{'s' if rounds > 1 else ''} in " in outcome.text


def test_it_writes_a_record(advised):
    folder, _ = advised
    record = recorded(folder)
    assert record["command"].startswith("selective-backprop advise --data 1x8x8/3")
    assert record["config"]["examples"] == 96
    assert record["forecasts"]["selective-backprop"]["scored"] == 96
    assert record["forecasts"]["random-backprop"]["training"] > 0
    assert record["redundancy"]["rate"] == pytest.approx(1 / 3)
    assert (record["data"], record["traits"]["sample"]) == ("1x8x8/3", 96)
    assert set(record["recommendation"]) == {"strategy", "verdict", "reasons", "code"}


def test_of_a_model_that_diverges_it_prints_and_writes_what_was_measured(tmp_path):
    outcome = advise(tmp_path, "wild", "digits --verbose")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.text.startswith("No verdict: the model diverged")
    assert "losses and gradients: the copy diverged in its warm-up" in outcome.text
    assert "nan" not in outcome.text
    record = recorded(tmp_path)
    assert record["redundancy"] is None
    assert record["forecasts"]["selective-backprop"]["scored"] == 1437


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
