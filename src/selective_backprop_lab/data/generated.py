"""Data that are generated, not read: MNIST-1D, tables, and clicks; and a small table to read.

Random numbers come from a counter. Data have 256 levels, because the committed records' have.
"""

import numpy as np
import scipy  # it imports its parts when they are used
import torch

from selective_backprop_lab.data.random_bits import key_of, random_bits
from selective_backprop_lab.data.splits import Splits
from selective_backprop_lab.shapes import Float32, Float64, Int64

# The heights of the ten digits' templates, in the units of the paper's drawing.
_TEMPLATES = np.array(
    [
        [5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5],
        [5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5],
        [5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5],
        [5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5],
        [5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5],
        [5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5],
        [5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5],
        [5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5],
        [5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5],
    ]
)
_LENGTH, _LONGEST, _SHOWN = 12, 72, 40  # numbers in a template, a stretched one, an example
_PADDING, _SHIFTS = (36, 60), 48  # numbers added to a template; most places to move it by
_SCALE, _SHEAR, _AROUND, _EVERYWHERE = 0.4, 0.75, 0.25, 0.02  # variation, and two noises
_SPAN = 4.0  # standard deviations to either side that the levels cover


def make_mnist1d(train: int = 4000, test: int = 1000) -> Splits:
    """Return MNIST-1D: series of 40 numbers, each a deformed template of one of ten digits.

    Source:
        Greydanus and Kobak 2024, arXiv:2011.14439, with the parameters of its published code, but
        other random numbers than in the published file.
    """
    count = train + test
    labels = np.arange(count) % len(_TEMPLATES)
    shapes = _TEMPLATES - _TEMPLATES.mean(1, keepdims=True)
    shapes /= shapes.std(1, keepdims=True)
    shapes = (shapes - shapes[:, :1]) / 6  # now they begin and end at 0
    padding, scale, shift, shear = _uniform(b"mnist1d", count, 4)
    padded = _LENGTH + _PADDING[0] + (padding * (_PADDING[1] - _PADDING[0] + 1)).astype(int)
    # Where each of the 72 places lies on the padded template, whose end is padding.
    places = np.linspace(0, 1, _LONGEST) * (padded[:, None] - 1)
    left = np.minimum(places.astype(int), _LENGTH)
    ends = np.concatenate([shapes, np.zeros((len(shapes), 2))], 1)[labels]
    low, high = (np.take_along_axis(ends, left + step, 1) for step in (0, 1))
    drawn = low + (high - low) * (places - left).clip(0, 1)
    drawn *= (1 + _SCALE * (scale - 0.5))[:, None]
    inside = places < _LENGTH
    moved = (np.arange(_LONGEST) - (shift * _SHIFTS).astype(int)[:, None]) % _LONGEST
    drawn, inside = (np.take_along_axis(each, moved, 1) for each in (drawn, inside))
    noise = _normal(b"mnist1d noise", count, 2 * _LONGEST)
    smooth = scipy.ndimage.gaussian_filter1d(_AROUND * noise[:, :_LONGEST], 2, axis=1)
    series = np.where(inside, drawn, smooth) + _EVERYWHERE * noise[:, _LONGEST:]
    series -= _SHEAR * (shear - 0.5)[:, None] * np.linspace(-0.5, 0.5, _LONGEST)
    at = np.linspace(0, _LONGEST - 1, _SHOWN)
    left = np.minimum(at.astype(int), _LONGEST - 2)
    shown = series[:, left] + (series[:, left + 1] - series[:, left]) * (at - left)
    names = tuple(str(digit) for digit in range(len(_TEMPLATES)))
    return _splits(_levels(shown), labels, test, names)


def read_breast_cancer() -> Splits:
    """Return the 569 tumours of scikit-learn's breast-cancer table, with 30 measurements each.

    Source:
        Street, Wolberg and Mangasarian 1993, UCI Machine Learning Repository, doi:10.24432/C5DW2B.
    """
    from sklearn.datasets import load_breast_cancer  # slow

    table = load_breast_cancer()
    labels = table.target.astype(np.int64)
    order = labels.argsort(kind="stable")
    testing = np.zeros(len(labels), bool)
    testing[order[::5]] = True
    order = np.concatenate([np.flatnonzero(~testing), np.flatnonzero(testing)])
    names = tuple(str(name) for name in table.target_names)
    return _splits(_levels(table.data[order]), labels[order], int(testing.sum()), names)


def make_table(train: int = 8000, test: int = 2000) -> Splits:
    """Return a made-up table of 54 columns and 7 classes of two clusters each."""
    classes, telling, summed, idle, clusters = 7, 20, 20, 14, 2
    count = train + test
    labels = np.arange(count) % classes
    centres = _normal(b"table centres", classes * clusters, telling)
    (which,) = _uniform(b"table clusters", count, 1)
    noise = _normal(b"table", count, telling + summed + idle)
    informed = (
        centres[labels * clusters + (which * clusters).astype(int)] + 1.5 * noise[:, :telling]
    )
    mixing = _normal(b"table sums", telling, summed) / np.sqrt(telling)
    # Not `informed @ mixing`, because the rounding of a matrix product depends on the platform.
    sums = sum(informed[:, i, None] * mixing[i] for i in range(telling))
    columns = [informed, sums + noise[:, telling : telling + summed], noise[:, telling + summed :]]
    names = tuple(f"type {number}" for number in range(1, classes + 1))
    return _splits(_levels(np.concatenate(columns, 1)), labels, test, names)


def make_clicks(train: int = 20_000, test: int = 10_000) -> Splits:
    """Return made-up click data: examples with 6 categories each; 2 % were clicked on."""
    sizes = [8, 16, 32, 64, 128, 256]
    count, share = train + test, 0.02
    draws = _uniform(b"clicks", count, len(sizes) + 1)
    levels = np.zeros((count, sum(sizes)), np.float32)
    pull, first = np.zeros(count), 0
    effects = _normal(b"click effects", sum(sizes), 1)[:, 0]
    for size, drawn in zip(sizes, draws, strict=False):
        reached = np.cumsum(1 / np.arange(1, size + 1))
        category = first + np.searchsorted(reached / reached[-1], drawn, side="right")
        levels[np.arange(count), category] = 255
        pull += effects[category]
        first += size
    # A logistic random number is added to the pull, and the highest sums are clicks.
    order = (pull + scipy.special.logit(draws[-1])).argsort(kind="stable")
    labels = np.zeros(count, np.int64)
    labels[order[-round(share * count) :]] = 1
    return _splits(levels, labels, test, ("passed", "clicked"), standardised=False)


def _uniform(name: bytes, count: int, draws: int) -> Float64[np.ndarray, "draw example"]:
    key = key_of(int.from_bytes(name))
    return (random_bits(key, torch.arange(count), draws=draws).double().numpy() + 0.5) / 2.0**32


def _normal(name: bytes, count: int, draws: int) -> Float64[np.ndarray, "example draw"]:
    return scipy.special.ndtri(_uniform(name, count, draws)).T.copy()


def _levels(values: Float64[np.ndarray, "example number"]) -> Float32[np.ndarray, "example number"]:
    # The mean of a column is the middle level, 4 deviations to a side are the ends.
    scaled = (values - values.mean(0)) / values.std(0)
    return np.rint((scaled / _SPAN).clip(-1, 1) * 127.5 + 127.5).astype(np.float32)


def _splits(
    levels: Float32[np.ndarray, "example number"],
    labels: Int64[np.ndarray, " example"],
    test: int,
    names: tuple[str, ...],
    standardised: bool = True,
) -> Splits:
    inputs, targets = torch.from_numpy(levels), torch.from_numpy(labels)
    train, test_part = (inputs[:-test], targets[:-test]), (inputs[-test:], targets[-test:])
    return Splits(*train, *test_part, names, unit=255.0, standardised=standardised)
