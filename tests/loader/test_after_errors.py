"""After an error, the state continues with the batch that failed, and loses no candidate."""

import traceback
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, bits, flat, losses_by_number, numbers, select, selective
from fixture_training import STRATEGIES, Training
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop._batches.serialization import unseal
from selective_backprop._core.saved_state import Saved


class Failure(Exception):
    pass


class Breaking(Numbered):
    """Fails when an example is read for the first time."""

    def __init__(self, examples: int, broken: int) -> None:
        super().__init__(examples)
        self.broken = broken

    def __getitem__(self, index: int) -> Any:
        found = super().__getitem__(index)
        if index == self.broken:
            self.broken = -1
            raise Failure
        return found


WITH_ERRORS = {
    "traditional": sb.traditional(),
    "random": sb.random_backprop(1 / 2),
    "selective": selective(1 / 2),
    "coins": selective(1 / 2, draw="bernoulli"),
    "stale": sb.stale_sb(1 / 2, epochs=2, schedule=sb.Schedule()),
}


def became(loader: sb.SelectiveLoader) -> Any:
    return loader.stats, bits(loader.state_dict()["parts"])


def until_it_fails(loader: sb.SelectiveLoader, error: Any) -> tuple[list[list[int]], Any]:
    """Return the batches of an epoch up to an error, and the error."""
    seen: list[list[int]] = []
    with pytest.raises(error) as raised:
        seen.extend(batch[1].tolist() for batch in loader)
    traceback.clear_frames(raised.value.__traceback__)  # which hold on to the workers
    return seen, raised.value


def check_rest(make: Callable[..., sb.SelectiveLoader], *fails: Any, error: Any = Failure) -> None:
    """See that a new loader continues with the batch that failed, and loses no candidate."""
    whole = make()
    expected = numbers(whole), became(whole)
    for place in fails:
        loader, again = make(place), make()
        seen, _ = until_it_fails(loader, error)
        again.load_state_dict(loader.state_dict())
        assert again.next_epoch == loader.stats.epoch
        assert (seen + numbers(again), became(again)) == expected


@pytest.mark.parametrize("strategy", WITH_ERRORS.values(), ids=WITH_ERRORS)
def test_after_an_error_in_the_data_set_the_batch_that_failed_comes_next(strategy):
    def make(broken: int = -1) -> sb.SelectiveLoader:
        return select(DataLoader(Breaking(48, broken), 4), strategy)

    read = flat(numbers(make()))
    check_rest(make, read[0], read[10], read[-1])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_the_data_set_names_the_examples(workers):
    loader = DataLoader(Breaking(32, 13), 4, num_workers=workers)
    _, error = until_it_fails(select(loader, selective(1 / 2)), Failure)
    assert any("[12, 13, 14, 15]" in note for note in error.__notes__)


@pytest.mark.parametrize("strategy", list(WITH_ERRORS.values())[2:], ids=list(WITH_ERRORS)[2:])
@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt, sb.LossError])
def test_after_an_error_in_scoring_the_batch_that_was_scored_comes_next(strategy, error):
    def make(fails: int = 0) -> sb.SelectiveLoader:
        calls = iter(range(1, 100))

        def losses(model: nn.Module, batch: Any) -> torch.Tensor:
            found = losses_by_number(model, batch)
            if next(calls) == fails:
                if error is not sb.LossError:
                    raise error
                found[1] = torch.nan
            return found

        return select(DataLoader(Numbered(48), 4), strategy, losses=losses)

    check_rest(make, 1, 2, 7, 12, error=error)


STALE = sb.scorers.Stale(sb.scorers.Forward(), epochs=2)


@pytest.mark.parametrize(
    ("scorer", "draw", "fails"),
    [
        (STALE, "exact", 5),
        (STALE, "bernoulli", 1),  # a single draw from all examples
        (sb.scorers.Forward(), "exact", 5),
        (sb.scorers.Forward(), "bernoulli", 5),
    ],
)
def test_after_an_error_in_a_draw_no_candidate_is_lost(scorer, draw, fails, monkeypatch):
    draw_rows, calls = sb.selectors.Stateless.select, iter(range(1, 100))

    def failing(*given: Any) -> sb.selectors.Choice:
        if next(calls) == fails:
            raise Failure
        return draw_rows(*given)

    def make() -> sb.SelectiveLoader:
        strategy = sb.Strategy("half", scorer, sb.selectors.Uniform(1 / 2, draw))
        return select(DataLoader(Numbered(48), 4), strategy)

    whole, loader, again = make(), make(), make()
    list(whole)
    expected = numbers(whole), became(whole)
    list(loader)
    with monkeypatch.context() as patch:
        patch.setattr(sb.selectors.Stateless, "select", failing)
        seen, _ = until_it_fails(loader, Failure)
    again.load_state_dict(loader.state_dict())
    assert (seen + numbers(again), became(again)) == expected


def test_rows_that_cannot_be_joined_wait_on():
    def collate(rows: list) -> Any:
        return torch.zeros(len(rows), 1 + (rows[0][1] == 8)), torch.tensor([row[1] for row in rows])

    def make(collate_fn: Any = None) -> sb.SelectiveLoader:
        loader = DataLoader(Numbered(16), 4, collate_fn=collate_fn)
        return select(loader, selective(1 / 2), batch_size=6)

    selecting, seen = make(collate), []
    with pytest.raises(sb.BatchError):
        seen.extend(batch[1].tolist() for batch in selecting)
    state = selecting.state_dict()
    assert selecting.stats.candidates == 12
    assert selecting.stats.waiting + len(flat(seen)) == 12
    selecting.load_state_dict(state)
    with pytest.raises(sb.BatchError):
        next(iter(selecting))


def test_an_epoch_that_could_not_begin_is_the_next_one():
    training = Training(sb.auto())
    for _ in training.loader:  # no losses are recorded
        pass
    with pytest.raises(sb.LossError, match="none was recorded"):
        next(iter(training.loader))
    assert training.loader.next_epoch == 1
    again = Training(sb.auto())
    again.loader.load_state_dict(training.loader.state_dict())
    assert again.loader.next_epoch == 1
    assert again.loader._state.mid_epoch is None


@pytest.mark.parametrize("does", ["nothing", "looks", "records"])
def test_an_epoch_without_a_loss_in_train_mode_is_refused_when_the_next_one_begins(does):
    training = Training(sb.auto(), examples=60)
    loss_fn = training.loader.loss_fn

    def epoch(stop: int | None = None) -> list[Any]:
        found = []
        for (inputs, targets), selection in islice(training.loader, stop):
            loss_fn(training.model(inputs), targets)
            found.append(selection)
        return found

    epoch()
    training.model.eval()
    held = epoch(8 if does == "looks" else None)
    if does == "records":
        for selection in held:
            training.loader.record(selection, torch.rand(len(selection.weights)), targets=())
    training.model.train()
    if does == "nothing":
        assert len(held) > 8
        with pytest.raises(sb.LossError, match=r"last \d+ batches .* model\.train\(\)"):
            epoch()
    assert epoch()
    assert training.loader.next_epoch == 3


def test_an_epoch_that_could_not_be_continued_still_waits_in_the_state():
    training = Training(STRATEGIES["recorded, rescored"])
    training.epoch()
    training.epoch(2)
    saved, state = training.save(), training.loader.state_dict()
    training.load(saved)
    training.sampler.examples = 12  # so it draws another order
    with pytest.raises(sb.LoaderError, match="does not draw these again"):
        next(iter(training.loader))
    again = training.loader.state_dict()
    for part in ("mid_epoch", "parts"):
        assert bits(again[part]) == bits(state[part])
    stands = [unseal(Saved(each["position"]), tuple)[:2] for each in (again, state)]
    assert bits(stands[0]) == bits(stands[1])


def test_an_error_of_a_stream_is_left_as_it_is():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(2), 0
            raise OSError("gone")

    loader = select(DataLoader(Stream(), 1), selective(1 / 2))
    with pytest.raises(OSError, match="gone") as raised:
        list(loader)
    assert not hasattr(raised.value, "__notes__")
