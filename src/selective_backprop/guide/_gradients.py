"""Where the gradient of some examples points, beside that of all."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

Gradient = Float[Tensor, " parameter"]


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training moves."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat_gradient(
    loss: Float[Tensor, ""], parameters: Sequence[nn.Parameter], *, again: bool = False
) -> Gradient:
    """Return the gradient of a loss by all parameters in one; their own gradients stay.

    Args:
        loss: of whatever rows.
        parameters: to take it by; zeros for those that the loss does not depend on.
        again: whether another gradient is going to be taken of the same forward pass.
    """
    found = torch.autograd.grad(
        loss, parameters, retain_graph=again, allow_unused=True, materialize_grads=True
    )
    return torch.cat([each.flatten() for each in found])


def cosine(one: Gradient, other: Gradient) -> Float[Tensor, ""]:
    """Return the cosine of the angle between two gradients, in [-1, 1]; 0 where one is 0."""
    return nn.functional.cosine_similarity(one, other, dim=0)


def equal_signs(one: Gradient, whole: Gradient) -> Float[Tensor, ""]:
    """Return in which share of the parameters that `whole` moves at all both have one sign.

    NaN where it moves none.
    """
    return (one.sign() == whole.sign())[whole != 0].float().mean()


def supplied(part: Gradient, whole: Gradient) -> Float[Tensor, ""]:
    """Return the share of a sum of gradients that some of its terms supply, along the sum.

    What all terms supply adds up to 1. 0 where the sum is 0.
    """
    return (part @ whole) / (whole @ whole).clamp(min=torch.finfo(whole.dtype).tiny)
