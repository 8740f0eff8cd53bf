"""What the command line refuses: with a line that says why, and a status that is not 0."""

import pytest
import torch
from fixture_command import run_command

import selective_backprop as sb
from selective_backprop_lab.cli.options import parse_budget
from selective_backprop_lab.nets.models import MODELS
from selective_backprop_lab.recipe import RECIPES


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def refusal(line, folder):
    outcome = run_command(line, folder)
    assert outcome.status == 2
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert not list(folder.rglob("*.jsonl"))
    return outcome.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train --pretrained imagenet:0-4", ["no data set 'imagenet'", *RECIPES]),
        ("train --model resnet", ["no model 'resnet'", *MODELS, "package.module:factory"]),
        ("train --rate 0", ["rate=0.0", "(0, 1]", "1/3"]),
        ("train --budget nonsense", ["--budget nonsense", "passes, such as 10, or of seconds"]),
        ("train --epochs 3 --budget 3", ["give --epochs or --budget, not both"]),
        ("train --limit 9999", ["limit is 9999", "between 10", "1437"]),
        ("train --device cuda", ["--device cuda: torch", "finds only cpu here"]),
        ("train --data mnist", ["mnist is read from disk", "train-images-idx3-ubyte", "--root"]),
        ("train --strategy traditional,top-k", ["train runs one strategy; compare runs several"]),
        ("report nowhere", ["nowhere: no such folder of records"]),
        ("report .", ["there is no record to show in .", "compare and train write records"]),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, line, said):
    err = refusal(line, tmp_path)
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not [word for word in said if word not in err]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare --epochs 0", "--epochs"),
        ("compare --lr fast", "--lr"),
        ("compare --rate nan", "nan is no number such as 1/3 or 0.25"),
        ("report", "RUNS"),
    ],
)
def test_a_misused_option_is_a_usage_error(tmp_path, line, said):
    err = refusal(line, tmp_path)
    assert "Usage: selective-backprop" in err
    assert said in err


@pytest.mark.parametrize("text", ["", "s", "10m", "1e400", "nans", "-1s"])
def test_a_budget_that_is_no_positive_number_is_refused(text):
    with pytest.raises(sb.ConfigurationError, match="such as 60s"):
        parse_budget(text)


@pytest.mark.parametrize("out", ["taken", "taken/within"])
def test_a_folder_that_cannot_be_made_is_named_before_anything_is_trained(tmp_path, out):
    (tmp_path / "taken").write_text("something else")
    err = refusal(f"compare --limit 100 --out {out}", tmp_path)
    assert err.startswith(f"error: {out} cannot be written")
    assert (tmp_path / "taken").read_text() == "something else"
