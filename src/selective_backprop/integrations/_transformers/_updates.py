"""Group the batches of a selective loader into whole updates of the model."""

import math
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from selective_backprop import BatchError, ConfigurationError, Selection, SelectiveLoader
from selective_backprop.integrations._kit import Saved, seal, unpack_selected
from selective_backprop.integrations._transformers._documents import Packing

WEIGHTS, INDICES = "selection_weights", "selection_indices"


class Updates:
    """The iterable that the Trainer trains on: each pass yields the batches of whole updates.

    The Trainer fetches all batches of an update before it trains on the first. This iterable has no
    length, because the Trainer would expect the same length of every epoch. If an epoch ends within
    an update, the update's batches wait for the first batches of the next epoch.
    """

    def __init__(
        self,
        loader: SelectiveLoader,
        batches: int,  # in an update
        device: torch.device,  # of batches that wait
        *,
        is_over: Callable[[], bool],  # whether training has ended
        ended: Callable[[], None],  # called at the end of each pass
        packing: Packing | None = None,  # joins the selected documents of a batch into one row
        selects: bool = True,  # whether the loader yields selections, not just its own batches
    ) -> None:
        self.loader, self.batches, self._device = loader, batches, device
        self._is_over, self._ended = is_over, ended
        self._packing, self._selects = packing, selects
        self._held: list[Any] = []
        self._beyond: list[Any] = []  # documents that the last batch had no room for
        self._resumed = False
        self._longest = 0  # how many batches the Trainer takes from one iterator; 0 if unknown
        self.rest: Iterator[dict[str, Any]] | None = None  # of an epoch with more batches than that
        self.counts_candidates = False  # whether the number of updates is unknown in advance
        # Documents that do not fit make batches of their own.
        self.repacks = packing is not None and packing.most is not None

    @property
    def dataset(self) -> Any:
        """The loader's data set, for callbacks: the Trainer hands this object to them."""
        return self.loader.dataset

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of one epoch, or of more epochs until one update is full."""
        epoch, self.rest = self.rest or self._epoch(), None
        for number, batch in enumerate(epoch, 1):
            if self.repacks and number == self._longest:
                self.rest = epoch
            yield batch

    def _epoch(self) -> Iterator[dict[str, Any]]:
        if self._is_over():
            return
        while True:
            before, yielded = self.loader.stats, False
            self.loader.set_epoch(self.loader.next_epoch)  # tells the sampler the epoch
            for selected in self._select():
                self._held.append(selected)
                if len(self._held) == self.batches:
                    update, self._held = self._held, []
                    for rows, selection in update:
                        batch = rows if self._packing is None else self._packing.pack(rows)
                        yield batch if selection is None else with_keys(batch, selection)
                    yielded = True
            resumed, self._resumed = self._resumed, False
            # The Trainer would stop training after an epoch without an update.
            now = self.loader.stats
            goes_on = resumed or now.kept > before.kept or now.waiting > before.waiting
            if yielded or not goes_on or self._is_over():
                break
            self._check_recorded()
        self._ended()

    def _check_recorded(self) -> None:
        needs, ledger = self.loader.strategy.needs, self.loader.ledger
        if needs is not None and needs.recordings and ledger is not None and ledger.recorded.empty:
            raise ConfigurationError(
                "the strategy selects by losses that training records, but the first epoch does "
                f"not fill one update of {self.batches} batches: lower gradient_accumulation_steps"
            )

    def _select(self) -> Iterator[Any]:
        """Yield the epoch's selected batches, with no more documents than a batch has room for."""
        packing, batches = self._packing, iter(self.loader)
        if packing is None:
            yield from batches if self._selects else ((batch, None) for batch in batches)
            return
        while True:
            if not packing.is_full(self._beyond):
                batch = next(batches, None)
                if batch is None:
                    return
                self._beyond.append(batch)
            batch, self._beyond = packing.cut(self._beyond)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {
            "loader": self.loader.state_dict(),
            "held": [seal(batch) for batch in self._held],
            "beyond": [seal(batch) for batch in self._beyond],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        kind = Selection if self._selects else NoneType
        loader, held, over = Saved(state).fields("loader", "held", "beyond")
        batches, beyond = (
            [unpack_selected(each, self._device, kind) for each in part.items()]
            for part in (held, over)
        )
        if len(beyond) > (self._packing is not None):
            raise over.refuse("no more than the documents that one batch had no room for")
        if len(batches) >= self.batches:
            raise held.refuse(f"a list of fewer than the {self.batches} batches of an update")
        with loader.inside():
            self.loader.load_state_dict(loader.value)
        self._held, self._beyond, self._resumed = batches, beyond, True

    def count(self, epochs: float) -> int:
        """Return the number of updates in the next `epochs` epochs.

        If this number is unknown in advance, `counts_candidates` is set, and the number of updates
        without selection is returned.
        """
        whole = math.ceil(epochs)
        try:
            if self.repacks:
                raise TypeError("packed rows hold different numbers of documents.")
            *full, last = self.loader.lengths(whole)
        except TypeError as error:
            if self.loader.planned_batches is None or epochs != whole:
                raise ConfigurationError(
                    f"the number of steps in num_train_epochs={epochs:g} is unknown: {error} Pass "
                    "max_steps= to say where training and the learning-rate schedule end."
                ) from error
            self.counts_candidates = True
            full, last, epochs = [], self.loader.planned_batches, whole
        updates = (sum(full) + math.ceil(last * (epochs - whole + 1))) // self.batches
        if not updates:
            raise ConfigurationError(
                f"{epochs:g} epochs do not fill one update of {self.batches} batches with "
                f"{self.loader.batch_size} selected rows each. Train longer, or lower "
                "gradient_accumulation_steps or the batch size"
            )
        self._longest = updates * self.batches
        return updates


def with_keys(batch: Any, selection: Selection) -> dict[str, Any]:
    """Return the batch with its rows' weights and indices under two extra keys."""
    if not isinstance(batch, Mapping):
        raise BatchError(
            f"the collator returned a {type(batch).__name__}, but the Trainer's models take a "
            'mapping, such as {"input_ids": …, "labels": …}'
        )
    extra = {WEIGHTS: selection.weights}
    if selection.indices is not None:
        extra[INDICES] = selection.indices
    return {**batch, **extra}


def take_keys(batch: dict[str, Any]) -> tuple[dict[str, Any], Selection | None]:
    """Return the batch without the keys that `with_keys` added, and the selection they hold."""
    rest = {key: value for key, value in batch.items() if key not in (WEIGHTS, INDICES)}
    weights = batch.get(WEIGHTS)
    return rest, None if weights is None else Selection(batch.get(INDICES), weights)


def candidates_per_epoch(loader: DataLoader[Any], subset: Any) -> int | None:
    """Return how many examples of the subset, or of all, come up in an epoch; None if unknown."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
        return None
    sampler: Any = batches.sampler
    examples = len(sampler if subset is None else subset)
    return examples // batches.batch_size * batches.batch_size if batches.drop_last else examples
