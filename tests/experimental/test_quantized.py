"""Scoring with a quantised copy: its scores, when it is made anew, and what is refused."""

import sys

import pytest
import torch
from fixture_pipelined import BATCHES, begin, losses, step
from torch import nn
from unhooked import unhooked

import selective_backprop as sb

FORWARD = sb.scorers.Forward()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(BATCHES[0][0][0].numel(), 3))


def scores_of(running, batches=BATCHES[:1]):
    return [running.score(batch, None).tolist() for batch in batches]


def quantized(every=2, **options):
    pytest.importorskip("torchao")
    return sb.experimental.Quantized(FORWARD, every, **options)


def rounded(rows):
    """Each row in 255 steps, up to its largest number on either side."""
    unit = rows.abs().amax(1, keepdim=True) / 127.5
    return (rows / unit).round().clamp(-128, 127) * unit


def test_weights_and_activations_are_rounded_row_by_row():
    model = net()
    found = torch.tensor(scores_of(begin(quantized(), model))[0])
    inputs, labels = BATCHES[0]
    outputs = rounded(inputs.flatten(1)) @ rounded(model[1].weight).T + model[1].bias
    expected = nn.functional.cross_entropy(outputs, labels, reduction="none")
    # The largest number of a row is halfway between two steps.
    torch.testing.assert_close(found, expected.detach(), rtol=0.01, atol=0.01)
    assert not torch.equal(found, losses(model, BATCHES[0]))


def test_the_copy_is_made_anew_once_in_so_many_batches_and_saved_with_its_weights(tmp_path):
    model = net()
    running = begin(quantized(3, check=None), model)
    first = scores_of(running)
    step(model)
    torch.save(running.state_dict(), tmp_path / "state")
    assert scores_of(running) == first
    resumed = begin(quantized(3, check=None), model)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert scores_of(resumed) == first
    assert scores_of(running) == first
    assert scores_of(running) != first
    assert scores_of(running) == scores_of(begin(quantized(), model))


def test_it_scores_when_asked_and_is_compared_with_the_model():
    running = begin(quantized(1, check=sb.experimental.Check(2, least=0.5)), net())
    assert running.ahead == 0
    scores_of(running, BATCHES[:2])
    assert running.agreement.batches == 2
    assert running.agreement.overlap >= 0.75


@pytest.mark.parametrize(
    ("kind", "model", "said"),
    [
        ("int8", nn.Flatten(), r"no nn\.Linear that can be quantised to int8"),
        ("float8", nn.Linear(16, 16), "cannot quantise to float8: .*requires CUDA"),
    ],
)
def test_nothing_to_quantise_and_a_device_without_the_type_are_refused(kind, model, said):
    running = begin(quantized(kind=kind), model)
    with pytest.raises(sb.ConfigurationError, match=said):
        scores_of(running)


def test_an_unknown_kind_and_a_missing_torchao_are_refused_when_it_is_made(monkeypatch):
    with unhooked(), pytest.raises(sb.ConfigurationError, match="kind='int4': write"):
        sb.experimental.Quantized(FORWARD, 8, "int4")
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(sb.ConfigurationError, match=r"pip install 'selective-backprop\[quantized"):
        sb.experimental.Quantized(FORWARD, 8)
