"""Data on a CUDA device are those of the host, and stay there if they would fill the device."""

import pytest
import torch
from fixture_lab import noise_images

from selective_backprop_lab.data import loader as module
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.loader import make_loader, on_device

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("room", [1.0, 0.0], ids=["an epoch at once", "batch by batch"])
def test_images_made_on_a_gpu_are_those_made_on_the_host(channels, room, monkeypatch):
    monkeypatch.setattr(module, "_EPOCH_SHARE", room)
    data, options = noise_images(channels=channels), Augmentation(shift=1, flip=True, cutout=2)
    here, there = (
        make_loader(each, batch_size=4, seed=3, augmentation=options, with_indices=True)
        for each in (data, on_device(data, torch.device("cuda")))
    )
    for epoch in (0, 1, 1, 0):
        for loader in (here, there):
            loader.dataset.set_epoch(epoch)
        for batch, moved in zip(here, there, strict=True):
            assert all(torch.equal(a, b.cpu()) for a, b in zip(batch, moved, strict=True))
    assert moved[0].is_cuda
    assert moved[0].is_contiguous(memory_format=torch.channels_last)


def test_data_that_would_fill_a_gpu_stay_on_the_host(monkeypatch):
    monkeypatch.setattr(module, "_DATA_SHARE", 1e-12)
    data = noise_images()
    assert on_device(data, torch.device("cuda")) is data
