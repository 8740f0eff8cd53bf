"""Data loaders over images in memory: normalised and augmented a batch at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from selective_backprop.lab.data.augment import Augmentation
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.random_bits import key_of

Batch = tuple[Float32[Tensor, "example channel height width"], Int64[Tensor, " example"]]
IndexedBatch = tuple[
    Float32[Tensor, "example channel height width"],
    Int64[Tensor, " example"],
    Int64[Tensor, " example"],
]


class ImageDataset(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels, which come normalised and augmented, whole batches at a time.

    Augmentation and `EpochSampler` read `epoch`, which `set_epoch` sets. A loader's workers are
    made anew for each pass (`persistent_workers=False`) and get the epoch with their copy of the
    data set, so call `set_epoch` before the pass begins.

    Args:
        images: grey levels 0 to 255. Held, not copied; where they are, batches are made.
        labels: class numbers from 0, on the same device.
        mean: per channel, of levels divided by 255.
        std: per channel, of the same; not 0.
        augmentation: what to do to each image; None leaves them as they are.
        seed: what the augmentation depends on besides epoch and index.
        channels_last: whether batches come in the memory format that convolutions are fastest in.
    """

    def __init__(
        self,
        images: UInt8[Tensor, "example channel height width"],
        labels: Int64[Tensor, " example"],
        *,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: Augmentation | None = None,
        seed: int = 0,
        channels_last: bool = True,
    ) -> None:
        self.images = images
        self.labels = labels
        self.augmentation = augmentation
        self.seed = seed
        self.epoch = 0
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        # (level / 255 - mean) / std, as one multiplication and one addition.
        scales = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        means = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
        self._factor = (1 / (255 * scales)).float().to(images.device)
        self._offset = (-means / scales).float().to(images.device)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next, from 0; order and augmentation follow it."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def __getitem__(
        self, index: int
    ) -> tuple[Float32[Tensor, "channel height width"], Int64[Tensor, ""]]:
        """Return one example, exactly as it would lie in a batch."""
        images, labels = self.__getitems__([range(len(self))[index]])
        return images[0], labels[0]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Return examples as one batch, already collated.

        Args:
            indices: from 0, in any order, repeated or not.

        Returns:
            Normalised and augmented images, and labels, in the order of the indices.
        """
        rows = torch.as_tensor(indices, dtype=torch.int64)
        if self.images.is_cuda:  # pinned, or the host would wait for the copy
            rows = rows.pin_memory().to(self.images.device, non_blocking=True)
        # Much cheaper than `images[rows]`, and than normalising in the other memory format.
        images = self.images.index_select(0, rows).to(torch.float32)
        images = images.mul_(self._factor).add_(self._offset).contiguous(memory_format=self._format)
        if self.augmentation is not None:
            # Black is level 0, which leaves only the offset.
            images = self.augmentation(
                images, rows, seed=self.seed, epoch=self.epoch, black=self._offset
            )
        return images, self.labels.index_select(0, rows)


class IndexedDataset(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """The same images and labels, each batch with the indices of its examples beside them.

    Args:
        images: where they come from.
    """

    def __init__(self, images: ImageDataset) -> None:
        self._images = images

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next, from 0."""
        self._images.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return one example, exactly as it would lie in a batch."""
        image, label = self._images[index]
        return image, label, torch.tensor(range(len(self))[index])

    def __getitems__(self, indices: Sequence[int]) -> IndexedBatch:
        """Return examples as one batch, already collated.

        Args:
            indices: from 0, in any order, repeated or not.

        Returns:
            Normalised and augmented images, labels, and indices, the last on the CPU.
        """
        images, labels = self._images.__getitems__(indices)
        return images, labels, torch.as_tensor(indices, dtype=torch.int64)


class EpochSampler(Sampler[int]):
    """A random order of a data set that depends on seed and the data set's epoch alone.

    Two passes with no `set_epoch` between them have the same order, and training resumed at an
    epoch goes on as if it had never stopped.

    Args:
        dataset: whose indices to order, and whose epoch to follow.
        seed: another seed gives other orders.
    """

    def __init__(self, dataset: ImageDataset, *, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._dataset)

    def __iter__(self) -> Iterator[int]:
        """Yield every index once."""
        generator = torch.Generator().manual_seed(key_of(self._seed, self._dataset.epoch))
        yield from torch.randperm(len(self._dataset), generator=generator).tolist()


def collate(batch: Batch | IndexedBatch) -> Batch | IndexedBatch:
    """Return a batch as it is: the data set's `__getitems__` has collated it already."""
    return batch


def make_loader(
    data: ImageData,
    *,
    batch_size: int,
    seed: int,
    augmentation: Augmentation | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    num_workers: int = 0,
    with_indices: bool = False,
) -> DataLoader[Any]:
    """Return a loader of the training images.

    Order and augmentation depend on `seed` and epoch alone; no global random stream is read or
    moved. Call `loader.dataset.set_epoch(epoch)` before each pass: without it, every pass has
    the order and the augmentation of epoch 0.

    Args:
        data: the data set.
        batch_size: examples in a batch.
        seed: of the run.
        augmentation: what to do to each image; None leaves them as they are.
        shuffle: whether each epoch has an order of its own; otherwise the data set's order.
        drop_last: whether to leave out a last batch that is not full.
        num_workers: worker processes; 0 loads in this one, which for images in memory is
            usually faster.
        with_indices: whether each batch says which examples it is of.

    Returns:
        A loader of `(images, labels)`, or of `(images, labels, indices)`, channels last.
    """
    dataset = ImageDataset(
        data.train_images,
        data.train_labels,
        mean=data.mean,
        std=data.std,
        augmentation=augmentation,
        seed=seed,
    )
    return DataLoader(
        IndexedDataset(dataset) if with_indices else dataset,
        batch_size=batch_size,
        sampler=EpochSampler(dataset, seed=seed) if shuffle else None,
        drop_last=drop_last,
        num_workers=num_workers,
        collate_fn=collate,  # ty: ignore[invalid-argument-type]
        # A loader draws the seed of its workers from here, or else from the global stream.
        generator=torch.Generator().manual_seed(key_of(seed)),
    )


def make_test_loader(
    data: ImageData, *, batch_size: int, num_workers: int = 0
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Return a loader of the test images, in order, none left out and none augmented.

    Args:
        data: the data set; its training images' statistics normalise the test images.
        batch_size: examples in a batch.
        num_workers: worker processes; 0 loads in this one.

    Returns:
        A loader of `(images, labels)`, channels last.
    """
    dataset = ImageDataset(data.test_images, data.test_labels, mean=data.mean, std=data.std)
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=collate,  # ty: ignore[invalid-argument-type]
        generator=torch.Generator().manual_seed(0),
    )
