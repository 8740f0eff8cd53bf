"""Losses that a person would take instead of selecting, where labels may be wrong."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from selective_backprop_lab.losses import generalised, trimmed


def batch(rows=20):
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(rows, 5, generator=draw, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(5, (rows,), generator=draw)


def test_the_generalised_loss_is_the_papers_and_goes_over_into_cross_entropy():
    logits, targets = batch()
    p = logits.softmax(1)[torch.arange(20), targets]
    assert torch.allclose(generalised(logits, targets, 0.0, q=0.3), (1 - p**0.3) / 0.3)
    plain = cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(generalised(logits, targets, 0.0, q=1e-9), plain)


@pytest.mark.parametrize(
    ("progress", "left_out"), [(0.0, 0), (0.25, 0), (0.325, 2), (0.4, 4), (1.0, 4)]
)
def test_trimming_leaves_out_the_highest_losses_once_it_has_begun(progress, left_out):
    logits, targets = batch()
    plain = cross_entropy(logits, targets, reduction="none")
    kept = plain.detach().argsort()[: 20 - left_out]
    found = trimmed(logits, targets, progress, share=0.2)
    assert torch.allclose(found.mean(), plain[kept].mean())
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert {*gradient.abs().sum(1).nonzero()[:, 0].tolist()} == {*kept.tolist()}
