"""Copies, and images that nearly repeat an earlier one, are found before training."""

import random

import numpy as np
import pytest
import torch
from fixture_loaders import NumberedStream, random_streams
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.guide import _copies, data_traits, find_copies
from selective_backprop.guide._copies import correlate, link_images, shrink_images


class Given(Dataset):
    """Examples as they are given, which draw from every random stream as they are read."""

    noise = 0.0

    def __init__(self, examples) -> None:
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        drawn = torch.rand(()) + np.random.rand() + random.random()
        if not self.noise:
            return self.examples[index]
        inputs, target = self.examples[index]
        return inputs + self.noise * drawn, target


EXAMPLE = st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2))


@given(st.lists(EXAMPLE, min_size=1, max_size=30), st.integers(1, 9))
def test_exact_copies_have_equal_inputs_and_an_equal_target(examples, batch_size):
    data = TensorDataset(
        torch.tensor([[a, b] for a, b, _ in examples]).float(),
        torch.tensor([target for *_, target in examples]),
    )
    found = find_copies(DataLoader(data, batch_size))
    first, kept, conflicts = [], {}, []
    for index, (*inputs, target) in enumerate(examples):
        targets = kept.setdefault(tuple(inputs), {})
        if targets and target not in targets:
            conflicts.append([min(targets.values()), index])
        first.append(targets.setdefault(target, index))
    assert found.first.tolist() == first
    assert found.exact.tolist() == [index != each for index, each in enumerate(first)]
    assert found.conflicts.tolist() == conflicts
    assert found.pairs.tolist() == [[f, i] for i, f in enumerate(first) if f != i]
    assert found.subset.indices.tolist() == sorted(set(first))
    assert found.share == pytest.approx(1 - len(set(first)) / len(first))


def test_every_part_of_an_input_counts_however_they_are_nested():
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])
    for part in (one, {"a": one, "b": [np.array([4, 5]), one]}):
        changed = other if part is one else {**part, "b": [np.array([4, 6]), one]}
        data = Given([(part, 0), (changed, 0), (part, 0), (part, 0)])
        assert find_copies(data).first.tolist() == [0, 1, 0, 0]
    named = [{"input_ids": torch.arange(3), "labels": each} for each in (7, 7, 8)]
    found = find_copies(Given(named))
    assert (found.pairs.tolist(), found.conflicts.tolist()) == ([[0, 1]], [[0, 2]])
    assert find_copies(TensorDataset(torch.tensor([[1], [2], [1]]))).pairs.tolist() == [[0, 2]]
    # what comes after the targets counts as they do
    masked = TensorDataset(torch.zeros(3, 2), torch.zeros(3), torch.tensor([0, 1, 0]))
    assert find_copies(masked).pairs.tolist() == [[0, 2]]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_position_of_an_example_is_no_part_of_it(batch_size):
    images, own = pictures(20).repeat(2, 1, 1, 1), range(40)
    for examples in (
        [(images[i], i % 20, i) for i in own],
        [((images[i], i), i % 20) for i in own],
        [{"image": images[i], "label": i % 20, "index": i} for i in own],
    ):
        loader = DataLoader(Given(examples), batch_size)
        assert find_copies(loader).pairs.tolist() == [[i, 20 + i] for i in range(20)]
        assert data_traits(loader).copies == 0.5
    # numbers that come without anything else are what an example is
    assert not len(find_copies(TensorDataset(torch.arange(40))).pairs)


def test_near_copies_are_pictures_shifted_and_lit_otherwise_that_have_the_same_target():
    images = pictures(400)
    images[200:300] = 1.2 * images[:100].roll((2, -1), (2, 3)) + 0.1
    images[300:350] = images[200:250]  # exact copies of near copies
    targets = torch.zeros(400, dtype=torch.int64)
    targets[290:300] = 1
    data = TensorDataset(images, targets)
    found = find_copies(data)
    near = [[index, 200 + index] for index in range(90)]
    assert found.pairs.tolist() == near + [[index, 300 + index] for index in range(50)]
    assert not found.exact.any()
    assert found.conflicts.tolist() == [[90 + index, 290 + index] for index in range(10)]
    alone = find_copies(data, near=None)
    assert alone.pairs.tolist() == [[200 + index, 300 + index] for index in range(50)]
    assert alone.exact.sum() == 50


def test_examples_of_unequal_size_are_refused_or_compared_one_by_one():
    texts = [torch.tensor(each) for each in ([1, 2], [3], [1, 2, 0], [4, 5, 6])]
    images = [torch.rand(1, side, 9) for side in (9, 10, 9)]
    lists = [each.tolist() for each in texts]
    for parts in (texts, images, lists, [texts[0]] * 300 + [texts[1]]):
        with pytest.raises(sb.LoaderError, match=r"differ in size.*batch_size=1.*near=None"):
            find_copies(Given([(each, 0) for each in parts]))
    singly = lambda parts: DataLoader(Given([(each, 0) for each in parts]), 1)  # noqa: E731
    assert find_copies(singly(texts)).pairs.tolist() == [[0, 2]]
    pictured = singly([*images, images[0]])
    assert find_copies(pictured, near=None).pairs.tolist() == [[0, 3]]
    for loader in (pictured, singly([*images, images[0][:, :5]])):
        with pytest.raises(sb.LoaderError, match=r"images differ in size.*near=None"):
            find_copies(loader)
    with pytest.raises(sb.LoaderError, match="different numbers of tensors"):
        find_copies(singly(lists))


def test_near_copies_are_of_single_images_alone():
    images = pictures(50).repeat(2, 1, 1, 1)
    images[50:] += 1e-4
    for inputs, *others in ((images, torch.zeros(3)), (images.flatten(1),)):  # a pair, a table
        data = Given([([each, *others], 0) for each in inputs])
        assert not len(find_copies(data).pairs)
    assert len(find_copies(TensorDataset(images, torch.zeros(100))).pairs) == 50


def test_sequences_are_no_images():
    """Windows of sensors, say, each at a level of its own, which is alike in all windows."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((40, 16), (8, 20, 20), (20, 20, 3)):
        levels = 10 * torch.randn(shape[-1], generator=generator)
        windows = levels + torch.randn(50, *shape, generator=generator)
        assert not len(find_copies(TensorDataset(windows, torch.zeros(50))).pairs)


def test_images_of_bytes_and_square_images_need_no_channels():
    images = pictures(50)[:, 0].repeat(2, 1, 1)
    images[50:] += 0.01
    assert len(find_copies(TensorDataset(images, torch.zeros(100))).pairs) == 50
    levels = images.to(torch.uint8)[:, 2:]  # no longer square
    assert len(find_copies(TensorDataset(levels, torch.zeros(100))).pairs) == 50


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_by_weight_what_is_kept_has_the_mean_of_the_whole_data_set(values):
    inputs = torch.tensor(values)[:, None].float()
    found = find_copies(TensorDataset(inputs))
    kept = found.subset.indices
    assert found.weights[kept].mean() == pytest.approx(1, rel=1e-5)
    mean = (found.weights[kept] * inputs[kept, 0]).mean()
    assert float(mean) == pytest.approx(float(inputs.mean()), rel=1e-5)
    assert not found.weights[~found.subset.mask()].any()
    assert found.weights is found.weights  # a loop asks for them in every batch


def test_what_was_found_is_said_in_a_sentence():
    inputs = torch.tensor([[1.0], [2.0], [1.0], [1.0]])
    found = find_copies(TensorDataset(inputs, torch.tensor([0, 0, 0, 1])))
    said = ("1 of 4 examples (25.00%)", "1 of them exactly", "1 have the inputs", "another target")
    assert all(part in str(found) == repr(found) for part in said)


class Augmented(Given):
    """Each example comes with random numbers added."""

    noise = 1.0


def test_loader_data_set_and_random_streams_are_as_they_were():
    generator = torch.Generator().manual_seed(3)
    data = Given(TensorDataset(pictures(40), torch.zeros(40)))
    loader = DataLoader(data, 16, generator=generator, num_workers=1)
    with unhooked():  # checking annotations draws from Python's stream
        before, held = random_streams(generator), dict(vars(loader))
        find_copies(loader)
        find_copies(data)
        assert random_streams(generator) == before
    assert vars(loader) == held


ROWS = TensorDataset(torch.zeros(4, 3), torch.zeros(4))


@pytest.mark.parametrize(
    ("data", "near", "said"),
    [
        (ROWS, 0.0, "near=0.0"),
        (ROWS, 1.1, "near=1.1"),
        (DataLoader(ROWS, 2, shuffle=True), 0.99, "without shuffle"),
        (DataLoader(ROWS, 3, drop_last=True), 0.99, "drop_last=True"),
        (DataLoader(NumberedStream(2), 2), None, "NumberedStream"),
        (Augmented([(torch.zeros(3), 0)] * 4), None, "without augmentation"),
        (Given([("a text", 0)] * 4), None, "holds .*a text.* tokens"),
        (Given([(torch.zeros(2), "a name")] * 4), None, "holds .*a name"),
        (5, None, "int"),
    ],
    ids=["low", "high", "shuffled", "part", "stream", "augmented", "text", "names", "neither"],
)
def test_what_cannot_be_searched_is_refused_with_what_to_pass(data, near, said):
    error = sb.ConfigurationError if said.startswith("near") else sb.LoaderError
    with unhooked(), pytest.raises(error, match=said):
        find_copies(data, near=near)


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
