"""Selection of tokens: a language model trains on the tokens with the highest losses."""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from selective_backprop._core.errors import LossError
from selective_backprop._core.options import check_rate, check_whole, settle


class SelectedTokens(NamedTuple):
    """The tokens of one batch that are trained on.

    Attributes:
        loss: the mean of their losses, a scalar with gradients; 0 if no token counts. Losses in
            half precision are summed in float32.
        kept: a mask in the shape of the losses, True at the tokens that are trained on.
    """

    loss: Tensor
    kept: Tensor


@final
@dataclass(frozen=True)
class TokenSelection:
    """Train a language model on the tokens of a batch that have the highest losses.

    If the losses of a reference model are given, keep the tokens whose losses exceed the
    reference's the most. This leaves out tokens that the reference finds hard too, such as noise.

    No compute is saved: the forward and backward pass run over all tokens, and the tokens left
    out have a gradient of exactly 0. The host never waits for the device, shapes never change,
    and `torch.compile` makes one graph of it.

    Args:
        rate: share of a batch's counted tokens to keep, in (0, 1]; of `n` counted tokens
            `round(rate * n)` are kept, at least one. 1 keeps all that count.
        ignored: the target of tokens that do not count, such as padding and prompts.

    Raises:
        ConfigurationError: if the rate is out of range.

    Source:
        Lin et al. 2024, arXiv:2404.07965 (Rho-1, selective language modelling), if the losses
        of a reference are given. As there, tokens are ranked within the batch.

    Example:
        >>> import torch, selective_backprop as sb
        >>> losses = torch.tensor([[0.1, 2.0, 0.5], [3.0, 0.2, 9.0]], requires_grad=True)
        >>> targets = torch.tensor([[4, 1, 7], [2, 2, -100]])
        >>> selected = sb.TokenSelection(rate=0.4)(losses, targets)
        >>> selected.loss.item(), selected.kept.tolist()
        (2.5, [[False, True, False], [True, False, False]])
    """

    rate: float
    ignored: int = -100

    def __post_init__(self) -> None:
        settle(self, check_rate, "rate")
        settle(self, check_whole, "ignored", least=-math.inf)

    def __call__(
        self, losses: Tensor, targets: Tensor | None = None, *, reference: Tensor | None = None
    ) -> SelectedTokens:
        """Select tokens, and return the mean of their losses.

        Args:
            losses: one per token, such as `[row, token]`, with gradients.
            targets: in the losses' shape: class numbers, where `ignored` marks tokens that do
                not count; or a mask, True where a token counts. None if all tokens count.
            reference: the losses of a reference model on the same tokens, in the same shape.

        Returns:
            The loss and the mask of its tokens. Of equal losses the first are kept. Among the
            tokens that count, a NaN ranks highest, so that the loss shows it.

        Raises:
            LossError: if the losses are not one number per token, or targets or reference have
                another shape.
        """
        _check_tokens(losses, targets, reference)
        if targets is None:
            counts = torch.ones_like(losses, dtype=torch.bool)
        else:
            counts = targets if targets.dtype == torch.bool else targets != self.ignored
        with torch.no_grad():
            scores = losses.detach() if reference is None else losses.detach() - reference.detach()
            # Clamped, so that even a score of -inf ranks above the tokens that do not count.
            scores = scores.clamp(min=torch.finfo(scores.dtype).min).masked_fill(
                ~counts, -torch.inf
            )
            order = scores.flatten().argsort(descending=True, stable=True)
            quota = (counts.sum().double() * self.rate).round().clamp(min=1)
            ranked = torch.arange(order.shape[0], device=order.device) < quota
            kept = torch.empty_like(ranked).scatter(0, order, ranked).view_as(counts) & counts
        wide = torch.promote_types(losses.dtype, torch.float32)
        total = torch.where(kept, losses, 0.0).sum(dtype=wide)
        return SelectedTokens(total / kept.sum().clamp(min=1), kept)


def _check_tokens(losses: Tensor, targets: Tensor | None, reference: Tensor | None) -> None:
    """Refuse losses, targets and references that are not one number per token."""
    if not losses.ndim or not losses.is_floating_point():
        raise LossError(
            f"losses of shape {tuple(losses.shape)} and type {losses.dtype}: one loss per token is "
            'needed. Compute them with reduction="none".'
        )
    for name, part in (("targets", targets), ("reference", reference)):
        if part is not None and part.shape != losses.shape:
            raise LossError(
                f"{name} have shape {tuple(part.shape)} and losses {tuple(losses.shape)}; one of "
                "each per token is needed. Let neither be flattened or shifted without the other."
            )
    if targets is not None and targets.is_floating_point():
        raise LossError(
            f"targets are {targets.dtype}; class numbers are needed, or a mask of Booleans that is "
            "True where a token counts"
        )
