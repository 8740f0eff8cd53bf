"""What a subset leaves out is never read, with whatever strategy."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, flat, length, losses_by_number, numbers
from fixture_memory import REMEMBERING, strategy
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

import selective_backprop as sb
from selective_backprop._pipeline.source import KeptBatches

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


KEPT = list(range(0, 40, 3)) + list(range(31, 40, 3))  # 17 of 40


SUBSET = sb.Subset(torch.tensor(KEPT), 40)


MODEL = nn.Linear(2, 2)


class Backwards(Sampler[int]):
    """A sampler of the user's own."""

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        return iter(range(39, -1, -1))


def epoch(loader: sb.SelectiveLoader) -> list[list[int]]:
    found = []
    for batch, selection in loader:
        assert selection.indices.tolist() == batch[1].tolist()
        loader.record(selection, losses_by_number(None, batch))
        found.append(batch[1].tolist())
    return found


def make_loader(chosen: sb.Strategy, loader: DataLoader | None = None):
    if loader is None:
        loader = DataLoader(Numbered(40), 5, sampler=NotedSampler(40))
    return sb.SelectiveLoader(
        loader,
        MODEL,
        None,
        chosen.within(SUBSET),
        with_selection=True,
        epochs=6,
        generator=torch.Generator().manual_seed(0),
        losses=lambda model, batch: losses_by_number(model, batch) + 0 * model(batch[0])[:, 0],
        outputs=lambda model, batch: (model(batch[0]), batch[1] % 2),
    )


@pytest.mark.parametrize(
    ("sampler", "workers"),
    [(None, 0), (None, 2), (NotedSampler(40), 0), (Backwards(), 0), (RandomSampler(range(40)), 0)],
)
def test_every_kept_example_comes_up_once_an_epoch_in_full_batches_and_no_other(sampler, workers):
    data = Numbered(40)
    loader = DataLoader(data, 5, sampler=sampler, num_workers=workers)
    selecting = make_loader(sb.traditional(), loader)
    for number in range(1, 3):
        assert len(selecting) == 4
        batches = epoch(selecting)
        assert [len(batch) for batch in batches] == [5, 5, 5, 2]
        assert sorted(flat(batches)) == sorted(KEPT)
        if isinstance(sampler, Backwards):
            assert flat(batches) == sorted(KEPT, reverse=True)
        assert selecting.stats.candidates == selecting.stats.loaded == 17 * number
        assert selecting.progress == number / 6
    assert sorted(data.reads.nonzero().flatten().tolist()) == sorted(KEPT)


def test_the_last_batch_is_dropped_if_it_is_short_and_what_was_kept_is_not():
    # the user's batch sampler would drop 4 of 40; of the 17 that are kept 2 are dropped
    loader = DataLoader(Numbered(40), 6, sampler=NotedSampler(40), drop_last=True)
    selecting = make_loader(sb.traditional(), loader)
    for _ in range(3):
        assert len(selecting) == 2
        assert [len(batch) for batch in epoch(selecting)] == [6, 6]
    lists = KeptBatches(BatchSampler(range(40), 17, True), SUBSET, 17)
    assert [sorted(batch) for batch in lists] == [sorted(KEPT)]


FAMOUS = [
    sb.random_backprop(1 / 2),
    sb.random_backprop(1 / 2, draw="bernoulli"),
    sb.top_k(1 / 2),
    sb.low_k(1 / 2),
    sb.selective_backprop(1 / 2, draw="bernoulli"),
    sb.proxy_sb(lambda: nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1), rate=1 / 2),
    sb.kath18(2.0),
    sb.infobatch(),
    sb.kakurenbo(),
    sb.easy_skip(),
    sb.rho_loss(torch.zeros(40), 1 / 2),
    sb.tail_sft(),
    sb.diet_sb(SUBSET, rate=1 / 2),
    *(strategy(scorer) for scorer in REMEMBERING),
]


@pytest.mark.parametrize("famous", FAMOUS, ids=lambda strategy: strategy.name)
def test_no_strategy_ever_reads_what_is_not_kept(famous):
    loader = DataLoader(Numbered(40), 5, sampler=NotedSampler(40))
    selecting = make_loader(famous, loader)
    seen: Counter[int] = Counter()
    for _ in range(5):
        expected, batches = length(selecting), epoch(selecting)
        assert expected in (None, len(batches))
        seen.update(flat(batches))
    assert seen
    assert {*loader.dataset.reads.nonzero().flatten().tolist()} <= {*KEPT}
    assert selecting.stats.candidates == 5 * 17
    if famous.name not in ("top-k", "low-k", "rho-loss"):
        assert {*seen} == {*KEPT} or not famous.schedule.warmup_epochs


class Ranges:
    """A batch sampler that has no `batch_size`."""

    def __len__(self):
        return 4

    def __iter__(self):
        return iter(torch.arange(40).split(10))


def test_batches_of_a_sampler_that_does_not_tell_their_size_are_regrouped():
    loader = DataLoader(Numbered(40), batch_sampler=Ranges())
    ours = sb.SelectiveLoader(loader, None, None, sb.pruned(SUBSET), batch_size=5)
    assert numbers(ours) == [sorted(KEPT)[start : start + 5] for start in range(0, 17, 5)]


@pytest.mark.parametrize("keys", [["a", "b"], [0.5, 1.5], [3, 40], [-1, 2]])
def test_keys_that_are_no_indices_are_refused(keys):
    with pytest.raises(sb.LoaderError, match="indices"):
        list(KeptBatches([keys], SUBSET, 2))


def test_how_many_come_up_is_not_known_of_samplers_that_repeat_or_leave_out():
    own = Backwards()
    own.replacement = True
    for sampler in (RandomSampler(range(40), replacement=True), range(20), own):
        lists = KeptBatches(BatchSampler(sampler, 5, False), SUBSET, 5)
        with pytest.raises(TypeError, match="not known"):
            len(lists)
        assert lists.examples is None
        assert {*flat(lists)} <= {*KEPT}
