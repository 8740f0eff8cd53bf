"""What ranks are asked to do with real models: DDP, FSDP, and the digits."""

import copy
import os
import runpy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from fixture_doors import NumberedStream, numbers, select
from fixture_rank_tasks import noted_messages, rank_now
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()
EXAMPLE = Path(__file__).parents[1] / "examples" / "torchrun_ddp.py"


def mlp(inputs: int = 64) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 10))


def train_digits(batch: int, epochs: int) -> tuple[float, int]:
    """Train on the digits, in one process or in all of the group; return error and steps."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    testing = torch.arange(len(labels)) % 5 == 0
    examples = TensorDataset(pixels[~testing], labels[~testing])
    model, ranks = mlp(), 1
    sampler = torch.utils.data.RandomSampler(examples, generator=torch.Generator().manual_seed(0))
    if distributed.is_initialized():
        model, ranks = DistributedDataParallel(model), distributed.get_world_size()
        sampler = DistributedSampler(examples)
    loader = DataLoader(examples, batch // ranks, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    door = sb.SelectiveLoader(
        loader, model, LOSS, sb.selective_backprop(1 / 3), generator=torch.Generator()
    )
    for epoch in range(epochs):
        door.set_epoch(epoch)
        for inputs, targets in door:
            optimizer.zero_grad()
            LOSS(model(inputs), targets).backward()
            optimizer.step()
    with torch.no_grad():
        found = model(pixels[testing]).argmax(1)
    return float((found != labels[testing]).float().mean()), door.stats.batches


def shard_model(examples: int = 48) -> tuple[list[Tensor], int]:
    """Train a model whose parameters FSDP2 shards; return them whole, and the steps."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = mlp(4)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    steps = _train_small(model, examples)
    return [parameter.full_tensor().detach() for parameter in model.parameters()], steps


def wrap_model(examples: int = 48) -> tuple[list[Tensor], int]:
    """The same with DDP."""
    model = mlp(4)
    steps = _train_small(DistributedDataParallel(model), examples)
    return [parameter.detach() for parameter in model.parameters()], steps


def _train_small(model: nn.Module, examples: int) -> int:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, 4, generator=generator)
    data = TensorDataset(inputs, inputs.argmax(1))
    sampler = DistributedSampler(data, seed=1)
    door = sb.SelectiveLoader(
        DataLoader(data, 4, sampler=sampler),
        model,
        LOSS,
        sb.selective_backprop(1 / 2),
        generator=generator,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        door.set_epoch(epoch)
        for batch, targets in door:
            optimizer.zero_grad()
            LOSS(model(batch), targets).backward()
            optimizer.step()
    return door.stats.batches


@final
@dataclass(frozen=True)
class OfACopy(sb.scorers.AbstractScorer):
    """A user's scorer, which scores with a copy that only rank 0 brings up to date."""

    @property
    def needs(self) -> sb.scorers.Needs:
        return sb.scorers.Needs()

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        twin = copy.deepcopy(context.model)
        return sb.scorers.Forward().start(replace(context, model=twin))


def score_sharded(strategy: sb.Strategy, examples: tuple[int, int], options: Any) -> None:
    """Begin to train a sharded model on shards of these sizes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(mlp(4), mesh=init_device_mesh("cpu", (2,)))
    data = TensorDataset(torch.randn(64, 4), torch.zeros(64, dtype=torch.int64))
    loader = DataLoader(data, 4, sampler=range(examples[rank_now()]))
    next(iter(sb.SelectiveLoader(loader, model, LOSS, strategy, with_selection=True, **options)))


def lengths(examples: int) -> list[Any]:
    """What `len` says before an epoch and in it, with a sampler of the group's size and without."""
    said: list[Any] = []
    data = TensorDataset(torch.arange(float(examples)))
    for sampler in (DistributedSampler(data), range(examples - rank_now())):
        loader = DataLoader(data, 4, sampler=sampler)
        door = sb.SelectiveLoader(loader, None, None, sb.random_backprop(1 / 2))
        try:
            said.append(len(door))
        except TypeError as error:
            said.append(str(error))
        batches = iter(door)
        next(batches)
        said.append(len(door))
        said.append(1 + len(list(batches)))
    return said


def orders(epochs: int) -> list[list[int]]:
    """The examples of each epoch, of which the sampler is told the number."""
    data = TensorDataset(torch.arange(32))
    sampler = DistributedSampler(data)
    door = sb.SelectiveLoader(DataLoader(data, 4, sampler=sampler), None, None, sb.traditional())
    found = []
    for epoch in range(epochs):
        door.set_epoch(epoch)
        found.append([number for (batch,) in door for number in batch.tolist()])
    return found


def train_apart(examples: int) -> tuple[int, list[float]]:
    """Train in two groups of two ranks, which do not wait for each other."""
    groups = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    rank = rank_now()
    data = TensorDataset(torch.randn(examples, 4), torch.zeros(examples, dtype=torch.int64))
    size = examples // (1 + rank // 2)  # other pairs have other shards
    loader = DataLoader(data, 4, sampler=range(size))
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=0)
    door = sb.SelectiveLoader(loader, mlp(4), LOSS, strategy, process_group=groups[rank // 2])
    list(door)
    return door.stats.batches, door._parts.history.recent.tolist()


def refuse_group() -> str:
    """Name a group that this rank is no member of."""
    group = distributed.new_group([0])
    loader = DataLoader(TensorDataset(torch.arange(8)), 4)
    if rank_now():
        try:
            sb.SelectiveLoader(loader, None, None, sb.traditional(), process_group=group)
        except sb.ConfigurationError as error:
            return str(error)
    return ""


def step_together(sizes: tuple[int, ...], steps: int) -> dict[str, Any]:
    """Take steps on candidates whose losses say which rank, step and row they are of."""

    def losses(model: nn.Module, batch: Tensor) -> Tensor:
        return batch[:, 0] * model.weight.sum()

    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    step = sb.SelectiveStep(model, None, STEPPING, losses=losses)
    size = sizes[rank_now()]
    kept = []
    with noted_messages() as sent:
        for number in range(steps):
            rows = torch.arange(size) + 100.0 * rank_now() + 1000.0 * number
            kept.append(step(rows[:, None]).rows.tolist())
    return {
        "recent": step._history.recent.tolist(),
        "sent": sent,
        "kept": kept,
        "state": step.state_dict(),
    }


STEPPING = sb.Strategy("step", sb.scorers.Forward(), sb.selectors.Percentile(1.0, "exact", 8))


def fail_to_step(rank: int) -> None:
    model = nn.Linear(1, 1)
    step = sb.SelectiveStep(model, nn.MSELoss(), STEPPING)
    batch = torch.randn(8, 1), torch.randn(8, 1)
    step(batch)
    if rank_now() == rank:
        batch = batch[0], batch[1] * torch.nan
    step(batch)


def run_example(rank: int, port: int) -> str:
    """Run the example as torchrun does: it forms its group itself."""
    import contextlib
    import io

    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": 2,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in told.items()})
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    return said.getvalue()


def stream(sizes: tuple[int, ...]) -> tuple[list[list[int]], int]:
    """Train on streams, whose length nobody knows."""
    loader = DataLoader(NumberedStream(sizes[rank_now()]), 4)
    door = select(loader, sb.selective_backprop(1 / 2, warmup_epochs=1))
    return [numbers(door) for _ in range(2)], door.stats.beyond
