"""Batches come in whole updates, and documents are cut out of packed rows."""

import pytest
import torch

pytest.importorskip("transformers")

from fixture_damage import refuse_all
from fixture_loaders import Numbered, select
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop.integrations._transformers._documents import Documents, find_lengths
from selective_backprop.integrations._transformers._updates import Updates


class Named(Numbered):
    def __getitem__(self, index):
        return {"number": torch.tensor(index)}


def updates(batches, data=None, over=False, ended=lambda: None):
    data = DataLoader(data or Named(40), 4)
    loader = select(data, sb.random_backprop(1 / 2), with_selection=True)
    return Updates(loader, batches, torch.device("cpu"), is_over=lambda: over, ended=ended)


# In the fourth epoch of 10 examples, 8 are kept, and none of 6 waits any longer.
@pytest.mark.parametrize(("batches", "examples"), [(7, 40), (8, 10)])
def test_an_update_longer_than_an_epoch_takes_several(batches, examples):
    assert len(list(updates(batches, Named(examples)))) == batches


def test_a_damaged_state_is_refused_and_changes_nothing():
    first = updates(3)
    list(first)
    assert refuse_all(first, first.state_dict(), beside=("loader",)) > 20
    loader = first.loader.state_dict() | {"seed": -1}
    with pytest.raises(sb.ConfigurationError, match=r'state\["loader"\]\["seed"\].*-1'):
        first.load_state_dict({"loader": loader, "held": [], "beyond": []})


def test_nothing_is_yielded_when_training_is_over():
    ended = []
    over = updates(1, over=True, ended=lambda: ended.append(1))
    assert list(over) == ended == []


def test_a_batch_that_is_no_mapping_is_refused():
    with pytest.raises(sb.BatchError, match=r"collator .*list"):
        list(updates(1, Numbered(16)))


ROWS = [
    {"input_ids": [1, 2, 3, 4, 5], "labels": [1, 2, -100, 4, 5]},
    {"input_ids": [6, 7], "labels": [6, 7]},
    {"input_ids": [8, 9, 10], "labels": [-100, 9, 10]},
]
LENGTHS = [[2, 3], [2], [1, 1, 1]]


def test_documents_are_numbered_by_rows():
    documents = Documents(ROWS, LENGTHS)
    assert len(documents) == 6
    tokens = [documents[index]["input_ids"].tolist() for index in range(6)]
    assert tokens == [[1, 2], [3, 4, 5], [6, 7], [8], [9], [10]]
    assert documents[1]["labels"].tolist() == [-100, 4, 5]
    # rows without lengths are documents, and labels are tokens by default
    documents = Documents([{"input_ids": torch.tensor([4, 5])}, ROWS[1]], None)
    assert documents[0]["labels"].tolist() == [4, 5]
    assert documents[1]["input_ids"].tolist() == [6, 7]


@pytest.mark.parametrize("start", [0, 2])
def test_documents_begin_where_positions_do(start):
    rows = [
        {"position_ids": [start + place for length in lengths for place in range(length)]}
        for lengths in LENGTHS
    ]
    assert find_lengths(rows) == LENGTHS
    assert find_lengths(rows[1:2]) is None
    assert find_lengths([{"seq_lengths": lengths} for lengths in LENGTHS]) == LENGTHS
    assert find_lengths(ROWS) is None


def test_lengths_that_do_not_cover_their_row_are_refused():
    with pytest.raises(sb.BatchError, match=r"row 1 have 3 tokens.* has 2"):
        Documents(ROWS, [[5], [1, 2], [3]])[1]
