"""Choose the tokens of a batch that a language model trains on."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from selective_backprop._batches.serialization import on_device
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_instance, check_rate, check_whole, settle
from selective_backprop._core.saved_state import SEEDS, Saved, Stateful, loaded
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History, load_history
from selective_backprop._pipeline.selection_buffer import mix_seeds
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice
from selective_backprop._step.selective_step import WINDOW
from selective_backprop.selectors import AbstractSelector, Terms


class SelectedTokens(NamedTuple):
    """The tokens of one batch that are trained on.

    Attributes:
        loss: the mean loss of the kept tokens, a scalar with gradients; 0 if no token is kept.
            Losses in half precision are summed in float32. If the selector reweights tokens, each
            loss is multiplied by its token's weight.
        kept: a mask in the shape of the losses, True at the tokens that are trained on.
        losses: one loss per token, without gradients; NaN where `TokenLoss` computed none.
    """

    loss: Tensor
    kept: Tensor
    losses: Tensor


@final
@dataclass(eq=False)
class TokenSelection:
    """Choose which tokens of a batch a language model trains on.

    With a `rate`, keep the tokens of the batch that have the highest losses. With a `selector`,
    keep the tokens that it chooses. `sb.selectors.Percentile(beta=2, history=65536)` ranks tokens
    against the losses of recent batches. `sb.selectors.Uniform(rate=1/4)` chooses tokens at random.

    If you pass the losses of a reference model, tokens are ranked by how far their losses exceed
    those of the reference model. This leaves out tokens that the reference model finds hard too,
    such as noise.

    If you call this object with your own losses, selection saves no compute, because the forward
    and the backward pass run over all tokens. Tokens left out have a gradient of exactly 0. With a
    rate, such a call never makes the CPU wait for the GPU, tensor shapes never change, and
    `torch.compile` makes one graph of the call. `TokenLoss` computes the losses for you, and runs
    the head's backward pass over the kept tokens only.

    Args:
        rate: share of a batch's tokens to keep, in (0, 1]. Of `n` tokens that count,
            `round(rate * n)` are kept, but at least one.
        ignored: the target of tokens that do not count, such as padding and prompts.
        selector: chooses tokens, in place of a rate. If it ranks tokens against recent losses, it
            uses the last `selector.terms.history` losses, or as many as the first batch has tokens,
            if that is more. Its draws are seeded by `torch.initial_seed()`.

    Raises:
        ConfigurationError: if both or neither of rate and selector are given, the rate is out of
            range, or the selector changes as training goes on.

    Source:
        Lin et al. 2024, arXiv:2404.07965 (Rho-1, selective language modelling), which uses a rate
        and the losses of a reference model. As in the paper, a rate ranks tokens within the batch.

    Example:
        >>> import torch, selective_backprop as sb
        >>> losses = torch.tensor([[0.1, 2.0, 0.5], [3.0, 0.2, 9.0]], requires_grad=True)
        >>> targets = torch.tensor([[4, 1, 7], [2, 2, -100]])
        >>> selected = sb.TokenSelection(rate=0.4)(losses, targets)
        >>> selected.loss.item(), selected.kept.tolist()
        (2.5, [[False, True, False], [True, False, False]])
    """

    rate: float | None = None
    ignored: int = -100
    selector: AbstractSelector | None = None
    _history: History | None = field(default=None, init=False, repr=False)
    _seed: int = field(default_factory=torch.initial_seed, init=False, repr=False)
    _draws: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        settle(self, check_whole, "ignored", least=-math.inf)
        if (self.rate is None) == (self.selector is None):
            raise ConfigurationError(
                f"rate={self.rate!r} and selector={self.selector!r}: exactly one of them is "
                "needed. Write TokenSelection(rate=0.6), or "
                "TokenSelection(selector=sb.selectors.Percentile(beta=2))."
            )
        if self.selector is None:
            settle(self, check_rate, "rate")
            return
        check_instance("selector", self.selector, AbstractSelector, "Percentile(beta=2)")
        terms = self.selector.terms
        if terms.paced:
            raise ConfigurationError(
                f"{self.selector!r} changes as training goes on, but TokenSelection does not know "
                "how far training is. Use one that stays the same, such as Percentile(beta=2)."
            )
        size = max(1, round(WINDOW * terms.rate))
        self._running = self.selector.start(Context(size, WINDOW, rate=terms.rate))

    @property
    def keeps_everything(self) -> bool:
        """Whether every token that counts is kept."""
        return self.rate == 1 if self.selector is None else self.selector.terms.keeps_everything

    @property
    def needs_scores(self) -> bool:
        """Whether tokens are chosen by their scores, rather than all kept or drawn at random."""
        scored = self.selector is None or self.selector.terms.needs_scores
        return scored and not self.keeps_everything

    def __call__(
        self, losses: Tensor, targets: Tensor | None = None, *, reference: Tensor | None = None
    ) -> SelectedTokens:
        """Select tokens, and return the mean of their losses.

        Args:
            losses: one per token, such as `[row, token]`, with gradients.
            targets: class numbers in the losses' shape, where `ignored` marks tokens that do not
                count; or a mask, True where a token counts. None if all tokens count.
            reference: the losses of a reference model on the same tokens, in the same shape.

        Returns:
            The mean loss, the mask of the kept tokens, and the given losses without gradients. If
            losses are equal, a rate keeps the first ones. A loss of NaN ranks highest, so the mean
            is NaN too.

        Raises:
            LossError: if the losses are not one number per token, or targets or reference have
                another shape.
        """
        _check_tokens(losses, targets, reference)
        if targets is None:
            counts = torch.ones_like(losses, dtype=torch.bool)
        else:
            counts = targets if targets.dtype == torch.bool else targets != self.ignored
        scores = losses.detach() if reference is None else losses.detach() - reference.detach()
        wide = torch.promote_types(losses.dtype, torch.float32)
        if self.rate is None:
            rows = counts.flatten().nonzero().flatten()
            chosen, weights = self.draw(scores.flatten()[rows])
            rows = rows[chosen]
            kept = torch.zeros_like(counts).flatten().index_fill(0, rows, True).view_as(counts)
            taken = losses.flatten()[rows].to(wide)
            total = (taken if weights is None else taken * weights).sum()
            return SelectedTokens(total / max(1, rows.shape[0]), kept, losses.detach())
        with torch.no_grad():
            # Clamped, so that even a score of -inf ranks above the tokens that do not count.
            scores = scores.clamp(min=torch.finfo(scores.dtype).min).masked_fill(
                ~counts, -torch.inf
            )
            order = scores.flatten().argsort(descending=True, stable=True)
            quota = (counts.sum().double() * self.rate).round().clamp(min=1)
            ranked = torch.arange(order.shape[0], device=order.device) < quota
            kept = torch.empty_like(ranked).scatter(0, order, ranked).view_as(counts) & counts
        total = torch.where(kept, losses, 0.0).sum(dtype=wide)
        return SelectedTokens(total / kept.sum().clamp(min=1), kept, losses.detach())

    @torch.no_grad()
    def draw(self, scores: Scores) -> Choice:
        """Choose some of the given tokens; pass only tokens that count.

        Args:
            scores: one per token. With `rate=`, the tokens with the highest scores are kept. NaN
                counts as the highest score. Pass zeros if the selector needs no scores.

        Returns:
            The places of the kept tokens, ascending; and their weights if the selector reweights.
        """
        tokens = scores.shape[0]
        if not tokens:
            return Choice(torch.empty(0, dtype=torch.int64, device=scores.device))
        if self.rate is not None:
            quota = max(1, round(self.rate * tokens))
            order = scores.argsort(descending=True, stable=True)
            return Choice(order[:quota].sort().values)
        assert self.selector is not None
        scores = scores.float().nan_to_num(torch.inf, torch.inf, -torch.inf)
        history, terms = History(1), self.selector.terms
        if terms.history:
            history = self._open_history(terms, tokens, scores.device)
            history.file(scores)
        seed = mix_seeds(self._seed, self._draws)
        self._draws += 1
        generator = torch.Generator(scores.device).manual_seed(seed)
        return self._running.select(scores, history, generator)

    def _open_history(self, terms: Terms, tokens: int, device: torch.device) -> History:
        """Return the recent scores on `device`; those of a loaded state may be elsewhere."""
        if self._history is None:
            self._history = terms.history_type(max(terms.history, tokens))
        elif self._history.recent.device != device and len(self._history):
            kept, filed = self._history.mark()
            self._history.go_back((on_device(kept, device), filed))
        return self._history

    def state_dict(self) -> dict[str, Any]:
        """Return what a selector needs to continue: recent scores and the state of its draws."""
        return {
            "seed": self._seed,
            "draws": self._draws,
            "history": None if self._history is None else self._history.state_dict(),
            "selector": None if self.selector is None else self._running.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the `state_dict()` of a selection built with the same arguments.

        The state does not hold the arguments, so other ones are only noticed if the state does not
        fit them.

        Raises:
            ConfigurationError: if the state is damaged, was saved with a rate and this selection
                has a selector, or the reverse, or if it holds recent losses and this selector
                remembers none. After an error, this selection is unchanged.
        """
        seed, draws, past, selector = Saved(state).fields("seed", "draws", "history", "selector")
        numbers = seed.whole(0, SEEDS - 1), draws.whole()
        history = past.maybe(self._read_history)
        parts: list[tuple[Stateful, Saved]] = []
        if self.selector is None:
            selector.nothing()
        else:
            parts.append((self._running, selector))
        with loaded(parts):
            (self._seed, self._draws), self._history = numbers, history

    def _read_history(self, saved: Saved) -> History:
        if self.selector is None or not self.selector.terms.history:
            raise saved.refuse("None, since this selection remembers no losses,")
        return load_history(self.selector.terms.history_type, saved)


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
                "each per token is needed. Neither may be flattened or shifted without the other."
            )
    if targets is not None and targets.is_floating_point():
        raise LossError(
            f"targets are {targets.dtype}. Pass class numbers, or a mask of Booleans that is True "
            "where a token counts"
        )
