"""`TokenLedger`: one loss for each token of a data set, by document and position."""

from collections import deque
from typing import Any, final

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_flag, check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import RowIndices
from selective_backprop._step.latest import Latest


@final
class TokenLedger:
    """Remember one loss for each token of a data set, by document and position.

    You can use the remembered losses in two ways. If you pass them as `reference=` when you call a
    `TokenLoss`, it prefers tokens whose loss has fallen least below the remembered one. If you pass
    them as `scores=` to `TokenLoss.choose`, it chooses tokens before the model runs. In both cases
    a token without a remembered loss gets NaN, which ranks highest.

    Each loss takes 2 bytes of CPU memory: it is stored as a float16, which holds three digits.
    Losses on a GPU are copied to the CPU in the background. The CPU waits for the GPU in two cases:
    to read document numbers that are on the GPU (once for each tensor), and to recall losses that
    have not arrived yet.

    Args:
        documents: number of documents in the data set.
        length: the largest number of tokens that a document has in a batch.
        first: keep the first loss of each token instead of the last.

    Raises:
        ConfigurationError: if a size is not a whole number of at least 1, or `first` is no bool.

    Example:
        >>> import torch, selective_backprop as sb
        >>> ledger = sb.TokenLedger(documents=10, length=4)
        >>> ledger.file(torch.tensor([7]), torch.tensor([[0.5, torch.nan, 2.0]]))
        >>> ledger.recall(torch.tensor([7, 0]), length=3)
        tensor([[0.5000,    nan, 2.0000],
                [   nan,    nan,    nan]])
    """

    def __init__(self, documents: int, length: int, *, first: bool = False) -> None:
        shape = (int(check_whole("documents", documents)), int(check_whole("length", length)))
        with torch.inference_mode(False):  # losses are filed in training, too
            self._losses = torch.full(shape, torch.nan, dtype=torch.float16)
        self._first = check_flag("first", first)
        self._numbers: Latest[Tensor] = Latest()  # document numbers, on the CPU
        self._late: deque[tuple[torch.cuda.Event, Tensor, Tensor]] = deque()

    def recall(self, documents: RowIndices, length: int) -> Tensor:
        """Return the remembered losses of some documents, for their first `length` tokens.

        Args:
            documents: the documents' numbers, int64 `[row]`.
            length: number of tokens in a row of the batch.

        Returns:
            float32 `[row, token]`, on the device of `documents`; NaN where no loss is remembered.

        Raises:
            ConfigurationError: if a document is not in the data set, or `length` exceeds the
                `length` of this ledger.
        """
        rows = self._rows(documents, length)
        self._file_late(needed=rows)
        losses = self._losses[rows, :length].float()
        return losses.to(documents.device, non_blocking=True)

    def file(self, documents: RowIndices, losses: Tensor) -> None:
        """Remember losses. Where a loss is NaN, keep the remembered one.

        Args:
            documents: the documents' numbers, int64 `[row]`, each at most once.
            losses: `[row, token]`, as `TokenLoss` returns them; NaN where no loss was computed.

        Raises:
            ConfigurationError: as for `recall`, or if `losses` does not have one row per document.
        """
        if losses.ndim != 2 or len(losses) != len(documents):
            raise ConfigurationError(
                f"losses of shape {tuple(losses.shape)} for {len(documents)} documents; "
                "[row, token] is needed, with one row for each document"
            )
        rows, losses = self._rows(documents, losses.shape[1]), losses.detach()
        if not losses.is_cuda:
            self._file_late(needed=rows)
            self._write(rows, losses)
            return
        arriving = losses.to("cpu", non_blocking=True)
        copied = torch.cuda.current_stream(losses.device).record_event()
        self._late.append((copied, rows.clone(), arriving))
        self._file_late()

    def _file_late(self, needed: Tensor | None = None, *, every: bool = False) -> None:
        """File the losses that have arrived; wait for all others if some are `needed`."""
        waits = every or (
            needed is not None and any(torch.isin(rows, needed).any() for _, rows, _ in self._late)
        )
        while self._late and (self._late[0][0].query() or waits):
            copied, rows, losses = self._late.popleft()
            if waits:
                copied.synchronize()
            self._write(rows, losses)

    def _write(self, rows: Tensor, losses: Tensor) -> None:
        length, most = losses.shape[1], torch.finfo(torch.float16).max
        new = losses.float().clamp(-most, most).half()
        old = self._losses[rows, :length]
        stays = ~old.isnan() if self._first else new.isnan()
        self._losses[rows, :length] = torch.where(stays, old, new)

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered losses."""
        self._file_late(every=True)
        return {"losses": self._losses.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`.

        Raises:
            ConfigurationError: if the state is damaged, or was saved from a ledger of another size.
        """
        (losses,) = Saved(state).fields("losses")
        shape = tuple(self._losses.shape)
        found = losses.tensor(torch.float16, shape=shape, nan=True)
        with torch.inference_mode(False):
            self._losses = found.to("cpu", copy=True)
        self._late.clear()

    def _rows(self, documents: Tensor, length: int) -> Tensor:
        if not isinstance(documents, Tensor) or documents.dtype != torch.int64:
            found = getattr(documents, "dtype", type(documents).__name__)
            raise ConfigurationError(
                f"documents are of type {found}; an int64 tensor [row] of their numbers is needed"
            )
        rows = self._numbers.get(documents)
        if rows is None:
            rows = self._numbers.put(documents.cpu(), documents)
        known, longest = self._losses.shape
        if length > longest or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < known):
            low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, 0)
            raise ConfigurationError(
                f"got documents {low} to {high} of {length} tokens, but this ledger has documents "
                f"0 to {known - 1} of at most {longest} tokens. Build it with the data set's sizes."
            )
        return rows
