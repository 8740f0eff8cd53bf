"""Gates of selecting, of whole steps and of epochs, against what they cannot do without."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, Sampler

import selective_backprop as sb
from benchmarks.case import Rounds, case
from benchmarks.images import (
    BATCH,
    RATE,
    WINDOW,
    Batch,
    Images,
    Net,
    Shuffled,
    forever,
    gate,
    loader_of,
)
from benchmarks.memory import record_all

CORE = ("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
RULES = ("src/selective_backprop/selectors", "src/selective_backprop/_memory")
SCORING = "src/selective_backprop/scorers"
EPOCH = 6  # training batches of an epoch, where epochs are timed
NEVER = 10**9
KEPT = 43  # of a batch


@case(*RULES)
def selection() -> Iterator[Rounds]:
    """Selecting 128 candidates by 1,024 recent losses, against a training step."""
    losses = torch.rand(4096).split(BATCH)
    for draw in sb.selectors.Draw:
        ours, net, (batch,) = selecting(losses, draw), Net(), Images(BATCH).batches(BATCH)
        yield gate(
            f"selection {draw} in a step",
            "selecting 128 candidates, against a traditional step at batch 128",
            0.003,
            "ours",
            "step",
            ours=ours,
            step=partial(net.step, *batch),
            scale=1 / len(losses),
        )


def selecting(losses: Sequence[Tensor], draw: sb.selectors.Draw) -> Callable[[], None]:
    """Return what selects from each of some batches, with a full history."""
    selector = sb.selectors.Percentile(beta=2, draw=draw, history=1024)
    window = BATCH if draw is sb.selectors.Draw.EXACT else None
    running = selector.start(sb.selectors.Context(batch_size=KEPT, window=window))
    history, generator = sb.selectors.History(1024), torch.Generator().manual_seed(0)

    def select() -> None:
        for part in losses:
            history.file(part)
            running.select(part, history, generator)

    select()
    return select


@case(*CORE, *RULES, SCORING)
def step() -> Iterator[Rounds]:
    """A selective step, against one eval forward over its candidates and one training step."""
    for name, rate in {"1/4": 1 / 4, "1/3": 1 / 3, "1/2": 1 / 2}.items():
        ours, alone, window = Net(), Net(), round(BATCH / rate)
        images = Images(8 * window)
        strategy = sb.selective_backprop(rate, warmup_epochs=0)
        endless = forever(ours.selecting(loader_of(images), strategy))
        candidates = images.batches(window)
        yield gate(
            f"step {name}",
            f"a selective step at rate {name}, against forward over {window} and step on {BATCH}",
            1.03,
            "selective",
            "forward+step",
            selective=lambda ours=ours, endless=endless: ours.step(*next(endless)),
            forward=partial(alone.score, candidates),
            step=partial(alone.step, *candidates[0]),
        )


@case(*CORE, *RULES)
def stale() -> Iterator[Rounds]:
    """An epoch whose scores are all known, against ordinary steps and their loading."""
    ours, alone, images = Net(), Net(), Shuffled(EPOCH * WINDOW)
    loader = ours.selecting(loader_of(images), sb.stale_sb(RATE, epochs=NEVER))
    for _ in range(2):  # the first keeps everything, the second takes the scores
        ours.epoch(loader)
    plain = loader_of(images)
    yield gate(
        "stale step",
        "an epoch of known scores at rate 1/3, against as many steps and the loading of their rows",
        1.03,
        "stale",
        "plain",
        stale=lambda: ours.epoch(loader),
        plain=lambda: alone.epoch(islice(plain, EPOCH)),
    )


class Endless(Sampler[int]):
    """Indices of a data set of any size, without a list of them."""

    def __init__(self, examples: int) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield from torch.randint(self._examples, (4096,), generator=generator).tolist()


@case(*CORE, *RULES)
def size(*, small: int = 10**5, large: int = 10**8) -> Iterator[Rounds]:
    """A step whose scores are known, in a large data set and a small one."""
    arms = {}
    for name, examples in (("small", small), ("large", large)):
        ours = Net()
        sampler = BatchSampler(Endless(examples), BATCH, drop_last=False)
        loader = loader_of(Shuffled(examples), batch_sampler=sampler)
        strategy = sb.recorded_sb(RATE, schedule=sb.Schedule())
        selecting = ours.selecting(loader, strategy, with_selection=True)
        record_all(selecting, examples)
        endless = (batch for batch, _ in selecting)
        arms[name] = partial(_two_steps, ours, endless)
    yield gate(
        "size",
        f"a step of known scores with {large:.0e} examples, against one with {small:.0e} examples",
        1.03,
        "large",
        "small",
        **arms,
    )


def _two_steps(net: Net, endless: Iterator[Batch]) -> None:
    net.epoch(islice(endless, 2))


@case(*CORE)
def traditional() -> Iterator[Rounds]:
    """An epoch of traditional training through the loader, against the bare loader's."""
    bare, ours, plain = Net(), Net(), loader_of(Images(8 * BATCH))
    loader = ours.selecting(plain, sb.traditional())
    yield gate(
        "traditional",
        "an epoch of traditional() through SelectiveLoader, against the bare loader's",
        1.02,
        "loader",
        "bare",
        loader=lambda: ours.epoch(loader),
        bare=lambda: bare.epoch(plain),
    )
    for name, weights in bare.model.state_dict().items():
        if not torch.equal(weights, ours.model.state_dict()[name]):
            raise SystemExit(f"traditional() through the loader changed {name}: weights differ")


class Unlearnable(Images):
    """Images whose labels are drawn anew whenever they are asked for."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        images, labels = super().__getitems__(indices)
        return images, torch.randint(10, labels.shape)


@case(*CORE, *RULES, "src/selective_backprop/strategies")
def auto() -> Iterator[Rounds]:
    """An epoch of auto() in which nothing is learned, so nothing skipped, against the bare loop."""
    bare, ours, plain = Net(), Net(), loader_of(Unlearnable(8 * BATCH))
    loader = ours.selecting(plain, sb.auto(), with_selection=True)
    row_by_row = nn.CrossEntropyLoss(reduction="none")

    def recording() -> None:
        for (inputs, targets), selection in loader:
            ours.optimizer.zero_grad()
            losses = row_by_row(ours.model(inputs), targets)
            (selection.weights * losses).mean().backward()
            ours.optimizer.step()
            loader.record(selection, losses)

    for _ in range(3):  # the first keeps everything, the second has one loss of each
        recording()
    yield gate(
        "auto",
        "an epoch of auto() that finds nothing to skip, recording its losses, against the bare "
        "loader's",
        1.02,
        "auto",
        "bare",
        auto=recording,
        bare=lambda: bare.epoch(plain),
    )
    kept = loader.stats.kept / loader.stats.candidates
    if kept < 0.99:
        raise SystemExit(f"auto() kept {kept:.3f} of what nothing can be learned of")
