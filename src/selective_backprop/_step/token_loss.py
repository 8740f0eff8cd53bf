"""`TokenLoss`: a language model's head and loss, computed on chosen tokens."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from selective_backprop._batches.structure import move_tensor
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_flag, check_instance, check_whole
from selective_backprop._core.uncompiled import uncompiled
from selective_backprop._step.head import (
    HeadLoss,
    Known,
    Workspace,
    check_head,
    scan,
    tokens_held,
    wide,
)
from selective_backprop._step.latest import Latest, places_of
from selective_backprop._step.tokens import SelectedTokens, TokenSelection


@final
class TokenLoss:
    """Compute a language model's cross-entropy from its last hidden states, on chosen tokens.

    Call it in place of the model's head (its last linear layer) and the loss. It first computes the
    losses of all tokens without gradients, and `selection` chooses tokens by these losses. The
    head's forward and backward pass then run over the kept tokens only. The result is their mean
    loss. Its gradients are those of the head and the usual cross-entropy on these tokens, up to
    rounding. If all tokens are kept, or you pass a mask as `kept`, the pass without gradients is
    left out.

    Logits are computed for `chunk` tokens at a time, so memory holds at most `[chunk, vocabulary]`
    logits and as many probabilities. Losses and sums are in float32 or wider. Under autocast,
    matrix products have autocast's precision. On CUDA, the CPU waits for the GPU once per call, to
    learn how many tokens count (are not `ignored`). It does not wait if `rows_only` has already
    waited for the same mask, or if the selection has a rate and the labels (and `kept` if given)
    are on the CPU.

    Args:
        head: the model's head, an `nn.Linear` from features to the vocabulary, with or without a
            bias; its weight may be the embedding's. The head is not called: its weights are read at
            each call of this object. If the model scales or caps logits after its head, the loss
            does not include this.
        selection: which tokens are kept; by default all whose label is not -100.
        shift: compare each token's prediction with the next label, as models of Hugging Face do. In
            every mask and loss that you pass or get, position `t` then stands for the prediction of
            label `t + 1`. The last position does not count.
        entropy: choose tokens by the entropy of their predictions, instead of by their losses.
        chunk: number of tokens whose logits or probabilities are held at once. By default, as many
            as fit into 128 MiB in float32 (512 MiB on CUDA), but at least 256. If all tokens that
            count fit into one chunk, the logits of kept tokens are computed only once.

    Raises:
        ConfigurationError: if the head is not a plain linear layer, or an option is wrong.

    Source:
        Gradients made in the forward pass, chunk by chunk: Hsu et al. 2024, arXiv:2410.10989
        (Liger Kernel). Tokens of high entropy: Wang et al. 2025, arXiv:2506.01939.

    Example:
        >>> import torch, selective_backprop as sb
        >>> body, head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        >>> token_loss = sb.TokenLoss(head, sb.TokenSelection(rate=1/4), shift=True)
        >>> tokens = torch.arange(24).view(2, 12)
        >>> selected = token_loss(body(tokens), tokens)
        >>> selected.loss.backward()
        >>> selected.kept.sum().item()  # of 22 predictions
        6
    """

    def __init__(
        self,
        head: nn.Module,
        selection: TokenSelection | None = None,
        *,
        shift: bool = False,
        entropy: bool = False,
        chunk: int | None = None,
    ) -> None:
        self._head = check_head(head)
        check_instance(
            "selection", selection, TokenSelection, "TokenSelection(rate=0.6)", optional=True
        )
        self._selection = TokenSelection(rate=1.0) if selection is None else selection
        self._shift = check_flag("shift", shift)
        self._entropy = check_flag("entropy", entropy)
        self._chunk = check_whole("chunk", chunk, optional=True)
        self._space = Workspace()
        self._chosen: Latest[bool] = Latest()  # a mask and its labels

    @property
    def head(self) -> nn.Linear:
        """The model's head."""
        return self._head

    @uncompiled
    def __call__(
        self,
        hidden: Tensor,
        labels: Tensor,
        *,
        reference: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> SelectedTokens:
        """Choose tokens, and return the mean of their losses.

        Args:
            hidden: the head's input, `[row, token, feature]`.
            labels: token ids `[row, token]`; the selection's `ignored` marks tokens that do not
                count.
            reference: a loss per token, `[row, token]`, which is subtracted from the token's loss
                or entropy before tokens are chosen. NaN (an unknown loss) ranks the token highest.
            kept: a mask of the tokens to train on, `[row, token]`, as `choose` returns it. It
                replaces the selection. Tokens that do not count are left out.

        Returns:
            The mean loss (0 if no token is kept), the mask of the kept tokens, and the losses that
            were computed. These are the losses of all tokens that count if tokens were chosen by
            their losses or entropies, else those of the kept tokens.

        Raises:
            LossError: if shapes do not fit each other and the head, labels are not token ids, or a
                reference is given although tokens are not chosen by their losses or entropies.
            ConfigurationError: if the head is no longer a plain linear layer.
        """
        rows, targets = self._counted(hidden, labels, kept)
        scored = kept is None and self._selection.needs_scores
        if reference is not None:
            self._check_reference(reference, labels, scored)
        flat = hidden.flatten(0, -2)
        losses = torch.full((len(flat),), torch.nan, dtype=wide(flat), device=flat.device)
        chunk = self._chunk_on(flat.device)
        taken, weights, known, choice = rows, None, None, None
        if scored:
            found = scan(
                self._head,
                _take(flat.detach(), rows),
                targets,
                chunk,
                self._space,
                entropy=self._entropy,
                hold=len(rows) <= chunk,
            )
            losses[rows] = found.losses.to(losses.dtype)
            scores = found.losses if found.entropies is None else found.entropies
            if reference is not None:
                scores = scores - move_tensor(reference, flat.device).flatten()[rows]
            choice = self._selection.draw(scores)
            if found.probabilities is not None:
                known = Known(found.probabilities, choice.rows, found.losses[choice.rows])
        elif kept is None and not self._selection.keeps_everything:
            choice = self._selection.draw(torch.zeros(len(rows), device=flat.device))
        if choice is not None:
            taken, targets, weights = rows[choice.rows], targets[choice.rows], choice.weights
        inputs, head = _take(flat, rows) if choice is None else flat[taken], self._head
        graded = torch.is_grad_enabled()  # within a Function it never is
        loss, computed = HeadLoss.apply(
            inputs, head.weight, head.bias, targets, weights, chunk, self._space, known, graded
        )
        losses[taken] = computed.to(losses.dtype)
        mask = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
        return SelectedTokens(
            loss,
            mask.index_fill(0, taken, True).view(labels.shape),
            losses.view(labels.shape),
        )

    @uncompiled
    def losses(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every token that counts, without gradients, to use as a reference.

        Args:
            hidden: the head's input, `[row, token, feature]`.
            labels: token ids `[row, token]`; the selection's `ignored` marks tokens that do not
                count.

        Returns:
            `[row, token]`, float32 or float64; NaN where a token does not count.

        Raises:
            LossError: if shapes do not fit each other and the head, or labels are not token ids.
        """
        rows, targets = self._counted(hidden, labels, None)
        flat = hidden.detach().flatten(0, -2)
        losses = torch.full((len(flat),), torch.nan, dtype=wide(flat), device=flat.device)
        found = scan(
            self._head, _take(flat, rows), targets, self._chunk_on(flat.device), self._space
        ).losses
        losses[rows] = found.to(losses.dtype)
        return losses.view(labels.shape)

    def choose(
        self, labels: Tensor, scores: Tensor | None = None, *, reference: Tensor | None = None
    ) -> Tensor:
        """Choose tokens before the model runs, by scores that are known, such as earlier losses.

        Use the returned mask twice: give it to `rows_only`, which you wrap around the model's last
        layers, and pass it as `kept` when you call this object.

        Args:
            labels: token ids `[row, token]`; the selection's `ignored` marks tokens that do not
                count.
            scores: one per token, `[row, token]`, on any device; a `TokenLedger` can recall them.
                NaN means unknown, and ranks highest. Without `scores`, all tokens that count
                are kept, unless the selector draws tokens at random.
            reference: a loss per token, `[row, token]`, which is subtracted from the score. NaN
                ranks the token highest.

        Returns:
            A mask `[row, token]`, True at the tokens to train on; on the labels' device.

        Raises:
            LossError: if labels are not token ids, or the shapes differ.
            ConfigurationError: if the selector gives tokens weights, such as `Proportional`.
        """
        selector = self._selection.selector
        if selector is not None and selector.terms.reweights:
            raise ConfigurationError(
                f"{selector!r} gives tokens weights, which a mask does not hold, and without them "
                "the loss is biased. Call the TokenLoss without kept=, so that it chooses tokens "
                "itself, or take a selector without weights, such as Percentile(beta=2)"
            )
        targets = self._targets(labels)
        counts = targets != self._selection.ignored
        if scores is None and reference is not None:
            raise LossError("reference is subtracted from scores, but none are given: pass scores=")
        if scores is None and self._selection.needs_scores:
            return self._note(counts, labels)
        if scores is None:
            scores = torch.zeros(labels.shape, device=labels.device)
        scores = move_tensor(scores, labels.device)
        reference = None if reference is None else move_tensor(reference, labels.device)
        return self._note(self._selection(scores, counts, reference=reference).kept, labels)

    def _note(self, chosen: Tensor, labels: Tensor) -> Tensor:
        """Remember that all tokens of a mask count, and return it."""
        self._chosen.put(True, chosen, labels)
        return chosen

    def _chunk_on(self, device: torch.device) -> int:
        vocab_size = self._head.out_features
        return tokens_held(vocab_size, device) if self._chunk is None else int(self._chunk)

    def _targets(self, labels: Tensor) -> Tensor:
        """Return the label that each position must predict."""
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.ndim < 1:
            raise LossError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}; token ids "
                "[row, token] are needed"
            )
        labels = labels.long()  # an unsigned label would never equal -100
        if not self._shift:
            return labels
        return functional.pad(labels[..., 1:], (0, 1), value=self._selection.ignored)

    def _counted(
        self, hidden: Tensor, labels: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the places of the tokens that count, and the labels that they must predict."""
        check_head(self._head)
        targets = self._targets(labels)
        features = self._head.in_features
        if hidden.shape != (*labels.shape, features):
            raise LossError(
                f"hidden has shape {tuple(hidden.shape)} and labels {tuple(labels.shape)}; "
                f"[row, token, {features}] and [row, token] are needed. Pass the head's input, not "
                "its logits, and not flattened or shifted. TokenLoss(…, shift=True) shifts labels."
            )
        counts = targets != self._selection.ignored
        if kept is not None and (kept.shape != labels.shape or kept.dtype != torch.bool):
            raise LossError(
                f"kept is {kept.dtype} of shape {tuple(kept.shape)}; Booleans of the labels' "
                f"shape {tuple(labels.shape)} are needed"
            )
        if kept is not None and self._chosen.get(kept, labels):
            rows = places_of(kept)
        else:
            rows = (counts if kept is None else counts & kept.to(counts.device)).flatten()
            rows = rows.nonzero().flatten()
        targets = targets.flatten()[rows]
        vocab_size = self._head.out_features
        if targets.device.type == "cpu" and len(rows):
            low, high = (int(end) for end in targets.aminmax())
            if low < 0 or high >= vocab_size:
                raise LossError(
                    f"labels go from {low} to {high}, but the head's vocabulary has {vocab_size} "
                    f"tokens. Pass ids from 0 to {vocab_size - 1}, or {self._selection.ignored} "
                    "where a token does not count"
                )
        device = hidden.device
        return move_tensor(rows, device), move_tensor(targets, device)

    def _check_reference(self, reference: Tensor, labels: Tensor, scored: bool) -> None:
        if not scored:
            raise LossError(
                "reference is given, but nothing is chosen by scores in this call. Pass a "
                "selection with a rate below 1, and no kept="
            )
        if reference.shape != labels.shape:
            raise LossError(
                f"reference has shape {tuple(reference.shape)} and labels {tuple(labels.shape)}; "
                "one loss per token is needed"
            )


def _take(flat: Tensor, rows: Tensor) -> Tensor:
    """Return some rows; if these are all rows, do not copy."""
    return flat if len(rows) == len(flat) else flat[rows]
