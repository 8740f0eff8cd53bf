"""EL2N and GraNd: scores of how much young models still have to learn from each example."""

import textwrap
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from selective_backprop._batches.losses import (
    ExampleLosses,
    LossFunction,
    apply_to_pair,
    error_norms,
)
from selective_backprop._batches.structure import map_tensors
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_whole
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._pruning.ensemble import Ensemble, ExampleScores, MakeModel, Progress, Train

GRADIENT_BYTES = 2**28  # for the gradients of examples that are held at once, by default


def el2n_scores(
    loader: Any,
    make_model: MakeModel,
    train: Train,
    *,
    models: int = 10,
    outputs: OutputsOf | None = None,
    device: torch.device | str | int | None = None,
    progress: Progress | None = None,
) -> ExampleScores:
    """Score every example by how far the predictions of young models are from its target.

    The score is the L2 norm of the error vector, averaged over the models. The error vector is
    the predicted class probabilities less the target's; for a cross-entropy it is the gradient
    with respect to the logits. The score is 0 if all models are sure and right, √2 if all are
    sure and wrong. The models are the user's own, trained by the user's own loop for a few
    epochs; each then scores every example once, in eval mode.

    Scoring leaves the random streams as they were; draws of `make_model` and `train` do not. A
    few examples are loaded, and scored with the untrained first model, before any training.

    Args:
        loader: a `DataLoader` of the data set in order, without augmentation.
        make_model: returns a new, untrained model.
        train: `train(model, seed)` trains the model in place, for as long as you want; may
            return how many epochs of traditional training it spent, which is charged to `cost`.
        models: how many models are averaged, with the seeds 0, 1, 2 and so on; at least 1.
        outputs: `(model, batch) -> (outputs, targets)`: logits `[candidate, class]`, and classes
            `[candidate]` or their probabilities `[candidate, class]`. By default it is
            `(model(inputs), targets)` for a batch `(inputs, targets)`.
        device: where batches are moved to; the model's own device by default.
        progress: called as `progress(done, total)` after each scored batch, over all models.

    Returns:
        Scores of the whole data set. A scoring pass costs a third of a pass of training.

    Raises:
        LoaderError: if the loader shuffles, leaves examples out or augments.
        ConfigurationError: if `models` is not a whole number of at least 1, if no new model is
            made, or if `train` returns anything but a number or None.
        LossError: if outputs and targets do not give one finite score per example.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2, where scores are averaged over models too.
    """
    outputs_of = outputs or _of_pair

    def errors(model: nn.Module, batch: Any, rows: int) -> Tensor:
        return error_norms(*outputs_of(model, batch))

    ensemble = Ensemble(loader, make_model, train, models, device, progress)
    return ensemble.score("EL2N", errors, passes=1 / 3)


def grand_scores(
    loader: Any,
    make_model: MakeModel,
    train: Train,
    *,
    loss_fn: LossFunction,
    models: int = 10,
    outputs: OutputsOf | None = None,
    device: torch.device | str | int | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> ExampleScores:
    """Score every example by the norm of its own gradient in young models.

    The score is the L2 norm of the gradient of the example's loss with respect to all trainable
    parameters, averaged over the models. It takes a backward pass and much memory; `el2n_scores`
    approximates it from forward passes alone, and is usually preferred. Gradients are taken in
    eval mode, where examples do not depend on one another (BatchNorm) or on chance (dropout).

    Args:
        loader: a `DataLoader` of the data set in order, without augmentation.
        make_model: returns a new, untrained model.
        train: `train(model, seed)` trains the model in place, for as long as is wanted; may
            return how many epochs of traditional training it spent, which is charged to `cost`.
        loss_fn: the loss the models are trained with; it is computed for one example at a time,
            whatever its `reduction`.
        models: how many models are averaged, with the seeds 0, 1, 2 and so on; at least 1.
        outputs: `(model, batch) -> (outputs, targets)`; by default `(model(inputs), targets)` for
            a batch `(inputs, targets)`.
        device: where batches are moved to; the model's own device by default.
        chunk: examples whose gradients are held at once, each as large as the model; by default
            as many as fit into 256 MiB, at least 1.
        progress: called as `progress(done, total)` after each scored batch, over all models.

    Returns:
        Scores of the whole data set. A scoring pass costs as much as a pass of training.

    Raises:
        LoaderError: if the loader shuffles, leaves examples out or augments.
        ConfigurationError: if a number is out of its range, no new model is made, a model has no
            trainable parameters, its gradients cannot be taken example by example, or `train`
            returns anything but a number or None.
        LossError: if there is not one finite loss per example.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2, where scores are averaged over models too.
    """
    chunk = check_whole("chunk", chunk, optional=True)
    losses = ExampleLosses(loss_fn, outputs or _of_pair)

    def gradients(model: nn.Module, batch: Any, rows: int) -> Tensor:
        return gradient_norms(model, losses, batch, rows, chunk)

    ensemble = Ensemble(loader, make_model, train, models, device, progress)
    return ensemble.score("GraNd", gradients, passes=1.0)


def gradient_norms(
    model: nn.Module, losses: LossesOf, batch: Any, rows: int, chunk: int | None = None
) -> Float[Tensor, " candidate"]:
    """Return the L2 norm of the gradient of each example's loss, over all trainable parameters.

    Args:
        model: in eval mode; left as it is.
        losses: called as `losses(model, batch)`; returns one loss for a batch of one example.
        batch: its tensors of `rows` rows hold one row per example.
        rows: examples in the batch.
        chunk: examples whose gradients are held at once; None for as many as fit in 256 MiB.

    Returns:
        Norms on the parameters' device, in float32 or wider.

    Raises:
        ConfigurationError: if no parameter is trainable, or PyTorch cannot vectorise the model.
        LossError: if an example has not exactly one loss.
    """
    lossy = _Lossy(model, losses)
    parameters = {n: p.detach() for n, p in lossy.named_parameters() if p.requires_grad}
    if not parameters:
        raise ConfigurationError(
            f"{type(model).__name__} has no trainable parameter, so examples have no gradient"
        )
    size = sum(value.numel() * value.element_size() for value in parameters.values())
    leaves: list[Tensor] = []
    map_tensors(lambda leaf: leaves.append(leaf) or leaf, batch)
    by_row = [leaf.ndim > 0 and leaf.shape[0] == rows for leaf in leaves]

    def loss_of(parameters: dict[str, Tensor], row: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of a batch of this row alone."""
        parts = iter([r[None] if own else r for r, own in zip(row, by_row, strict=True)])
        alone = map_tensors(lambda _: next(parts), batch)
        return torch.func.functional_call(lossy, parameters, (alone,))

    def norm_of(*row: Tensor) -> Tensor:
        slopes = torch.func.grad(loss_of)(parameters, row).values()
        return torch.linalg.vector_norm(torch.stack([_norm(slope) for slope in slopes]))

    axes = tuple(0 if own else None for own in by_row)  # None: all examples share the tensor
    held = chunk or max(1, GRADIENT_BYTES // size)
    try:
        with sdpa_kernel(SDPBackend.MATH):  # vmap would run fused kernels example by example
            return torch.func.vmap(norm_of, in_dims=axes, chunk_size=held)(*leaves)
    except torch.OutOfMemoryError:  # a RuntimeError, too, but not vmap's fault
        raise
    except RuntimeError as error:
        reason = textwrap.shorten(str(error), 160, placeholder=" …")
        raise ConfigurationError(
            f"GraNd takes each example's own gradient with torch.func.vmap, which failed on "
            f"{type(model).__name__}: {reason}. Use el2n_scores, which needs forward passes "
            "alone; or take out of the model's eval mode what cannot be vectorised (.item(), "
            "branches on values, writing into buffers)."
        ) from error


class _Lossy(nn.Module):
    """A model followed by its loss; it returns a single number."""

    def __init__(self, model: nn.Module, losses: LossesOf) -> None:
        super().__init__()
        self.model = model
        self.losses = losses

    def forward(self, batch: Any) -> Tensor:
        losses = self.losses(self.model, batch)
        if not isinstance(losses, Tensor) or losses.numel() != 1:
            shape = getattr(losses, "shape", None)
            found = type(losses).__name__ if shape is None else f"shape {tuple(shape)}"
            raise LossError(
                f"the loss of a batch of one example is {found}; one number is needed. Pass a "
                "loss_fn that returns a mean, or one loss per example."
            )
        return losses.reshape(())


def _norm(slope: Tensor) -> Tensor:
    # Squares of half-precision gradients could overflow or underflow.
    return torch.linalg.vector_norm(slope.to(torch.promote_types(slope.dtype, torch.float32)))


def _of_pair(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise LossError(
            f"the batch is a {type(batch).__name__}, not a pair (inputs, targets), so it is not "
            "known what the model takes. Pass outputs=callable(model, batch) -> "
            "(outputs, targets)."
        )
    return apply_to_pair(model, batch)
