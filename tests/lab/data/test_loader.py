"""Loaders of images in memory: order and augmentation follow seed and epoch, and nothing else."""

from dataclasses import replace

import torch
from fixture_batches import same
from fixture_lab import noise_images as data_of
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop_lab.data.augment import Augmentation, Border
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.loader import InMemoryDataset, make_loader

AUGMENTATION = Augmentation(shift=1, flip=True, cutout=2)


def dataset_of(data: LabData, augmentation: Augmentation | None = None) -> InMemoryDataset:
    numbered = replace(data, train_labels=torch.arange(len(data.train_labels)))  # tell them apart
    return InMemoryDataset(numbered, augmentation=augmentation, seed=3)


def epoch_of(loader, epoch: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    loader.dataset.set_epoch(epoch)
    return list(loader)


@given(st.lists(st.integers(0, 22), min_size=1, max_size=9))
def test_a_batch_is_its_examples_in_the_order_asked_for(indices):
    data = data_of()
    dataset = dataset_of(data, AUGMENTATION)
    dataset.set_epoch(4)
    images, labels = dataset.__getitems__(indices)
    assert labels.tolist() == indices
    for row, index in enumerate(indices):
        image, label = dataset[index]
        assert torch.equal(image, images[row])
        assert label == labels[row]
    assert dataset.inputs is data.train_inputs  # held, not copied
    assert torch.equal(data.train_inputs, data_of().train_inputs)  # nor changed


def test_a_black_border_is_as_black_as_a_black_pixel():
    dark = torch.zeros(20, 3, 6, 6, dtype=torch.uint8)
    data = replace(data_of(20), train_inputs=dark, mean=(0.2, 0.4, 0.6), std=(0.3, 0.2, 0.1))
    dataset = InMemoryDataset(data, augmentation=Augmentation(shift=3, border=Border.BLACK))
    images, _ = dataset.__getitems__(range(20))
    wanted = torch.tensor([-0.2 / 0.3, -0.4 / 0.2, -0.6 / 0.1]).view(3, 1, 1)
    torch.testing.assert_close(images, wanted.expand_as(images))


def test_an_epoch_is_the_same_whatever_was_iterated_before_it():
    straight, resumed = (
        make_loader(data_of(), batch_size=4, seed=5, augmentation=AUGMENTATION) for _ in range(2)
    )
    epochs = [epoch_of(straight, epoch) for epoch in range(3)]
    assert same(epoch_of(resumed, 2), epochs[2])
    next(iter(resumed))
    assert same(epoch_of(resumed, 1), epochs[1])
    assert not same(epochs[1], epochs[2])


def test_test_images_come_in_order_with_the_training_images_statistics():
    data = data_of()
    images, labels = (
        torch.cat(parts) for parts in zip(*make_loader(data, batch_size=4, test=True), strict=True)
    )
    expected, _ = dataset_of(data).__getitems__(range(9))
    assert torch.equal(images, expected.flip(0))
    assert torch.equal(labels, data.test_labels)


def test_a_batch_with_indices_is_the_same_batch_and_says_which_examples_it_is_of():
    options = {"batch_size": 4, "seed": 5, "augmentation": AUGMENTATION}
    plain = make_loader(data_of(), **options)
    indexed = make_loader(data_of(), with_indices=True, **options)
    for loader in (plain, indexed):
        loader.dataset.set_epoch(2)
    seen = []
    for (images, labels), (same_images, same_labels, indices) in zip(plain, indexed, strict=True):
        assert torch.equal(images, same_images)
        assert torch.equal(labels, same_labels)
        assert torch.equal(labels, data_of().train_labels[indices])
        seen += indices.tolist()
    assert sorted(seen) == list(range(len(data_of().train_labels)))
