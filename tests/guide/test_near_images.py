"""Images that nearly repeat an earlier one are linked to it, by a correlation of their pixels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop.guide import _copies
from selective_backprop.guide._copies import correlate, link_images, shrink_images


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def pictures(count: int, channels: int = 1, side: int = 24, seed: int = 0) -> torch.Tensor:
    """Smooth pictures, no two alike, of levels in 0 to 200, within a border of one level."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, channels, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, side - 6, mode="bicubic")
    padded = torch.nn.functional.pad(smooth, [3] * 4)
    lowest, highest = padded.amin((1, 2, 3), True), padded.amax((1, 2, 3), True)
    return 200 * (padded - lowest) / (highest - lowest)


def slowly(one: np.ndarray, other: np.ndarray, shift: int) -> float:
    """The highest correlation of the one's inner part with a window of the other."""
    height, width = one.shape[-2:]
    inner = one[:, shift : height - shift, shift : width - shift]
    return max(
        np.corrcoef(
            inner.ravel(),
            other[:, down : height - 2 * shift + down, right : width - 2 * shift + right].ravel(),
        )[0, 1]
        for down in range(2 * shift + 1)
        for right in range(2 * shift + 1)
    )


@given(st.integers(1, 3), st.sampled_from([(8, 0), (15, 1), (24, 2)]), st.integers(0, 9))
def test_a_correlation_is_the_highest_of_the_inner_part_at_any_shift(channels, size, seed):
    side, shift = size
    images = drawn(4, channels, side, side, seed=seed)
    pairs = torch.tensor([[1, 0], [3, 0], [3, 2]])
    plain = images.double().numpy()
    wanted = [slowly(plain[one], plain[other], shift) for one, other in pairs.tolist()]
    assert correlate(images, pairs).tolist() == pytest.approx(wanted, abs=1e-4)


def test_flat_images_correlate_with_nothing_but_by_what_little_they_vary():
    images = drawn(3, 1, 24, 24)
    images[1:] = 7
    images[2, 0, 12, 12] = 8
    pairs = torch.tensor([[1, 0], [0, 1], [2, 1], [1, 2], [1, 1]])
    assert correlate(images, pairs).abs().max() < 0.1
    assert correlate(images, pairs[:0]).shape == (0,)


def test_of_many_copies_in_one_cell_the_first_is_kept_though_few_are_compared(monkeypatch):
    monkeypatch.setattr(_copies, "CELL_MOST", 40)
    monkeypatch.setattr(_copies, "AT_ONCE", 7)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(2, (600,), generator=generator)
    images = pictures(2)[rows] + torch.randn(600, 1, 24, 24, generator=generator)
    first = link_images(*shrink_images(images), 0.99)
    assert torch.equal(first, rows.argsort(stable=True)[[0, int((rows == 0).sum())]][rows])


@given(st.integers(1, 60), st.floats(0.2, 0.99), st.integers(0, 99))
def test_what_is_linked_is_alike_itself_and_what_it_is_linked_to_is_kept(count, least, seed):
    small, spectra = shrink_images(drawn(count, 1, 8, 8, seed=seed) // 128)
    first = link_images(small, spectra, least)
    own = torch.arange(count)
    assert torch.equal(first[first], first)
    assert (first <= own).all()
    linked = torch.stack([own, first], 1)[first != own]
    assert (correlate(small, linked) >= least).all()


def test_large_images_are_compared_at_32_pixels_and_levels_are_each_images_own():
    small, spectra = shrink_images(pictures(5, 3, side=70) / 1e6 - 4.0)
    assert small.shape == (5, 3, 32, 32)
    assert {*small.amin((1, 2, 3)).tolist(), *small.amax((1, 2, 3)).tolist()} == {0, 255}
    assert torch.allclose(spectra.norm(dim=1), torch.ones(5))
