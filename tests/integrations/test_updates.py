"""Batches come in whole updates, and what an epoch's end would cut waits for the next epoch."""

import pytest
import torch

pytest.importorskip("transformers")

from fixture_damage import refuse_all
from fixture_loaders import Numbered, select
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop.integrations._transformers._updates import Updates, take_keys


class Named(Numbered):
    def __getitem__(self, index):
        return {"number": torch.tensor(index)}


def updates(batches, examples=40, strategy=None, selects=True, over=False, ended=lambda: None):
    loader = sb.SelectiveLoader(
        DataLoader(Named(examples), 4),
        *(None, None, strategy or sb.random_backprop(1 / 2)),
        with_selection=selects,
    )
    options = {"is_over": lambda: over, "ended": ended, "selects": selects}
    return Updates(loader, batches, torch.device("cpu"), **options)


def test_an_epoch_has_whole_updates_counted_ahead_and_its_rest_goes_first_in_the_next():
    dealt, plain = updates(3), updates(1)
    counted = dealt.count(4)
    lengths, rows, expected = [], [], []
    for _ in range(4):
        batches = list(dealt)
        lengths.append(len(batches))
        rows += [take_keys(batch)[1].indices.tolist() for batch in batches]
        expected += [take_keys(batch)[1].indices.tolist() for batch in plain]
    assert lengths == [3, 6, 6, 3]  # of 5 each
    assert rows == expected[:18]
    assert counted == 6


# In the fourth epoch of 10 examples, 8 are kept, and none of 6 waits any longer.
@pytest.mark.parametrize(("batches", "examples"), [(7, 40), (8, 10)])
def test_an_update_longer_than_an_epoch_takes_several(batches, examples):
    assert len(list(updates(batches, examples))) == batches


@pytest.mark.parametrize("selects", [True, False])
def test_what_waits_is_in_the_state(selects):
    strategy = sb.random_backprop(1 / 2) if selects else sb.traditional()
    first, again = (updates(3, strategy=strategy, selects=selects) for _ in range(2))
    list(first)
    assert first.state_dict()["held"]
    again.load_state_dict(first.state_dict())
    for _ in range(3):
        left, right = ([batch["number"].tolist() for batch in each] for each in (first, again))
        assert left == right


def test_a_damaged_state_is_refused_and_changes_nothing():
    first = updates(3)
    list(first)
    assert refuse_all(first, first.state_dict(), beside=("loader",)) > 20
    loader = first.loader.state_dict() | {"seed": -1}
    with pytest.raises(sb.ConfigurationError, match=r'state\["loader"\]\["seed"\].*-1'):
        first.load_state_dict({"loader": loader, "held": [], "beyond": []})


def test_an_epoch_of_which_nothing_is_left_is_joined_by_the_next():
    first = updates(1)
    batches = iter(first)
    for _ in range(5):
        next(batches)
    again = updates(1)
    again.load_state_dict(first.state_dict())
    assert len(list(again)) == 5
    assert again.loader.next_epoch == 2


def test_nothing_is_yielded_when_training_is_over():
    ended = []
    over = updates(1, over=True, ended=lambda: ended.append(1))
    assert list(over) == ended == []
    assert over.loader.next_epoch == 0


def test_a_batch_that_is_no_mapping_is_refused():
    loader = select(DataLoader(Numbered(16), 4), sb.random_backprop(1 / 2), with_selection=True)
    with pytest.raises(sb.BatchError, match=r"collator .*list"):
        list(Updates(loader, 1, torch.device("cpu"), is_over=lambda: False, ended=lambda: None))
