import pytest
import torch
from fixture_lab import few_digits, fixture_plan
from torch import nn

from selective_backprop_lab.recipe import Precision
from selective_backprop_lab.training.run import TrainingRun


class Dtypes(nn.Module):
    """A layer that remembers what its results were made of."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.seen = []

    def forward(self, inputs):
        outputs = self.inner(inputs)
        self.seen.append(outputs.dtype)
        return outputs


def test_a_model_in_bf16_computes_in_it_and_gives_float32_logits():
    inner = Dtypes()
    model = Precision.BF16.wrap(inner)
    assert model(torch.randn(4, 3)).dtype is torch.float32
    assert inner.seen == [torch.bfloat16]
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("arm", ["traditional", "selective-backprop"])
def test_a_run_in_bf16_scores_trains_and_evaluates_in_it(arm):
    plan = fixture_plan(arm, recipe={"precision": Precision.BF16}, evaluations=1)
    run, seen = TrainingRun(plan, few_digits()), set()
    layer = next(m for m in run.model.modules() if isinstance(m, nn.Linear))

    def note(module, inputs, outputs):
        seen.add((outputs.dtype, torch.is_grad_enabled()))

    layer.register_forward_hook(note)
    point = run.advance()
    assert seen == {(torch.bfloat16, True), (torch.bfloat16, False)}
    assert 0 <= point.test_error <= 100
