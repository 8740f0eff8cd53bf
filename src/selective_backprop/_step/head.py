"""Compute a linear head's cross-entropy piece by piece, and its gradients in the forward pass."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.types import Float, Int64, RowIndices

HELD = 2**25  # probabilities, 128 MiB in float32; four times as many on CUDA, for larger products
PIECE = 2**21  # logits, 8 MiB: they stay in the CPU's caches, and its allocator keeps the memory
FEWEST = 256  # tokens; matrix products with fewer rows take up to a third longer


class Head(NamedTuple):
    """A head's weight and bias, in the precision of its matrix products."""

    weight: Float[Tensor, "vocabulary feature"]
    bias: Float[Tensor, " vocabulary"] | None


class Workspace:
    """Memory for logits and probabilities that all calls on a CPU share.

    The operating system clears newly allocated memory page by page, which takes longer than
    computing the exponentials that are written there. On CUDA, torch's allocator keeps memory.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(
        self, name: str, rows: int, vocab_size: int, like: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """Return uninitialised memory `[row, vocabulary]` on the device of `like`."""
        if like.device.type != "cpu":
            return like.new_empty(rows, vocab_size, dtype=dtype)
        kept = self._kept.get(name)
        if kept is None or kept.dtype != dtype or kept.shape[1] != vocab_size or len(kept) < rows:
            with torch.inference_mode(False):  # training writes into the same memory
                kept = torch.empty(rows, vocab_size, dtype=dtype)
            self._kept[name] = kept
        return kept[:rows]


class Scan(NamedTuple):
    """The result of a pass over tokens without gradients.

    Attributes:
        losses: `[token]`, in float32 or wider.
        entropies: entropies of the predictions, `[token]`, in nats; None if not asked for.
        probabilities: `[token, vocabulary]`; None if not asked for.
    """

    losses: Float[Tensor, " token"]
    entropies: Float[Tensor, " token"] | None
    probabilities: Float[Tensor, "token vocabulary"] | None


class Known(NamedTuple):
    """Probabilities of tokens; `rows` says which of them are used, and in which order."""

    probabilities: Float[Tensor, "token vocabulary"]
    rows: RowIndices
    losses: Float[Tensor, " token"]


class _Piece(NamedTuple):
    rows: slice
    hidden: Tensor
    targets: Tensor
    logits: Tensor
    probabilities: Tensor
    losses: Tensor


def tokens_held(vocab_size: int, device: torch.device) -> int:
    """Return for how many tokens to hold probabilities: 128 MiB of them, but at least `FEWEST`."""
    return max(FEWEST, HELD * (1 if device.type == "cpu" else 4) // vocab_size)


def check_head(head: Any) -> nn.Linear:
    """Return a head that computes exactly what `nn.Linear` does; refuse any other."""
    if not isinstance(head, nn.Linear):
        raise ConfigurationError(
            f"head={type(head).__name__}: an nn.Linear from features to the vocabulary is needed, "
            "such as model.lm_head. If the model has none, make one: head = nn.Linear(features, "
            "vocab_size, bias=False); head.weight = embedding.weight."
        )
    found = None
    if type(head).forward is not nn.Linear.forward or "forward" in vars(head):
        found = f"a forward pass of its own ({type(head).__name__})"
    elif head._forward_hooks or head._forward_pre_hooks or head._backward_hooks:
        found = "hooks"
    elif type(head.weight) not in (Tensor, nn.Parameter):
        found = f"a weight of type {type(head.weight).__name__}"
    elif head.weight.shape != (head.out_features, head.in_features):
        found = f"a weight of shape {tuple(head.weight.shape)}"
    if found is not None:
        raise ConfigurationError(
            f"the head has {found}, which would be ignored: TokenLoss multiplies by the head's "
            "weight itself, in chunks, without calling the head. Pass a plain nn.Linear (not an "
            "adapter, nor a quantised, sharded or weight-normalised layer), or compute all logits "
            "and use TokenSelection."
        )
    return head


def scan(
    head: nn.Linear,
    hidden: Float[Tensor, "token feature"],
    targets: Int64[Tensor, " token"],
    chunk: int,
    space: Workspace,
    *,
    entropy: bool = False,
    hold: bool = False,
) -> Scan:
    """Compute each token's loss without gradients; if asked, entropies and probabilities too."""
    tokens, vocab_size = hidden.shape[0], head.out_features
    with torch.no_grad():
        lowered, rows = _in_precision(Head(head.weight, head.bias), hidden)
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        losses = torch.empty(tokens, dtype=wide(rows), device=rows.device)
        entropies = torch.empty_like(losses) if entropy else None
        probabilities = space.take("all", tokens, vocab_size, rows, losses.dtype) if hold else None
        for part in _pieces(lowered, rows, targets, chunk, space, into=probabilities):
            losses[part.rows] = part.losses
            if entropies is not None:
                # H = log-sum-exp - sum(p x), and the loss is log-sum-exp - x of the target.
                mean = torch.linalg.vecdot(part.probabilities, part.logits.to(losses.dtype))
                entropies[part.rows] = part.losses + _at(part.logits, part.targets) - mean
    return Scan(losses, entropies, probabilities)


class HeadLoss(torch.autograd.Function):
    """The weighted mean of tokens' cross-entropies, with gradients made in the forward pass.

    The gradients follow from the probabilities, which the forward pass has at hand. The backward
    pass would have to compute the logits again. The gradients are held in float32 until the
    backward pass scales them, so that half precision does not lose small ones.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor | None,
        chunk: int,
        space: Workspace,
        known: Known | None,
        graded: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss (0 without tokens) and each token's loss.

        Args:
            ctx: passes the gradients to the backward pass.
            hidden: `[token, feature]`.
            weight: `[vocabulary, feature]`.
            bias: `[vocabulary]`, or None.
            targets: int64 `[token]`.
            weights: the tokens' weights, `[token]`; None if all weigh 1.
            chunk: the largest number of tokens to compute at once.
            space: memory for logits and probabilities.
            known: the tokens' losses and probabilities; None if they are still to be computed.
            graded: whether gradients are asked for.
        """
        head, rows = _in_precision(Head(weight, bias), hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            sums, device = wide(rows), hidden.device
            losses = torch.empty(rows.shape[0], dtype=sums, device=device)
            for_hidden, for_weight, for_bias = made = tuple(
                torch.zeros(each.shape, dtype=sums, device=device)
                if each is not None and needed and graded
                else None
                for each, needed in zip(
                    (hidden, weight, bias), ctx.needs_input_grad[:3], strict=True
                )
            )
            for part in _pieces(head, rows, targets, chunk, space, known):
                losses[part.rows] = part.losses
                if made == (None, None, None):
                    continue
                # The gradient of the loss by the logits: probabilities, less 1 at the target.
                slopes = part.probabilities
                slopes.scatter_add_(1, part.targets[:, None], -slopes.new_ones(len(slopes), 1))
                if weights is not None:
                    slopes.mul_(weights[part.rows, None])
                if for_bias is not None:
                    for_bias += slopes.sum(0)
                slopes = slopes.to(rows.dtype)
                if for_hidden is not None:
                    for_hidden[part.rows] = slopes @ head.weight
                if for_weight is not None:
                    _add_product(for_weight, slopes, part.hidden)
            count = max(1, rows.shape[0])
            for each in made:
                if each is not None:
                    each /= count
        ctx.save_for_backward(*made)
        ctx.dtypes = [None if each is None else each.dtype for each in (hidden, weight, bias)]
        ctx.mark_non_differentiable(losses)
        return (losses if weights is None else losses * weights).sum() / count, losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients made in the forward pass."""
        # If the factor is known to be 1, no scaled copy of the weight's gradient is made.
        whole = slope.device.type == "cpu" and bool(slope == 1)
        made = (
            None if each is None else (each if whole else each * slope).to(dtype)
            for each, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return *made, None, None, None, None, None, None


def _pieces(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    chunk: int,
    space: Workspace,
    known: Known | None = None,
    into: Tensor | None = None,
) -> Iterator[_Piece]:
    """Yield pieces of the tokens; each overwrites the one before, except what goes `into`."""
    tokens, vocab_size = hidden.shape[0], head.weight.shape[0]
    size = max(1, min(tokens, chunk))
    if hidden.device.type == "cpu":
        size = min(size, max(FEWEST, PIECE // vocab_size))
    all_logits = space.take("logits", size, vocab_size, hidden, hidden.dtype)
    all_found = into
    if all_found is None:
        all_found = space.take("probabilities", size, vocab_size, hidden, wide(hidden))
    for start in range(0, tokens, size):
        rows = slice(start, min(start + size, tokens))
        part, asked = hidden[rows], targets[rows]
        logits = all_logits[: len(part)]
        found = all_found[: len(part)] if into is None else into[rows]
        if known is not None:
            torch.index_select(known.probabilities, 0, known.rows[rows], out=found)
            yield _Piece(rows, part, asked, logits, found, known.losses[rows])
            continue
        if head.bias is None:
            torch.mm(part, head.weight.t(), out=logits)
        else:
            torch.addmm(head.bias, part, head.weight.t(), out=logits)
        torch.softmax(logits, -1, dtype=found.dtype, out=found)
        # The log-sum-exp is computed from the highest logit and its probability, so it is exact
        # even if the target's own probability is too small for a float32.
        highest = logits.amax(1).to(found.dtype)
        losses = (highest - _at(logits, asked)) - found.amax(1).log()
        yield _Piece(rows, part, asked, logits, found, losses)


def _at(logits: Tensor, targets: Tensor) -> Tensor:
    """Return each token's logit at its target."""
    return logits.gather(1, targets[:, None]).squeeze(1).to(wide(logits))


def _add_product(total: Tensor, slopes: Tensor, hidden: Tensor) -> None:
    """Add a piece's gradient of the weight to the total, never in half precision."""
    if slopes.dtype == total.dtype:
        total.addmm_(slopes.t(), hidden)
    elif slopes.dtype != torch.float16:
        total += slopes.t() @ hidden
    # A sum over many tokens may exceed float16, and no loss scale makes it smaller.
    elif total.is_cuda and torch.version.cuda is not None:
        total += torch.mm(slopes.t(), hidden, out_dtype=total.dtype)
    else:
        total.addmm_(slopes.t().to(total.dtype), hidden.to(total.dtype))


def wide(tensor: Tensor) -> torch.dtype:
    """Return the precision of sums: float32, or float64 if the tensor has it."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _in_precision(head: Head, hidden: Tensor) -> tuple[Head, Tensor]:
    """Return the head and its input in the precision that `nn.Linear` and autocast would use."""
    kind = hidden.device.type
    if not torch.is_autocast_enabled(kind) or hidden.dtype == torch.float64:
        return head, hidden
    precision = torch.get_autocast_dtype(kind)
    bias = None if head.bias is None else head.bias.to(precision)
    return Head(head.weight.to(precision), bias), hidden.to(precision)
