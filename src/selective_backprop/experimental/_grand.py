"""GraNd: how large each example's gradient is early in training."""

import textwrap
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from selective_backprop._batches.losses import ExampleLosses, LossFunction
from selective_backprop._batches.structure import list_tensors, map_tensors
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.types import Float, LossesOf, OutputsOf
from selective_backprop._pruning.example_scores import (
    ExampleScores,
    MakeModel,
    Train,
    of_pair,
    score_examples,
)

GRADIENT_BYTES = 2**28  # memory for the gradients that are held at once


def grand_scores(
    loader: Any,
    make_model: MakeModel,
    train: Train,
    *,
    loss_fn: LossFunction,
    models: int = 10,
    outputs: OutputsOf | None = None,
) -> ExampleScores:
    """Experimental: score every example by the norm of its own gradient early in training.

    The score is the mean over the models of the L2 norm of the gradient of the example's loss with
    respect to all trainable parameters. `el2n_scores` approximates it without backward passes, at a
    third of the cost. Gradients are computed in eval mode, so BatchNorm does not mix examples and
    dropout is off. As many gradients as fit into 256 MiB are computed at once.

    Args:
        loader, make_model, train, models: as for `el2n_scores`.
        loss_fn: the loss the models are trained with. It is computed for each example by itself,
            whatever its `reduction`.
        outputs: as for `el2n_scores`; `loss_fn` takes what it returns.

    Returns:
        The scores and their cost. Scoring with one model costs as much as a training epoch.

    Raises:
        ConfigurationError: as by `el2n_scores`, like other errors, or if a model has no trainable
            parameters, or its gradients cannot be computed example by example.
    """
    measure = partial(_gradient_norms, ExampleLosses(loss_fn, outputs or of_pair))
    return score_examples("GraNd", measure, 1.0, loader, make_model, train, models)


def _gradient_norms(
    losses: LossesOf, model: nn.Module, batch: Any, rows: int
) -> Float[Tensor, " candidate"]:
    lossy = _Lossy(model, losses)
    parameters = {n: p.detach() for n, p in lossy.named_parameters() if p.requires_grad}
    if not parameters:
        raise ConfigurationError(
            f"{type(model).__name__} has no trainable parameter, so examples have no gradient"
        )
    size = sum(value.numel() * value.element_size() for value in parameters.values())
    leaves = list_tensors(batch)
    by_row = [leaf.ndim > 0 and leaf.shape[0] == rows for leaf in leaves]

    def loss_of(parameters: dict[str, Tensor], row: tuple[Tensor, ...]) -> Tensor:
        parts = iter([r[None] if own else r for r, own in zip(row, by_row, strict=True)])
        alone = map_tensors(lambda _: next(parts), batch)
        return torch.func.functional_call(lossy, parameters, (alone,))

    def norm_of(*row: Tensor) -> Tensor:
        slopes = torch.func.grad(loss_of)(parameters, row).values()
        # Squares of half-precision gradients could overflow or underflow.
        wide = [slope.to(torch.promote_types(slope.dtype, torch.float32)) for slope in slopes]
        return torch.linalg.vector_norm(torch.stack([*map(torch.linalg.vector_norm, wide)]))

    axes = tuple(0 if own else None for own in by_row)  # None: all examples share the tensor
    held = max(1, GRADIENT_BYTES // size)
    try:
        with sdpa_kernel(SDPBackend.MATH):  # vmap would run fused kernels example by example
            return torch.func.vmap(norm_of, in_dims=axes, chunk_size=held)(*leaves)
    except torch.OutOfMemoryError:  # a RuntimeError, too, but not vmap's fault
        raise
    except RuntimeError as error:
        reason = textwrap.shorten(str(error), 160, placeholder=" …")
        raise ConfigurationError(
            f"GraNd needs torch.func.vmap, which failed on {type(model).__name__}: {reason}. Use "
            "el2n_scores, or a model without .item(), branches on values, or writing into buffers."
        ) from error


class _Lossy(nn.Module):
    """A model followed by its loss; it returns a single number."""

    def __init__(self, model: nn.Module, losses: LossesOf) -> None:
        super().__init__()
        self.model, self.losses = model, losses

    def forward(self, batch: Any) -> Tensor:
        losses = self.losses(self.model, batch)
        if not isinstance(losses, Tensor) or losses.numel() != 1:
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise LossError(f"the loss of one example is {found}; a tensor of one number is needed")
        return losses.reshape(())
