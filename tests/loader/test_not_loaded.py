"""What is not selected by remembered scores, or not in the subset, is never loaded."""

from collections import Counter
from collections.abc import Iterator

import fixture_loaders
import pytest
import torch
from fixture_loaders import NotedSampler, Noting, Numbered, flat, length, losses_by_number, numbers
from fixture_memory import PREDICTED, SPREAD, STALE, Loop, strategy
from fixture_training import STRATEGIES, Training
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

import selective_backprop as sb
from selective_backprop._pipeline.source import KeptBatches

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


@pytest.mark.parametrize(
    ("draw", "spread", "workers"),
    [("exact", False, 0), ("exact", True, 2), ("bernoulli", True, 0), ("bernoulli", False, 2)],
)
def test_scores_that_are_good_for_one_epoch_make_selective_backprop_bit_for_bit(
    draw, spread, workers
):
    def train(strategy: sb.Strategy, workers: int = 0) -> tuple:
        training = Training(strategy, workers=workers)
        chosen = [training.epoch() for _ in range(4)]
        return chosen, fixture_loaders.bits(training.model.state_dict())

    stale = sb.stale_sb(1 / 3, epochs=1, spread=spread, draw=draw)
    assert train(stale, workers) == train(sb.selective_backprop(1 / 3, draw=draw))


@pytest.mark.parametrize(("scorer", "workers"), [(STALE, 2), (PREDICTED, 0)])
def test_in_a_stale_epoch_what_is_not_selected_is_not_even_read(scorer, workers):
    loop = Loop(strategy(scorer), workers=workers, records=False)
    for epoch in range(5):
        reads, before = loop.data.reads.clone(), loop.loader.stats
        loop.epoch()
        read, after = loop.data.reads - reads, loop.loader.stats
        if epoch % 3 == 0:
            assert read.tolist() == [1] * 60
            assert after.scored - before.scored == after.loaded - before.loaded == 60
        else:
            assert sorted(read.nonzero().flatten().tolist()) == sorted(loop.trained[-1])
            assert int(read.max()) == 1
            assert after.scored == before.scored
            assert after.loaded - before.loaded == after.kept - before.kept == 20
        assert after.candidates - before.candidates == 60


def test_remembered_scores_rank_against_all_of_their_kind():
    selector = Noting(sb.selectors.Percentile(2.0))
    loop = Loop(strategy(STALE, selector), records=False).epoch()
    known = loop.loader.ledger.scored.observe().scores[0].tolist()
    for _ in range(2):
        for notes in (selector.windows, selector.past):
            notes.clear()
        loop.epoch()
        assert len(selector.windows) == 5
        assert all(sorted(past) == sorted(known) for past in selector.past)
        assert sorted(flat(selector.windows)) == sorted(known)


def test_fresh_scores_rank_among_fresh_ones_alone():
    selector = Noting(sb.selectors.Percentile(2.0))
    loop = Loop(strategy(SPREAD, selector)).epochs(3)
    selector.past.clear()
    loop.epoch()
    fresh = [past for past in selector.past if len(past) > 60]
    known = [past for past in selector.past if len(past) == 40]
    assert len(known) in (3, 4)
    assert all(past == known[0] for past in known)  # as of the epoch's start
    assert len(known) + len(fresh) == len(selector.past)


@pytest.mark.parametrize("scorer", [STALE, SPREAD])
def test_scores_filed_during_an_epoch_count_from_the_next_one_on(scorer):
    chosen = []
    for meddles in (False, True):
        loop = Loop(strategy(scorer), records=False).epoch()

        def meddle(loader=loop.loader, meddles=meddles) -> None:
            if meddles:
                loader.ledger.scored.file(torch.arange(60), torch.rand(60), 1)

        chosen.append(loop.epoch(each=meddle).trained[1])
        chosen.append(loop.epoch().trained[2])
    assert chosen[0] == chosen[2]
    assert chosen[1] != chosen[3]


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
        loader.record(selection, losses_by_number(None, batch), targets=())
        found.append(batch[1].tolist())
    return found


def make_loader(chosen: sb.Strategy, loader: DataLoader) -> sb.SelectiveLoader:
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


@pytest.mark.parametrize("name", [name for name in STRATEGIES if "pipelined" not in name])
def test_no_strategy_ever_reads_what_is_not_kept(name):
    loader = DataLoader(Numbered(40), 5, sampler=NotedSampler(40))
    selecting = make_loader(STRATEGIES[name], loader)
    seen: Counter[int] = Counter()
    for _ in range(5):
        expected, batches = length(selecting), epoch(selecting)
        assert expected in (None, len(batches))
        seen.update(flat(batches))
    assert seen
    assert {*loader.dataset.reads.nonzero().flatten().tolist()} <= {*KEPT}
    assert selecting.stats.candidates == 5 * 17


def test_batches_of_a_sampler_that_does_not_tell_their_size_are_regrouped():
    loader = DataLoader(Numbered(40), batch_sampler=torch.arange(40).split(10))
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
