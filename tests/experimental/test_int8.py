"""Scoring in integers: near the exact scores, and from the weights as they are now."""

import copy

import pytest
import torch
from fixture_doors import cross_entropies as losses
from torch import nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.experimental import _int8
from selective_backprop.experimental._int8 import (
    Int8Copy,
    Int8Layer,
    is_available,
    weight_limit,
)

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not is_available(), reason="no int8 operations on this processor")


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, images):
        return images + functional.relu(self.conv(images))


def convolutional(width: int = 8, groups: int = 1) -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1, stride=2, groups=groups),
        nn.ReLU(),
        Residual(width),
        nn.Flatten(),
        nn.Linear(4 * width, 5),
    )
    norm = model[1]
    nn.init.uniform_(norm.running_mean, -0.5, 0.5)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    nn.init.uniform_(norm.weight, -1, 2)
    return model.to(memory_format=torch.channels_last)


class Branching(nn.Module):
    """A net that no symbolic trace can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = convolutional()

    def forward(self, images):
        return self.inner(images if images.sum() < 1e9 else -images)


def batch(rows: int = 96) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(rows, 3, 9, 9, generator=generator)
    return images, torch.randint(5, (rows,), generator=generator)


def begin(scorer: sb.scorers.AbstractScorer, model: nn.Module) -> sb.scorers.RunningScorer:
    return scorer.start(
        sb.scorers.Context(64, 128, model, losses, device=CPU, examples=256, rate=1 / 3)
    )


def layers(model: nn.Module) -> list[Int8Layer]:
    return [module for module in model.modules() if isinstance(module, Int8Layer)]


class Pooled(nn.Module):
    """Bytes through a functional ReLU, and through a pool that floats are read from."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.pool, self.within, self.head = nn.MaxPool2d(2), Residual(8), nn.Linear(8, 5)

    def forward(self, images):
        found = functional.relu(self.second(functional.relu(self.first(images))))
        return self.head(self.within(self.pool(found)).mean((2, 3)))


class ReadTwice(nn.Module):
    """A convolution that is read before its norm, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5)
        shared = nn.Conv2d(5, 5, 1)
        self.twice = nn.Sequential(shared, nn.BatchNorm2d(5), shared, nn.ReLU())
        for norm in (self.norm, self.twice[1]):
            nn.init.uniform_(norm.running_var, 0.1, 0.2)
            nn.init.uniform_(norm.running_mean, -2, 2)

    def forward(self, images):
        found = self.conv(images)
        return self.twice(found + self.norm(found)).mean((2, 3))


@pytest.mark.parametrize(
    "model", [convolutional(), convolutional(8, 4), Branching(), Pooled(), ReadTwice()]
)
def test_scores_are_close_to_the_exact_ones_and_not_the_same(model):
    running = begin(
        sb.experimental.Int8(sb.scorers.Forward(), check=sb.experimental.Check(1)), model
    )
    scores = running.score(batch(), None)
    exact = begin(sb.scorers.Forward(), model).score(batch(), None)
    assert not torch.equal(scores, exact)
    assert torch.allclose(scores, exact, atol=0.1)
    assert running.agreement.overlap >= 0.9


def plain_int8_linear(
    inputs: list[list[float]],
    weight: list[list[float]],
    bias: list[float],
    low: float,
    high: float,
    most: int,
) -> list[list[float]]:
    """Return the outputs: real value = scale x (integer - zero), sums in integers.

    Args:
        inputs: rows of numbers.
        weight: rows of weights, one per output.
        bias: one number per output.
        low: the lowest input seen, widened by a tenth; 0 is always within.
        high: the highest, likewise.
        most: the largest integer of a weight.
    """
    low, high = 1.1 * min(low, 0.0), 1.1 * max(high, 0.0)
    step = (high - low) / 255
    zero = round(-low / step)
    outputs = []
    for row in inputs:
        integers = [min(255, max(0, round(value / step) + zero)) for value in row]
        outputs.append([])
        for weights, shift in zip(weight, bias, strict=True):
            scale = max(abs(number) for number in weights) / most
            total = sum(
                round(number / scale) * (integer - zero)
                for number, integer in zip(weights, integers, strict=True)
            )
            outputs[-1].append(total * scale * step + shift)
    return outputs


def test_a_linear_layer_computes_what_plain_integers_do():
    torch.manual_seed(0)
    layer, inputs = nn.Linear(7, 4), torch.randn(5, 7)
    twin = Int8Copy(nn.Sequential(layer))
    twin.observe()
    twin.model(inputs)
    twin.quantise()
    low, high = twin.ranges[0].low, twin.ranges[0].high
    expected = plain_int8_linear(
        inputs.tolist(), layer.weight.tolist(), layer.bias.tolist(), low, high, weight_limit()
    )
    assert torch.allclose(twin.model(inputs), torch.tensor(expected), atol=1e-5)
    doubled = inputs.repeat(2, 1, 1)
    assert torch.equal(twin.model(doubled)[1], twin.model(inputs))


def test_sums_are_whole_at_the_greatest_bytes_and_weights():
    model = nn.Sequential(nn.Linear(256, 16, bias=False), nn.Conv2d(64, 16, 2, bias=False))
    for layer in model:
        nn.init.ones_(layer.weight)
    twin = Int8Copy(model)
    twin.observe()
    for layer, inputs in zip(model, (torch.ones(8, 256), torch.ones(8, 64, 2, 2)), strict=True):
        place = layers(twin.model)[0 if isinstance(layer, nn.Linear) else 1]
        place.takes.cover(inputs)
        place.quantise()
        assert torch.allclose(place(1.1 * inputs).flatten(), torch.full((8 * 16,), 256 * 1.1))


def test_while_it_observes_the_copy_computes_what_the_model_does():
    model = convolutional()
    twin = Int8Copy(model)
    twin.observe()
    assert torch.allclose(twin.model.eval()(batch()[0]), model.eval()(batch()[0]), atol=1e-5)
    low, high = twin.ranges[0].low, twin.ranges[0].high
    assert (low, high) == (batch()[0].min(), batch()[0].max())


def test_weights_are_copied_when_training_changes_them_and_not_otherwise():
    model = convolutional()
    running = begin(sb.experimental.Int8(sb.scorers.Forward(), check=None), model)
    for _ in range(8):  # the next calibration is at batch 15
        running.score(batch(), None)
    twin, copies = running.inner._twin, []
    update = twin.update
    twin.update = lambda: copies.append(update())
    for _ in range(2):
        running.score(batch(), None)
    assert not copies
    loss = nn.functional.cross_entropy(model(batch()[0]), batch()[1])  # moves batch statistics
    running.score(batch(), None)
    assert len(copies) == 1
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    moved = running.score(batch(), None)
    assert len(copies) == 2
    assert torch.allclose(moved, begin(sb.scorers.Forward(), model).score(batch(), None), atol=0.1)


def test_changes_that_torch_does_not_count_are_copied_after_a_while():
    model = convolutional()
    running = begin(sb.experimental.Int8(sb.scorers.Forward(), check=None), model)
    for _ in range(13):  # the next calibration is at batch 15
        first = running.score(batch(), None)
    model[-1].weight.data.neg_()
    scores = [running.score(batch(), None).tolist() for _ in range(3)]
    assert scores[:2] == [first.tolist()] * 2
    assert scores[2] != first.tolist()


def test_training_that_went_on_unscored_is_followed_by_a_calibration():
    model = convolutional()
    running = begin(
        sb.experimental.Int8(sb.scorers.Forward(), recalibrate_every=20, check=None), model
    )
    for _ in range(32):
        running.score(batch(), None)
    twin, calibrated = running.inner._twin, []
    observe = twin.observe
    twin.observe = lambda: calibrated.append(observe())
    for steps, expected in ((20, 0), (1, 1), (5, 1)):
        with torch.no_grad():
            for _ in range(steps):
                model[-1].weight.mul_(1.0)
        running.score(batch(), None)
        assert len(calibrated) == expected


def test_calibrations_come_ever_further_apart():
    running = begin(
        sb.experimental.Int8(sb.scorers.Forward(), recalibrate_every=20, check=None),
        convolutional(),
    )
    twin, calibrated = running.inner._twin, []
    observe = twin.observe
    twin.observe = lambda: calibrated.append(scored) or observe()
    for scored in range(70):
        assert running.score(batch(), None).shape == (len(batch()[1]),), scored
    assert calibrated == [0, 1, 3, 7, 15, 31, 51]


def test_ranges_are_taken_anew_as_often_as_asked():
    images, targets = batch()
    running = begin(
        sb.experimental.Int8(sb.scorers.Forward(), recalibrate_every=4, check=None), convolutional()
    )
    twin = running.inner._twin

    def highest(factor: float) -> float:
        running.score((images * factor, targets), None)
        return twin.ranges[0].high / float(images.max())

    found = [highest(factor) for factor in (1, 3, 9, 5, 2, 1, 2, 4)]
    assert found == pytest.approx([1, 3, 3, 5, 5, 5, 5, 4])


class Counting(sb.scorers.AbstractScorer, sb.scorers.RunningScorer):
    """A scorer that remembers how often it was asked."""

    needs = sb.scorers.Needs()
    asked = 0

    def start(self, context):
        self.inner = sb.scorers.Forward().start(context)
        return self

    def score(self, batch, indices):
        self.asked += 1
        return self.inner.score(batch, indices) + self.asked

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


def test_what_is_scored_for_a_calibration_is_forgotten():
    scorer = Counting()
    running = begin(sb.experimental.Int8(scorer, recalibrate_every=2, check=None), convolutional())
    first, second, third = (running.score(batch(), None) for _ in range(3))
    assert scorer.asked == 3
    assert torch.allclose(second - first, torch.ones(()), atol=1e-4)
    assert torch.allclose(third - second, torch.ones(()), atol=1e-4)


def test_a_scorer_goes_on_with_the_ranges_it_had(tmp_path):
    model = convolutional()
    scorer = sb.experimental.Int8(sb.scorers.Forward(), check=None)
    running = begin(scorer, model)
    for _ in range(4):  # the next calibration is at batch 7
        running.score(batch(), None)
    torch.save(running.state_dict(), tmp_path / "state")
    with torch.no_grad():
        model[-1].weight.neg_()
    resumed = begin(scorer, model)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    images, targets = batch()
    one, other = (each.score((3 * images, targets), None) for each in (running, resumed))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    "part",
    [
        nn.LSTM(3, 3),
        nn.MultiheadAttention(4, 2),
        nn.TransformerEncoderLayer(4, 2, batch_first=True),
    ],
)
def test_what_has_no_form_in_integers_is_refused_by_name(part):
    model = nn.ModuleDict({"stem": nn.Linear(3, 3), "middle": part})
    with pytest.raises(sb.ConfigurationError, match=f"middle is a {type(part).__name__}"):
        begin(sb.experimental.Int8(sb.scorers.Forward()), model)


@pytest.mark.parametrize(
    "model", [nn.LayerNorm(3), nn.Linear(3, 3).double(), nn.Conv2d(3, 3, 1, padding="same")]
)
def test_a_model_with_nothing_to_quantise_is_refused(model):
    with pytest.raises(sb.ConfigurationError, match="Conv2d or Linear"):
        begin(sb.experimental.Int8(sb.scorers.Forward()), nn.Sequential(model))


def test_where_integers_cannot_be_computed_with_it_is_refused(monkeypatch):
    with pytest.raises(sb.ConfigurationError, match="meta"):
        begin(sb.experimental.Int8(sb.scorers.Forward()), copy.deepcopy(convolutional()).to("meta"))
    monkeypatch.setattr(_int8, "is_available", lambda: False)
    with pytest.raises(sb.ConfigurationError, match=r"oneDNN .*int8"):
        begin(sb.experimental.Int8(sb.scorers.Forward()), convolutional())


def test_what_cannot_be_inside_is_refused():
    with pytest.raises(sb.ConfigurationError, match="without training=True"):
        sb.experimental.Int8(sb.scorers.Forward(training=True))
