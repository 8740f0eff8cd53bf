"""Comparisons of the gradient of some examples with that of all."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selective_backprop._core.types import Float

Gradient = Float[Tensor, " parameter"]


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat_gradient(
    loss: Float[Tensor, ""], parameters: Sequence[nn.Parameter], *, again: bool = False
) -> Gradient:
    """Return the gradient of a loss with respect to all parameters, as one vector.

    The parameters' own gradients stay as they are.

    Args:
        loss: a scalar, of any rows.
        parameters: to differentiate by; those that the loss does not depend on get zeros.
        again: whether another gradient will be taken of the same forward pass.
    """
    found = torch.autograd.grad(
        loss, parameters, retain_graph=again, allow_unused=True, materialize_grads=True
    )
    return torch.cat([each.flatten() for each in found])


def cosine(one: Gradient, other: Gradient) -> Float[Tensor, ""]:
    """Return the cosine of the angle between two gradients, in [-1, 1]; 0 if one is 0."""
    return nn.functional.cosine_similarity(one, other, dim=0)


def equal_signs(one: Gradient, whole: Gradient) -> Float[Tensor, ""]:
    """Return the share of parameters in which both have the same sign, where `whole` is not 0.

    NaN if `whole` is 0 everywhere.
    """
    return (one.sign() == whole.sign())[whole != 0].float().mean()
