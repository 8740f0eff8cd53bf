"""A pruned data set in the loader: what is not kept never comes up, with whatever strategy."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, NumberedStream, flat, losses_by_number, select
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


@pytest.mark.parametrize("sampler", [None, NotedSampler(40), Backwards(), RandomSampler(range(40))])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_kept_example_comes_up_once_an_epoch_in_full_batches_and_no_other(sampler, workers):
    if workers and sampler is not None:
        pytest.skip("one sampler is enough to see that workers change nothing")
    data = Numbered(40)
    loader = DataLoader(data, 5, sampler=sampler, num_workers=workers)
    selecting = make_loader(sb.traditional(), loader)
    for number in range(1, 3):
        assert len(selecting) == 4
        batches = epoch(selecting)
        assert [len(batch) for batch in batches] == [5, 5, 5, 2]
        assert sorted(flat(batches)) == sorted(KEPT)
        assert selecting.stats.candidates == selecting.stats.loaded == 17 * number
        assert selecting.progress == number / 6
    assert sorted(data.reads.nonzero().flatten().tolist()) == sorted(KEPT)


def test_a_subset_that_leaves_no_batch_is_refused():
    few = sb.Subset(torch.arange(3), 40)
    with pytest.raises(sb.LoaderError, match="3 examples"):
        sb.SelectiveLoader(DataLoader(Numbered(40), 4, drop_last=True), None, None, sb.pruned(few))


def test_the_order_is_the_samplers():
    loader = make_loader(sb.traditional(), DataLoader(Numbered(40), 5, sampler=Backwards()))
    assert flat(epoch(loader)) == sorted(KEPT, reverse=True)


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
    sb.traditional(),
    sb.random_backprop(1 / 2),
    sb.random_backprop(1 / 2, draw="bernoulli"),
    sb.random_scored(1 / 2),
    sb.top_k(1 / 2),
    sb.low_k(1 / 2),
    sb.selective_backprop(1 / 2),
    sb.selective_backprop(1 / 2, draw="bernoulli"),
    sb.stale_sb(1 / 2, epochs=2),
    sb.stale_sb(1 / 2, epochs=2, spread=True),
    sb.predicted_sb(1 / 2),
    sb.recorded_sb(1 / 2),
    sb.proxy_sb(lambda: nn.Linear(2, 2), lambda ps: torch.optim.SGD(ps, lr=0.1), rate=1 / 2),
    sb.kath18(2.0),
    sb.infobatch(),
    sb.kakurenbo(),
    sb.easy_skip(),
    sb.rho_loss(torch.zeros(40), 1 / 2),
    sb.tail_sft(),
    *(strategy(scorer) for scorer in REMEMBERING),
]


@pytest.mark.parametrize("famous", FAMOUS, ids=lambda strategy: strategy.name)
def test_no_strategy_ever_reads_what_is_not_kept(famous):
    loader = DataLoader(Numbered(40), 5, sampler=NotedSampler(40))
    selecting = make_loader(famous, loader)
    seen: Counter[int] = Counter()
    for _ in range(5):
        try:
            length = len(selecting)
        except TypeError:
            length = None
        batches = epoch(selecting)
        assert length in (None, len(batches))
        seen.update(flat(batches))
    assert seen
    assert {*loader.dataset.reads.nonzero().flatten().tolist()} <= {*KEPT}
    assert selecting.stats.candidates == 5 * 17
    if famous.name not in ("top-k", "low-k", "rho-loss"):
        assert {*seen} == {*KEPT} or not famous.schedule.warmup_epochs


def test_diet_sb_and_pruned_bring_their_subset_along():
    loader = DataLoader(Numbered(40), 5)
    for chosen in (sb.pruned(SUBSET), sb.diet_sb(SUBSET, rate=1 / 2)):
        selecting = select(loader, chosen)
        assert sorted(flat(batch[1].tolist() for batch in selecting)) == sorted(KEPT)


@pytest.mark.parametrize("examples", [39, 41])
def test_a_subset_of_another_data_set_is_refused(examples):
    with pytest.raises(sb.ConfigurationError, match=f"data set of {examples}"):
        make_loader(sb.traditional(), DataLoader(Numbered(examples), 5))


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(NumberedStream(40), 5),
        DataLoader(Numbered(40), None),
        DataLoader(Numbered(40), 5, num_workers=1, in_order=False),
    ],
    ids=["iterable", "single", "out of order"],
)
def test_what_has_no_batches_of_indices_is_refused(loader):
    with pytest.raises(sb.LoaderError, match="by index"):
        make_loader(sb.traditional(), loader)


class Ranges:
    """A batch sampler that has no `batch_size`."""

    def __len__(self):
        return 4

    def __iter__(self):
        return iter(torch.arange(40).split(10))


def test_a_batch_sampler_that_does_not_tell_its_batch_size_needs_one_from_the_loader():
    loader = DataLoader(Numbered(40), batch_sampler=Ranges())
    options = {"model": None, "loss_fn": None, "strategy": sb.pruned(SUBSET)}
    with pytest.raises(sb.LoaderError, match=r"Ranges.* batch_size="):
        sb.SelectiveLoader(loader, **options)
    selecting = sb.SelectiveLoader(loader, **options, batch_size=5)
    assert [batch[1].tolist() for batch in selecting] == [
        sorted(KEPT)[start : start + 5] for start in range(0, 17, 5)
    ]


def test_a_data_set_without_a_length_is_refused_as_such():
    class Endless(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return index

    loader = DataLoader(Endless(), batch_sampler=Ranges())
    with pytest.raises(sb.LoaderError, match=r"Endless .*len"):
        sb.SelectiveLoader(loader, None, None, sb.pruned(SUBSET), batch_size=5)


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


def test_batches_of_ones_own_are_regrouped_with_a_warning():
    own = [list(range(start, start + 8)) for start in range(0, 40, 8)]
    loader = DataLoader(Numbered(40), batch_sampler=OwnBatches(own))
    with pytest.warns(sb.SelectionWarning, match="regroups"):
        selecting = make_loader(sb.traditional(), loader)
    assert sorted(flat(epoch(selecting))) == sorted(KEPT)


class OwnBatches:
    """A batch sampler of the user's own that says how large its batches are."""

    def __init__(self, batches: list[list[int]]) -> None:
        self.batches, self.batch_size = batches, 8

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)
