"""Scoring smaller images: what is pooled, and what is said of batches that have none."""

import pytest
import torch
from fixture_batches import Example, Pair
from fixture_doors import cross_entropies as losses
from torch import nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.experimental._wrappers import shrink_images


def images(side: int = 8, rows: int = 6, channels: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, channels, side, side, generator=generator)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def begin(
    scorer: sb.scorers.AbstractScorer, model: nn.Module, of=losses
) -> sb.scorers.RunningScorer:
    return scorer.start(sb.scorers.Context(2, 4, model, of, rate=1 / 2))


def averaged(values: torch.Tensor, factor: int) -> list:
    """Means over squares of pixels, one at a time; squares at the edge may be smaller."""
    rows, columns = (range(0, side, factor) for side in values.shape[2:])
    return [
        [
            [[float(channel[y : y + factor, x : x + factor].mean()) for x in columns] for y in rows]
            for channel in image
        ]
        for image in values
    ]


@pytest.mark.parametrize(("side", "factor"), [(8, 2), (8, 4), (7, 2), (8, 3), (5, 5)])
def test_images_are_averaged_over_squares(side, factor):
    small, targets = shrink_images((images(side), torch.arange(6)), factor)
    assert small.tolist() == [
        [[pytest.approx(row, abs=1e-6) for row in channel] for channel in image]
        for image in averaged(images(side), factor)
    ]
    assert targets.tolist() == list(range(6))


def test_scores_are_those_of_images_pooled_by_hand():
    model, batch = net(), (images(), torch.arange(6))
    running = begin(
        sb.experimental.LowResolution(
            sb.scorers.Forward(), 2, check=sb.experimental.Check(1, least=0)
        ),
        model,
    )
    scores = running.score(batch, None)
    exact = begin(sb.scorers.Forward(), model)
    small = (functional.avg_pool2d(batch[0], 2), batch[1])
    assert torch.equal(scores, exact.score(small, None))
    found = sb.scorers.Agreement.between(scores, exact.score(batch, None), rate=1 / 2)
    assert running.agreement == found
    assert found.correlation < 1


def test_factors_multiply():
    model, batch = net(), (images(), torch.arange(6))
    twice = sb.experimental.LowResolution(sb.experimental.LowResolution(sb.scorers.Forward(), 2), 2)
    once = sb.experimental.LowResolution(sb.scorers.Forward(), 4)
    assert torch.allclose(
        begin(twice, model).score(batch, None), begin(once, model).score(batch, None), atol=1e-6
    )


def test_the_memory_format_is_kept():
    batch = (images().contiguous(memory_format=torch.channels_last),)
    small = shrink_images(batch, 2)[0]
    assert small.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "batch", [(torch.ones(6, 3), images(), images()), (images().byte(), images())]
)
def test_the_first_images_are_made_smaller(batch):
    small = shrink_images(batch, 2)
    for place, (before, after) in enumerate(zip(batch, small, strict=True)):
        assert (after is before) == (place != 1)
    assert small[1].shape == (6, 2, 4, 4)


@pytest.mark.parametrize(
    ("wrap", "of"),
    [
        (lambda x: {"a": {"b": x}}, lambda batch: batch["a"]["b"]),
        (lambda x: Pair(x, "note"), lambda batch: batch.inputs),
        (lambda x: Example([x, x.float()]), lambda batch: batch.inputs[0]),
        (lambda x: x, lambda batch: batch),
    ],
)
def test_images_are_found_in_any_batch(wrap, of):
    small = shrink_images(wrap(images()), 2)
    assert torch.equal(of(small), functional.avg_pool2d(images(), 2))


def test_a_batch_without_images_is_refused_with_what_it_has():
    batch = {"x": torch.ones(6, 3), "pixels": images().byte(), "ids": [1, 2]}
    with pytest.raises(sb.BatchError) as refusal:
        begin(sb.experimental.LowResolution(sb.scorers.Forward()), net()).score(batch, None)
    for part in ("'x': float32 [6, 3]", "'pixels': uint8 [6, 2, 8, 8]", "'ids': list"):
        assert part in str(refusal.value)


def test_images_smaller_than_a_square_are_refused():
    with pytest.raises(sb.BatchError, match=r"3 × 3 .*squares of 4.*factor="):
        shrink_images((images(3),), 4)


def test_a_model_that_takes_one_size_alone_is_explained_at_its_first_batch():
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    running = begin(sb.experimental.LowResolution(sb.scorers.Forward()), model)
    with pytest.raises(RuntimeError, match="cannot be multiplied") as failure:
        running.score((images(), torch.arange(6) % 3), None)
    assert "pool before" in failure.value.__notes__[0]
