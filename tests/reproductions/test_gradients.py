"""Gradients side by side: angle and signs."""

import pytest
import torch
from torch import nn

from reproductions.gradients import (
    cosine,
    equal_signs,
    flat_gradient,
    trained,
)


def test_angles_and_signs_are_those_of_the_vectors():
    part, whole = torch.tensor([3.0, 0.0, -1.0, 2.0]), torch.tensor([4.0, 3.0, 0.0, -2.0])
    assert float(cosine(part, whole)) == pytest.approx(8 / (14 * 29) ** 0.5)
    assert float(equal_signs(part, whole)) == pytest.approx(1 / 3)  # one of three that move


def test_a_gradient_counts_every_trained_parameter_and_leaves_those_there_are():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(1, 1))
    model[1].weight.requires_grad_(False)
    parameters = trained(model)
    loss = model[1](model[0](torch.ones(1, 2))).sum()
    found = flat_gradient(loss, parameters, again=True)
    assert found.shape == (4 + 2 + 1 + 2,)
    assert torch.equal(found[-2:], torch.zeros(2))  # the last layer takes no part
    assert torch.equal(found, flat_gradient(loss, parameters))
    assert all(parameter.grad is None for parameter in parameters)
