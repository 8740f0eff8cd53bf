"""What the user brought stays as it was: loader, data, model, loss, optimiser and batches."""

import copy
from typing import Any

import pytest
import torch
from fixture_loaders import (
    Net,
    Numbered,
    NumberedStream,
    fixture_data,
    fresh_net,
    same_tensors,
    select,
    selective,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

STRATEGIES = [
    sb.traditional(),
    sb.random_backprop(1 / 2),
    selective(),
    selective(draw="bernoulli", warmup_epochs=1),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_is_not_changed(strategy, workers):
    loader = DataLoader(
        Numbered(24), 4, shuffle=True, num_workers=workers, persistent_workers=bool(workers)
    )
    before, sampler = dict(vars(loader)), dict(vars(loader.sampler))
    selecting = select(loader, strategy, epochs=3)
    selecting.set_epoch(0)
    for stop in (2, None):
        for number, _ in enumerate(selecting, start=1):
            if number == stop:
                break
    assert selecting.stats.batches > 2
    assert vars(loader) == before
    assert vars(loader.sampler) == sampler
    assert len(list(loader)) == 6


def test_the_loader_of_a_stream_does_not_remember_that_its_length_was_asked_for():
    class Sized(NumberedStream):
        def __len__(self) -> int:
            return 4  # and it yields more, which torch warns about where it remembers

    loader = DataLoader(Sized(12), 4)
    before = dict(vars(loader))
    selecting = select(loader, selective(), batch_size=2)
    assert len(list(selecting)) == 3
    assert vars(loader) == before


class Disturbed(Net):
    """Moves a buffer even in eval mode, and has parts in different modes, frozen and hooked."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.head.weight.requires_grad_(False)
        self.layers[1].eval()
        self.hooked = 0
        self.head.register_forward_hook(self.count)

    def count(self, *call: Any) -> None:
        self.hooked += 1

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(inputs)


def model_state(model: nn.Module) -> list[Any]:
    return [
        [(name, module.training, dict(vars(module))) for name, module in model.named_modules()],
        [
            (
                name,
                id(parameter),
                parameter.requires_grad,
                parameter.grad is None,
                parameter._version,
            )
            for name, parameter in model.named_parameters()
        ],
        [(name, id(buffer)) for name, buffer in model.named_buffers()],
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_model_is_not_changed(strategy):
    model, loss_fn = Disturbed(), nn.CrossEntropyLoss(label_smoothing=0.1)
    model.head.bias.grad = torch.ones(3)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = copy.copy(model_state(model))
    loader = sb.SelectiveLoader(DataLoader(fixture_data(), 5), model, loss_fn, strategy)
    for _ in range(2):
        list(loader)
    assert (model.hooked > 0) == (strategy.scorer is not None)
    model.hooked = 0
    assert same_tensors(model.state_dict(), tensors)
    after = model_state(model)
    assert [modes[:2] for modes in after[0]] == [modes[:2] for modes in before[0]]
    assert [sorted(modes[2]) for modes in after[0]] == [sorted(modes[2]) for modes in before[0]]
    assert after[1:] == before[1:]
    assert torch.equal(model.head.bias.grad, torch.ones(3))
    assert loss_fn.reduction == "mean"


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy.name != "random-backprop"]
)
def test_batches_are_not_changed(strategy):
    batches = [(torch.rand(4, 2), torch.arange(4) + 4 * number) for number in range(6)]
    before = copy.deepcopy(batches)
    loader = select(DataLoader(batches, None, collate_fn=tuple), strategy, batch_size=3)
    for _ in range(2):
        list(loader)
    for one, other in zip(batches, before, strict=True):
        assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("size", [3, 4])
def test_what_the_loop_does_to_its_batch_reaches_nothing_that_waits(size):
    def handed_out(spoil: bool) -> list[list[int]]:
        run = []
        loader = select(DataLoader(Numbered(40), 10), selective(), batch_size=size)
        for inputs, targets in loader:
            run.append([targets.tolist(), inputs.tolist()])
            if spoil:
                inputs.zero_()
                targets.fill_(-1)
        return run

    assert handed_out(spoil=True) == handed_out(spoil=False)


class BurnedIn(nn.Module):
    """Averages what passes through it, from the third pass on, in the manner of old code."""

    def __init__(self) -> None:
        super().__init__()
        self.net = fresh_net()
        self.passes = 0
        self.register_buffer("average", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > 2:
            self.average.data.add_(0.1)
        return self.net(inputs)


@pytest.mark.parametrize("training", [False, True])
def test_a_buffer_that_begins_to_move_late_is_as_it_was_when_a_batch_is_handed_out(training):
    model = BurnedIn()
    strategy = sb.selective_backprop(
        1 / 2, scorer=sb.scorers.Forward(training=training), warmup_epochs=0
    )
    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 5), model, nn.CrossEntropyLoss(), strategy, quiet=True
    )
    for _ in loader:
        assert model.average == 0.0
    assert model.passes == 8


def test_a_lazy_model_is_made_by_the_first_scoring_pass_and_keeps_its_statistics():
    model = nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(3))
    loader = DataLoader(fixture_data(24), 4)
    selecting = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), selective())
    assert len(list(selecting)) > 1
    assert model[0].running_mean.tolist() == [0.0, 0.0]
    assert model[0].num_batches_tracked == 0
