"""Augmentation: what moves, what stays, and that an image's fate is its own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.augment import Augmentation, Border

AUGMENTATIONS = st.builds(
    Augmentation,
    shift=st.integers(0, 3),
    flip=st.booleans(),
    cutout=st.integers(0, 6),
    border=st.sampled_from(Border),
)
BLACK = torch.tensor([-1.5, -2.5]).view(2, 1, 1)


def images_of(count: int, *, channels: int = 2, height: int = 5, width: int = 6) -> torch.Tensor:
    """Return images in which every pixel has a value of its own, none of them 0."""
    size = count * channels * height * width
    return torch.arange(1.0, size + 1).view(count, channels, height, width)


def padded(image: torch.Tensor, shift: int, border: Border) -> torch.Tensor:
    if shift == 0:
        return image
    if border is Border.BLACK:
        return torch.nn.functional.pad(image - BLACK, [shift] * 4) + BLACK
    return torch.nn.functional.pad(image[None], [shift] * 4, mode="reflect")[0]


def crops(image: torch.Tensor, shift: int, *, flip: bool, border: Border) -> list[torch.Tensor]:
    """Return every image that padding, cropping and flipping may give."""
    _, height, width = image.shape
    wide = padded(image, shift, border)
    found = [
        wide[:, top : top + height, left : left + width]
        for top in range(2 * shift + 1)
        for left in range(2 * shift + 1)
    ]
    return found + [crop.flip(2) for crop in found] * flip


@pytest.mark.parametrize("border", Border)
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_every_crop_of_a_padded_image_occurs_equally_often_and_nothing_else(shift, flip, border):
    image = images_of(1)[0]
    count = 400 * (2 * shift + 1) ** 2 * (1 + flip)
    out = Augmentation(shift=shift, flip=flip, border=border)(
        image.expand(count, -1, -1, -1), torch.arange(count), seed=0, epoch=0, black=BLACK
    )
    occurrences = [
        (out == crop).flatten(1).all(1).sum().item()
        for crop in crops(image, shift, flip=flip, border=border)
    ]
    assert sum(occurrences) == count
    assert all(abs(occurrence - 400) < 100 for occurrence in occurrences)


@pytest.mark.parametrize("cutout", [1, 2, 3, 4, 9])
def test_cutout_zeroes_one_square_whose_centre_is_in_the_image(cutout):
    height, width, count = 5, 6, 3000
    images = images_of(count)
    out = Augmentation(cutout=cutout)(images, torch.arange(count), seed=0, epoch=0)
    expected = set()
    for row in range(height):
        for column in range(width):
            hole = torch.zeros(height, width, dtype=torch.bool)
            top, left = row - cutout // 2, column - cutout // 2
            hole[max(top, 0) : top + cutout, max(left, 0) : left + cutout] = True
            expected.add(tuple(hole.flatten().tolist()))
    holes = out == 0
    assert torch.equal(holes[:, 0], holes[:, 1])
    assert {tuple(hole.flatten().tolist()) for hole in holes[:, 0]} == expected
    assert torch.equal(out[~holes], images[~holes])


@given(AUGMENTATIONS, st.lists(st.integers(0, 2**33), min_size=1, max_size=9), st.integers())
def test_an_image_looks_the_same_whatever_else_is_in_the_batch(augmentation, indices, seed):
    indices = torch.tensor(indices)
    images = images_of(len(indices))
    together = augmentation(images, indices, seed=seed, epoch=3)
    order = torch.arange(len(indices)).flip(0)
    assert torch.equal(
        augmentation(images[order], indices[order], seed=seed, epoch=3), together[order]
    )
    for row in range(len(indices)):
        part = slice(row, row + 1)
        alone = augmentation(images[part], indices[part], seed=seed, epoch=3)
        assert torch.equal(alone, together[part])


@given(AUGMENTATIONS, st.booleans())
def test_arguments_and_global_streams_stay_and_the_memory_format_is_kept(augmentation, last):
    memory_format = torch.channels_last if last else torch.contiguous_format
    images = images_of(3).contiguous(memory_format=memory_format)
    before, stream = images.clone(), torch.get_rng_state()
    out = augmentation(images, torch.arange(3), seed=0, epoch=0)
    assert torch.equal(images, before)
    assert torch.equal(stream, torch.get_rng_state())
    assert out.is_contiguous(memory_format=memory_format)
    assert (out.shape, out.dtype) == (images.shape, images.dtype)
    other = torch.contiguous_format if last else torch.channels_last
    again = augmentation(images.contiguous(memory_format=other), torch.arange(3), seed=0, epoch=0)
    assert torch.equal(out, again)


def test_another_seed_or_epoch_gives_another_augmentation():
    augmentation = Augmentation(shift=2, flip=True, cutout=2)
    images, indices = images_of(1).expand(64, -1, -1, -1), torch.arange(64)
    first = augmentation(images, indices, seed=0, epoch=0)
    for seed, epoch in ((1, 0), (0, 1)):
        others = augmentation(images, indices, seed=seed, epoch=epoch)
        assert (others == first).flatten(1).all(1).double().mean() < 0.2


@pytest.mark.parametrize("name", ["shift", "cutout"])
def test_a_negative_size_is_refused_at_construction(name):
    with pytest.raises(sb.ConfigurationError, match=rf"{name} is -1 pixels"):
        Augmentation(**{name: -1})
