"""Gates of selecting, of whole steps and of epochs, against what they cannot do without.

They train a net on images in memory, whose loading costs next to nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds, case
from selective_backprop_lab.nets.models import resnet9
from selective_backprop_lab.nets.transformers import vision_transformer

CORE = ("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
RULES = ("src/selective_backprop/selectors", "src/selective_backprop/_memory")
SCORING = "src/selective_backprop/scorers"
EPOCH = 6  # training batches of an epoch of known scores
KEPT = 43  # of a batch
BATCH, RATE = 128, 1 / 3
WINDOW = round(BATCH / RATE)
NET = {"net": "resnet9, width 16", "batch_size": BATCH}
Batch = tuple[Tensor, Tensor]


class Images(Dataset[Batch]):
    """Images, of which 4,096 at most are different. If not shuffled, a batch is a view of them."""

    def __init__(self, count: int, shuffled: bool = False) -> None:
        generator = torch.Generator().manual_seed(0)
        self.count, self.shuffled = count, shuffled
        different = min(count, 4096)
        images = torch.randn(different, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (different,), generator=generator)

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> Batch:
        if self.shuffled:
            rows = torch.tensor(indices) % len(self.labels)
            return self.images.index_select(0, rows), self.labels.index_select(0, rows)
        part = slice(indices[0], indices[0] + len(indices))
        return self.images[part], self.labels[part]

    def loader(self, **options: Any) -> DataLoader[Batch]:
        if "batch_sampler" not in options:
            options = {"batch_size": BATCH, "shuffle": self.shuffled}
        return DataLoader(self, collate_fn=lambda batch: batch, **options)


class Net:
    def __init__(self, net: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        model = resnet9(3, 10, width=16) if net is None else net
        self.model = model.to(memory_format=torch.channels_last)
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss_fn(self.model(inputs), targets).backward()
        self.optimizer.step()

    def epoch(self, loader: Iterable[Batch], count: int = 1) -> None:
        for _ in range(count):
            for inputs, targets in loader:
                self.step(inputs, targets)

    @torch.no_grad()
    def score(self, batches: Iterable[Batch]) -> None:
        self.model.eval()
        for inputs, targets in batches:
            nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
        self.model.train()

    def selecting(
        self, loader: DataLoader[Batch], strategy: sb.Strategy, **options: Any
    ) -> sb.SelectiveLoader:
        return sb.SelectiveLoader(loader, self.model, self.loss_fn, strategy, quiet=True, **options)


def record_all(loader: sb.SelectiveLoader, examples: int) -> None:
    losses = torch.rand(10**6, generator=torch.Generator().manual_seed(0))
    for rows in torch.arange(examples).split(len(losses)):
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses[: len(rows)])


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def gate(
    name: str, claim: str, limit: float, scale: float = 1.0, **arms: Callable[[], None]
) -> Rounds:
    """Return arms, and the claim that their ratio does not exceed a limit.

    The ratio is that of the first arm to the sum of the others, times `scale` if the first does
    its work more than once.
    """

    def ratio(spent: Mapping[str, float]) -> float:
        first, *others = (spent[arm] for arm in arms)
        return scale * first / sum(others)

    return Rounds(arms, [Quantity(name, ratio, limit=limit)], NET | {"claim": claim})


@case(*RULES)
def selection() -> Iterator[Rounds]:
    """Selecting 128 candidates by 1,024 recent losses, against a training step."""
    losses = torch.rand(4096).split(BATCH)
    for draw in sb.selectors.Draw:
        yield gate(
            f"selection {draw} in a step",
            "selecting 128 candidates, against a traditional step at batch 128",
            0.003,
            1 / len(losses),
            ours=selecting(losses, draw),
            step=partial(Net().step, *next(iter(Images(BATCH).loader()))),
        )


def selecting(losses: Sequence[Tensor], draw: sb.selectors.Draw) -> Callable[[], None]:
    """Return a function that selects from each of some batches, with a full history."""
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
        images = Images(8 * window).loader()
        endless = forever(ours.selecting(images, sb.selective_backprop(rate, warmup_epochs=0)))
        candidates = list(islice(images, window // BATCH))
        yield gate(
            f"step {name}",
            f"a selective step at rate {name}, against forward over {window} and step on {BATCH}",
            1.03,
            selective=lambda ours=ours, endless=endless: ours.step(*next(endless)),
            forward=partial(alone.score, candidates),
            step=partial(alone.step, *candidates[0]),
        )


@case(*CORE, *RULES)
def stale() -> Iterator[Rounds]:
    """An epoch whose scores are all known, against ordinary steps and their loading."""
    ours, alone, plain = Net(), Net(), Images(EPOCH * WINDOW, shuffled=True).loader()
    loader = ours.selecting(plain, sb.stale_sb(RATE, epochs=10**9))
    for _ in range(2):  # the first keeps everything, the second scores
        ours.epoch(loader)
    yield gate(
        "stale step",
        "an epoch of known scores at rate 1/3, against as many steps and the loading of their rows",
        1.03,
        stale=lambda: ours.epoch(loader),
        plain=lambda: alone.epoch(islice(plain, EPOCH)),
    )


@case(*CORE, SCORING)
def cycle(*, epochs: int = 3) -> Iterator[Rounds]:
    """A cycle of Stale-SB, its selection pass included, against as many traditional epochs."""
    ours, bare, plain = Net(), Net(), Images(2 * WINDOW, shuffled=True).loader()
    loader = ours.selecting(plain, sb.stale_sb(RATE, epochs=epochs))
    ours.epoch(loader)  # the first keeps everything
    yield gate(
        "cycle",
        f"a mean epoch of Stale-SB over {epochs} epochs at rate 1/3, against a traditional one",
        0.45,
        stale=partial(ours.epoch, loader, epochs),
        traditional=partial(bare.epoch, plain, epochs),
    )


class Endless(Sampler[int]):
    """Random indices of a data set of any size, without a list of them."""

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

    def two_steps(examples: int) -> Callable[[], None]:
        ours, sampler = Net(), BatchSampler(Endless(examples), BATCH, drop_last=False)
        loader = Images(examples, shuffled=True).loader(batch_sampler=sampler)
        strategy = sb.recorded_sb(RATE, schedule=sb.Schedule())
        selecting = ours.selecting(loader, strategy, with_selection=True)
        record_all(selecting, examples)
        endless = (batch for batch, _ in selecting)
        return lambda: ours.epoch(islice(endless, 2))

    yield gate(
        "size",
        f"a step of known scores with {large:.0e} examples, against one with {small:.0e} examples",
        1.03,
        large=two_steps(large),
        small=two_steps(small),
    )


@case(*CORE)
def traditional() -> Iterator[Rounds]:
    """An epoch of traditional training through the loader, against the bare loader's."""
    bare, ours, plain = Net(), Net(), Images(8 * BATCH).loader()
    loader = ours.selecting(plain, sb.traditional())
    yield gate(
        "traditional",
        "an epoch of traditional() through SelectiveLoader, against the bare loader's",
        1.02,
        loader=lambda: ours.epoch(loader),
        bare=lambda: bare.epoch(plain),
    )


class Unlearnable(Images):
    """Images whose labels are drawn anew each time."""

    def __getitems__(self, indices: list[int]) -> Batch:
        images, labels = super().__getitems__(indices)
        return images, torch.randint(10, labels.shape)


@case(*CORE, *RULES, "src/selective_backprop/strategies")
def auto() -> Iterator[Rounds]:
    """An epoch of auto() in which nothing is learned, so nothing skipped, against the bare loop."""
    bare, ours, plain = Net(), Net(), Unlearnable(8 * BATCH).loader()
    loader = ours.selecting(plain, sb.auto(), with_selection=True)
    row_by_row = nn.CrossEntropyLoss(reduction="none")

    def recording() -> None:
        for (inputs, targets), selection in loader:
            ours.optimizer.zero_grad()
            losses = row_by_row(ours.model(inputs), targets)
            (selection.weights * losses).mean().backward()
            ours.optimizer.step()
            loader.record(selection, losses, targets=())

    for _ in range(3):  # the first keeps everything, the second has one loss of each
        recording()
    yield gate(
        "auto",
        "an epoch of auto() that finds nothing to skip, recording its losses, against the bare "
        "loader's",
        1.02,
        auto=recording,
        bare=lambda: bare.epoch(plain),
    )
    kept = loader.stats.kept / loader.stats.candidates
    if kept < 0.99:
        raise SystemExit(f"auto() kept {kept:.3f} of the examples, though nothing can be learned")


@case("src/selective_backprop/experimental/_reuse.py", "src/selective_backprop/_step")
def reuse(*, width: int = 2048) -> Iterator[Rounds]:
    """A `SelectiveStep` that reuses activations of the selection pass, by one that does not."""
    inner = [nn.Linear(3072, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    perceptron = nn.Sequential(nn.Flatten(), *inner, nn.Linear(width, 10))
    nets = {f"perceptron, width {width}": perceptron}
    nets["ViT, width 384, depth 3"] = vision_transformer(3, 10, width=384, depth=3)
    batch = torch.randn(96, 3, 32, 32), torch.arange(96) % 10
    for name, net in nets.items():

        def arm(reuse: sb.experimental.ReuseActivations | None, net: nn.Module = net) -> Any:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
            strategy = sb.selective_backprop(RATE, warmup_epochs=0)
            choose = sb.SelectiveStep(net, nn.CrossEntropyLoss(), strategy, reuse=reuse)

            def step() -> None:
                optimizer.zero_grad()
                choose(batch).loss.backward()
                optimizer.step()

            return step

        arms = {"plain": arm(None), "reusing": arm(sb.experimental.ReuseActivations())}
        share = Quantity(
            "a step that reuses", lambda spent: spent["reusing"] / spent["plain"], "plain steps"
        )
        yield Rounds(arms, [share], {"net": name})
