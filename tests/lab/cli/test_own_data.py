"""The commands on data of the user's own, whose file lies in the current folder."""

import json
import sys

import pytest
from fixture_command import run_command

from selective_backprop_lab import names as names_of
from selective_backprop_lab.data import datasets
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.runner import grid

SMALL = "--data data_to_edit:load --epochs 6 --batch-size 32 --evaluations 2"
COMPARE = f"compare {SMALL} --strategies traditional,random-backprop --no-shorter --out out"
DATA = """
import numpy as np
import selective_backprop as sb

def load():
    with open("calls", "a") as file:
        file.write("called ")
    labels = np.arange(240) % 3
    features = np.random.default_rng({seed}).normal(4.0 * labels[:, None], 0.5, (240, 4))
    return (features[:192], labels[:192]), (features[192:], labels[192:])

def fail():
    raise FileNotFoundError("no file of mine")

half = sb.recorded_sb(0.5)

def rule(rate, warmup, epochs=6, other=None, **more):
    assert epochs == 6
    return sb.top_k(rate, schedule=sb.Schedule(start=warmup))

def timed(epochs):
    return half

def unknown(alpha):
    return half

def nothing():
    pass
"""


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Writes data of some seed, as they are for the next command, and returns their folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        sys.modules.pop("data_to_edit", None)
        for remembered in (grid.load_data, datasets.read):
            remembered.cache_clear()

    def write(seed):
        (tmp_path / "data_to_edit.py").write_text(DATA.format(seed=seed))
        forget()
        return tmp_path

    yield write
    forget()


def test_a_comparison_trains_each_strategy_and_the_second_time_none(edit, request):
    folder = edit(0)
    outcome = run_command(f"{COMPARE} --seeds 1", folder)
    assert (outcome.status, outcome.err) == (0, "")
    assert "data_to_edit:load · perceptron · 6 epochs" in outcome.text
    assert (folder / "calls").read_text() == "called "
    runs = read_runs(folder / "out")
    assert [run.header.arm for run in runs] == ["random-backprop", "traditional"]
    errors = [run.points[-1].test_error for run in runs if run.finished]
    assert len(errors) == 2
    assert max(errors) < 30  # by chance it is 67
    assert (folder / "out/report.html").exists()
    request.getfixturevalue("untrained")
    again = run_command(f"{COMPARE} --seeds 1", edit(0))
    assert again.status == 0
    assert again.out.count("recorded already, not run again") == 2


def test_a_net_that_was_trained_on_edited_data_beforehand_is_another(edit):
    train = f"train {SMALL} --strategy traditional --out out --pretrained data_to_edit:load"
    for seed in (0, 1):
        assert run_command(train, edit(seed)).status == 0
    runs = read_runs(edit(0) / "out")
    assert len({run.header.identity["pretrained_file"] for run in runs}) == 2
    assert len(list((edit(0) / "out").glob("*.weights"))) == 2


@pytest.mark.parametrize("command", ["train", "compare", "bench", "advise"])
def test_what_the_function_raises_is_shown(edit, command):
    with pytest.raises(FileNotFoundError, match="no file of mine"):
        run_command(f"{command} --data data_to_edit:fail", edit(0))


def test_advise_and_bench_measure_on_them(edit):
    line = "--data data_to_edit:load --json found.json"
    advised = run_command(f"advise {line} --noise 0.2 --epochs 9", edit(0))
    assert advised.status == 0
    assert "3 classes" in advised.out
    line = f"bench {line} --batch-size 8 --seconds 0 --strategies kakurenbo,data_to_edit:"
    timed = run_command(f"{line}rule", edit(0))
    assert (timed.status, timed.err) == (0, "")
    found = json.loads((edit(0) / "found.json").read_text())
    assert found["config"]["model"] == "perceptron"
    assert {"kakurenbo", "data_to_edit:rule"} <= found["strategies"].keys()
    for name, said in (("half+averaging", "cannot time data_to_edit:half+"), ("timed", "epochs")):
        refused = run_command(f"{line}{name}", edit(0))
        assert (refused.status, said in refused.text) == (2, True)


def test_a_rule_of_ones_own_trains_as_the_strategy_that_it_is_and_its_file_is_on_record(edit):
    folder = edit(0)
    names = "top-k,data_to_edit:rule,data_to_edit:half,data_to_edit:rule+smoothing-0.3"
    command = f"{COMPARE} --rate 0.25".replace("traditional,random-backprop", names)
    outcome = run_command(f"{command} --seeds 1", folder)
    assert outcome.status == 0, outcome.text
    runs = {run.header.arm: run for run in read_runs(folder / "out")}
    assert {*runs} == {*names.split(",")}
    own, usual = runs["data_to_edit:rule"], runs["top-k"]
    assert own.header.config["strategy"]["rate"] == 0.25
    ends = [(run.points[-1].test_loss, run.points[-1].trained) for run in (own, usual)]
    assert ends[0] == ends[1]
    file = names_of.fingerprint("data_to_edit:rule")
    assert own.header.strategy_file == own.header.identity["strategy_file"] == file
    assert usual.header.strategy_file is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("unknown", "argument: 'alpha'. It can have rate"),
        ("nothing", "is None, not an sb.Strategy"),
        ("absent", "absent in data_to_edit is missing, but the strategy"),
        ("rule+nothing", "no treatment 'nothing'"),
    ],
)
def test_what_is_no_rule_is_refused_before_anything_is_trained(rule, said, edit):
    folder = edit(0)
    outcome = run_command(f"compare {SMALL} --strategies data_to_edit:{rule} --out out", folder)
    assert outcome.status != 0
    assert said in outcome.text
    assert not (folder / "out").exists()
