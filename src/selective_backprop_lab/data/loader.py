"""Data loaders over inputs in memory, which scale and augment whole batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.random_bits import key_of

# The largest shares of a GPU's memory for the data, and for images that are augmented an epoch at a
# time. While such images are made, they take some four times as much.
_DATA_SHARE, _EPOCH_SHARE = 1 / 4, 1 / 16


class InMemoryDataset(Dataset[tuple[Tensor, ...]]):
    """Training or test examples in memory, scaled and augmented whole batches at a time.

    Augmentation and `EpochSampler` read `epoch`, which `set_epoch` sets before a pass begins.
    Batches are made on the inputs' device, images channels last. On a GPU, a whole epoch is made at
    once if its memory suffices. With `with_indices`, a batch is `(inputs, labels, indices)`.
    """

    def __init__(
        self,
        data: LabData,
        *,
        test: bool = False,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        with_indices: bool = False,
    ) -> None:
        parts = (data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)
        self.inputs, self.labels = inputs, _ = parts[test]
        self.augmentation, self.seed, self.with_indices = augmentation, seed, with_indices
        self.epoch = 0
        self._at_once = _fits(inputs.device, 4 * inputs.numel(), _EPOCH_SHARE)
        self._made: tuple[int, Tensor] | None = None  # an epoch, and its inputs, channels last
        # (input / unit - mean) / std, as one multiplication and one addition.
        shape = (-1, *[1] * (inputs.ndim - 2))
        scales = torch.tensor(data.std, dtype=torch.float64).view(shape)
        means = torch.tensor(data.mean, dtype=torch.float64).view(shape)
        self._factor = (1 / (data.unit * scales)).float().to(inputs.device)
        self._offset = (-means / scales).float().to(inputs.device)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, from 0. Order and augmentation depend on it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(part[0] for part in self.__getitems__([range(len(self))[index]]))

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Return a collated batch of examples, in the order of the indices."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        if self.inputs.is_cuda:  # pinned, so that the host need not wait for the copy
            rows = rows.pin_memory().to(self.inputs.device, non_blocking=True)
        inputs = self._from_epoch(rows) if self._at_once else self._make(rows)
        labels = self.labels.index_select(0, rows)
        return (inputs, labels, rows) if self.with_indices else (inputs, labels)

    def _from_epoch(self, rows: Tensor) -> Tensor:
        epoch = self.epoch if self.augmentation is not None else 0
        images = self.inputs.ndim == 4
        if self._made is None or self._made[0] != epoch:
            self._made = None  # frees the memory for the next
            made = self._make(torch.arange(len(self), device=rows.device))
            self._made = epoch, made.permute(0, 2, 3, 1) if images else made
        inputs = self._made[1].index_select(0, rows)
        return inputs.permute(0, 3, 1, 2) if images else inputs

    def _make(self, rows: Tensor) -> Tensor:
        # Much faster than `inputs[rows]`, and than scaling in the other memory format.
        inputs = self.inputs.index_select(0, rows)
        if not len(self._factor):
            return inputs.long()
        inputs = inputs.to(torch.float32).mul_(self._factor).add_(self._offset)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
            if self.augmentation is not None:
                # Black is level 0, which leaves only the offset.
                inputs = self.augmentation(
                    inputs, rows, seed=self.seed, epoch=self.epoch, black=self._offset
                )
        return inputs


class EpochSampler(Sampler[int]):
    """A random order of a data set, `thinned` or not, that depends only on the seed and epoch."""

    def __init__(self, dataset: InMemoryDataset, *, seed: int, thinned: float = 1.0) -> None:
        self._dataset, self._seed = dataset, seed
        self._thins, self._left_out = thinned < 1.0, 0
        if self._thins:
            labels = dataset.labels.cpu()
            self._largest = (labels == labels.bincount().argmax()).nonzero()[:, 0]
            size = len(self._largest)
            self._left_out = size - max(1, round(thinned * size))

    def __len__(self) -> int:
        return len(self._dataset) - self._left_out

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(key_of(self._seed, self._dataset.epoch))
        order = torch.randperm(len(self._dataset), generator=generator)
        if self._thins:
            drawn = torch.ones(len(order), dtype=torch.bool)
            away = torch.randperm(len(self._largest), generator=generator)[: self._left_out]
            drawn[self._largest[away]] = False
            order = order[drawn[order]]
        yield from order.tolist()


@lru_cache(maxsize=1)
def on_device(data: LabData, device: torch.device) -> LabData:
    """Return the data with their examples on a GPU, if its memory suffices; the last are kept."""
    parts = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    held = [getattr(data, name) for name in parts]
    size = sum(part.numel() * part.element_size() for part in held)
    if not _fits(device, size, _DATA_SHARE):
        return data
    moved = (part.to(device) for part in held)
    return replace(data, **dict(zip(parts, moved, strict=True)))


def _fits(device: torch.device, size: int, share: float) -> bool:
    if device.type != "cuda":
        return False
    return size <= share * torch.cuda.get_device_properties(device).total_memory


def make_loader(
    data: LabData,
    *,
    batch_size: int,
    seed: int = 0,
    augmentation: Augmentation | None = None,
    shuffle: bool = True,
    with_indices: bool = False,
    test: bool = False,
    thinned: float = 1.0,
) -> DataLoader[Any]:
    """Return a loader of the training examples; set its data set's epoch before each pass.

    Each pass draws only the share `thinned` of the largest class, another part each time.
    With `test`, it has all test examples, in order, scaled as the training examples are.
    """
    options: dict[str, Any] = {"augmentation": augmentation, "with_indices": with_indices}
    dataset = InMemoryDataset(data, test=test, seed=seed, **options)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=EpochSampler(dataset, seed=seed, thinned=thinned) if shuffle and not test else None,
        collate_fn=lambda batch: batch,  # the data set's `__getitems__` has collated it
        # In each pass a loader draws a seed for workers: from here, not from the global stream.
        generator=torch.Generator().manual_seed(key_of(seed)),
    )
