"""A limited training set is balanced, and the same for everybody."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.splits import (
    Splits,
    held_out,
    limited,
    of_classes,
    redrawn,
    stratified_order,
)

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80)


def splits_of(labels: list[int]) -> Splits:
    count = len(labels)
    return Splits(
        train_inputs=torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2),
        train_labels=torch.tensor(labels),
        test_inputs=torch.zeros(3, 1, 2, 2, dtype=torch.uint8),
        test_labels=torch.zeros(3, dtype=torch.int64),
        class_names=tuple("abcde"[: max(labels) + 1]),
    )


@given(LABELS)
def test_every_prefix_has_each_classs_share_as_nearly_as_promised(labels):
    labels = torch.tensor(labels)
    order = stratified_order(labels)
    assert sorted(order.tolist()) == list(range(len(labels)))
    for length in range(1, len(labels) + 1):
        for label in labels.unique():
            share = (labels == label).double().mean()
            found = (labels[order[:length]] == label).sum()
            assert abs(found - share * length) <= (1 + share * len(labels.unique())) / 2 + 1e-9


def test_the_order_never_changes_between_versions():
    assert stratified_order(torch.arange(12) % 3).tolist() == [0, 7, 8, 11, 9, 4, 2, 10, 6, 5, 3, 1]


def test_limited_keeps_images_and_labels_together_and_the_test_split_whole():
    labels = [0, 1, 2] * 20
    whole = splits_of(labels)
    part = limited(whole, 15)
    assert part.train_labels.bincount().tolist() == [5, 5, 5]
    kept = part.train_inputs[:, 0, 0, 0].tolist()
    assert [labels[index] for index in kept] == part.train_labels.tolist()
    assert part.test_inputs is whole.test_inputs
    assert part.class_names == whole.class_names


@pytest.mark.parametrize("limit", [-1, 0, 2, 61])
def test_a_limit_that_leaves_a_class_out_or_asks_for_too_many_is_refused(limit):
    with pytest.raises(sb.ConfigurationError, match=rf"limit is {limit},.* between 3 .* and 60 "):
        limited(splits_of([0, 1, 2] * 20), limit)


def test_some_classes_keep_their_examples_and_are_numbered_from_0():
    whole = splits_of([0, 3, 1, 2, 3, 0, 2, 4])
    part = of_classes(whole, "2-3")
    assert part.train_labels.tolist() == [1, 0, 1, 0]
    assert part.train_inputs[:, 0, 0, 0].tolist() == [1, 3, 4, 6]
    assert part.class_names == ("c", "d")
    assert len(part.test_labels) == 0  # all are of class 0
    assert of_classes(whole, "0-4").train_labels.tolist() == whole.train_labels.tolist()


@pytest.mark.parametrize("chosen", ["3-5", "2-2", "3-1", "4", "", "a-b", "0-1-2", "-1-2"])
def test_classes_that_there_are_not_are_refused_with_those_there_are(chosen):
    with pytest.raises(sb.ConfigurationError, match=rf"'{chosen}' .*the classes 0 to 4"):
        of_classes(splits_of([0, 1, 2, 3, 4]), chosen)


def test_splits_are_dealt_out_anew_by_a_seed():
    splits = splits_of([0, 1, 2, 3, 4] * 10)
    splits = splits._replace(test_inputs=splits.test_inputs + 100)
    pairs = []
    for seed in (1, 1, 2):
        dealt = redrawn(splits, seed)
        assert [len(part) for part in dealt[:4]] == [50, 50, 3, 3]
        inputs = torch.cat([dealt.train_inputs, dealt.test_inputs])[:, 0, 0, 0]
        labels = torch.cat([dealt.train_labels, dealt.test_labels])
        assert inputs.sort().values.tolist() == [*range(50), 100, 100, 100]
        assert torch.equal(labels[inputs < 100], inputs[inputs < 100].long() % 5)
        pairs.append(inputs.tolist())
    assert pairs[0] == pairs[1] != pairs[2]


def test_what_is_held_out_of_training_has_each_class_and_replaces_the_test_examples():
    splits = splits_of([0, 1] * 20)
    held = held_out(splits._replace(test_labels=torch.zeros(99).long()))  # a fifth of 40 at most
    assert len(held.test_labels) == 8
    assert held.test_labels.bincount().tolist() == [4, 4]
    ids = torch.cat([held.train_inputs, held.test_inputs])[:, 0, 0, 0]
    assert sorted(ids.tolist()) == list(range(40))
    assert len(held_out(splits).test_labels) == 3


def test_text_is_not_dealt_out_anew():
    text = splits_of([0, 1])._replace(train_labels=torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(sb.ConfigurationError, match="text cannot be redistributed"):
        redrawn(text, 1)
