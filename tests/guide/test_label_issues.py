"""Which labels look wrong to a trained model, from one pass that leaves no trace."""

import functools
import math
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from fixture_loaders import random_streams
from hypothesis import given
from hypothesis import strategies as st
from reference import doubt
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
MODEL, LOSS_FN = nn.Identity(), nn.CrossEntropyLoss()  # a model whose inputs are its logits


def judged(logits, labels, loss_fn=LOSS_FN, **options):
    """Return what is found of logits and labels, whether or not the model learned them."""
    loader = DataLoader(TensorDataset(logits, labels), 4, **options)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("selective_backprop.guide._label_issues.warn", lambda message: None)
        return sb.guide.find_label_issues(MODEL, loader, loss_fn)


def plain(logits, labels):
    """What is found of logits and labels, one example at a time: suspicions, and the estimate."""
    odds = [[math.exp(each - max(row)) for each in row] for row in logits]
    chances = [[each / sum(row) for each in row] for row in odds]
    classes, taken = len(logits[0]), []
    for row, label in zip(chances, labels, strict=True):
        other = max((each for each in range(classes) if each != label), key=row.__getitem__)
        same = [each[other] for each, y in zip(chances, labels, strict=True) if y == other]
        differs = row[other] > row[label]
        sure = differs and bool(same) and row[other] >= sum(same) / len(same) - 1e-6
        taken.append((label, other if differs else None, sure))

    def share(label, other):
        confident = sum(each == (label, other, True) for each in taken)
        return math.log((confident + 1) / (labels.count(label) + named))

    # Classes that are neither a label nor predicted need not be known.
    named = 1 + max([*labels, *(other for _, other, _ in taken if other is not None)])
    shares = [share(label, other) for label, other, _ in taken if other is not None]
    suspicions = []
    for row, (label, other, _) in zip(logits, taken, strict=True):
        suspicions.append(doubt(row, label))
        if other is not None:
            raised = (share(label, other) - sum(shares) / len(shares)) / 2
            suspicions[-1] = math.tanh((row[other] - row[label] + raised) / 2)
    return suspicions, sum(sure for _, _, sure in taken)


@given(st.integers(0, 2**31), st.integers(2, 4), st.integers(1, 12), st.booleans())
def test_ranking_and_estimate_are_the_plain_twin_s_in_whatever_order_is_drawn(
    seed, classes, examples, shuffle
):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(examples, classes, generator=generator)
    labels = torch.randint(classes, (examples,), generator=generator)
    suspects = judged(logits, labels, shuffle=shuffle, drop_last=examples > 4)
    suspicions, estimate = plain(logits.tolist(), labels.tolist())
    assert sorted(suspects.indices.tolist()) == list(range(examples))
    np.testing.assert_allclose(suspects.suspicion, sorted(suspicions, reverse=True), atol=1e-5)
    np.testing.assert_allclose(suspects.suspicion, np.take(suspicions, suspects.indices), atol=1e-5)
    assert suspects.suspicious == estimate
    assert suspects.top().tolist() == suspects.indices[:estimate].tolist()


LABELS = torch.tensor([0, 0, 1, 1, 1, 0])
LOGITS = 4.0 * torch.eye(2)[[0, 0, 1, 1, 0, 1]]  # of the last two another class is likelier


def test_the_rest_is_what_training_then_sees():
    suspects = judged(LOGITS, LABELS)
    assert sorted(suspects.top()) == [4, 5]
    assert suspects.rest().indices.tolist() == [0, 1, 2, 3]
    assert suspects.rest(1 / 6).indices.tolist() == [0, 1, 2, 3, 5]
    with pytest.raises(sb.ConfigurationError, match="at least one"):
        suspects.rest(1.0)


def test_the_table_calls_issues_as_many_as_were_estimated_and_the_list_says_why():
    labels = torch.tensor([0] * 5 + [1] * 5 + [1, 0, 1])
    logits = 4.0 * torch.eye(2)[torch.tensor([0] * 5 + [1] * 5 + [0, 1, 0])]
    logits[12] /= 4  # is doubted, and less surely than right labels are believed
    suspects = judged(logits, labels)
    table = sb.guide.example_table(suspects)
    assert table["is_label_issue"].tolist() == [False] * 10 + [True] * 2 + [False]
    assert table["looks"].tolist() == [1] * 13
    suspicions, _ = plain(logits.tolist(), labels.tolist())
    np.testing.assert_allclose(table["label_quality"], (1 - np.array(suspicions)) / 2, atol=1e-6)
    assert suspects.likely(3) == ["wrong", "wrong", ""]


def test_a_pass_leaves_model_loader_and_random_streams_as_they_were():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    model[1].eval()
    generator = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(9, 2), torch.tensor([0, 1, 1] * 3))
    loader = DataLoader(data, 2, shuffle=True, generator=generator)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with unhooked():  # checking annotations draws from Python's stream
        streams = random_streams(generator)
        first, second = (sb.guide.find_label_issues(model, loader, LOSS_FN) for _ in range(2))
        assert random_streams(generator) == streams
    assert first.suspicion.tolist() == second.suspicion.tolist()  # without dropout
    assert [each.training for each in model] == [True, False, True]
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())


def test_the_loader_s_own_collation_and_batches_of_any_kind_are_taken():
    class Words(TensorDataset):
        def __getitem__(self, index):
            inputs, labels = super().__getitem__(index)
            return {"logits": inputs, "label": labels}

    loader = DataLoader(Words(LOGITS, LABELS), 4, shuffle=True)
    suspects = sb.guide.find_label_issues(
        MODEL, loader, LOSS_FN, outputs=lambda model, each: (model(each["logits"]), each["label"])
    )
    assert sorted(suspects.top()) == [4, 5]
    with unhooked(), pytest.raises(sb.LossError, match="outputs=callable"):
        sb.guide.find_label_issues(MODEL, loader, LOSS_FN)


def test_examples_that_the_sampler_leaves_out_are_not_judged():
    held, data = [0, 2, 5], TensorDataset(LOGITS, LABELS)
    for loader in (
        DataLoader(data, 4, sampler=SubsetRandomSampler(held)),
        DataLoader(data, 2, sampler=held, drop_last=True),
        DataLoader(data, batch_sampler=[[5, 0], [2], [0]]),
    ):
        suspects = sb.guide.find_label_issues(MODEL, loader, LOSS_FN)
        assert sorted(suspects.indices) == held


def test_ignored_labels_and_outputs_that_are_not_finite_are_not_judged():
    labels, logits = LABELS.clone(), LOGITS.clone()
    labels[4], logits[0, 0] = -100, math.nan
    suspects = judged(logits, labels)
    assert sorted(suspects.indices) == [1, 2, 3, 5]
    assert suspects.rest().indices.tolist() == [0, 1, 2, 3, 4]
    labels[4] = 7
    for loss_fn in (
        nn.CrossEntropyLoss(ignore_index=7),
        functools.partial(functional.cross_entropy, ignore_index=7),
    ):
        assert sorted(judged(logits, labels, loss_fn).indices) == [1, 2, 3, 5]
    nothing = judged(logits, torch.full_like(labels, -100))
    assert (len(nothing), nothing.suspicious) == (0, 0)


@pytest.mark.parametrize(
    ("labels", "loss_fn", "words"),
    [
        (LABELS, nn.MSELoss(), "MSELoss is no cross-entropy"),
        (LABELS + 1, LOSS_FN, "from 1 to 2.*2 classes.*0 to 1"),
        (LABELS - 1, LOSS_FN, "from -1 to 0"),
        (LABELS.float(), LOSS_FN, "float32"),
        (torch.eye(2)[LABELS], LOSS_FN, r"\[row, class\]"),
    ],
)
def test_what_is_no_classification_is_refused(labels, loss_fn, words):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        judged(LOGITS, labels, loss_fn)


def test_a_model_that_returns_no_tensor_a_stream_and_a_collate_function_that_sorts_are_refused():
    def by_size(examples):
        examples = sorted(examples, key=lambda example: -float(example[0].sum()))
        return tuple(map(torch.stack, zip(*examples, strict=True)))

    with pytest.raises(sb.BatchError, match="changes the order of examples"):
        judged(torch.randn(8, 3), torch.arange(8) % 3, collate_fn=by_size)
    loader = DataLoader(TensorDataset(LOGITS, LABELS), 2)
    with pytest.raises(sb.ConfigurationError, match="is no Tensor"):
        sb.guide.find_label_issues(
            MODEL, loader, LOSS_FN, outputs=lambda model, batch: ({"logits": batch[0]}, batch[1])
        )
    stream = DataLoader(list(zip(LOGITS, LABELS, strict=True)), batch_size=None)
    with pytest.raises(sb.LoaderError, match="a batch size"):
        sb.guide.find_label_issues(MODEL, stream, LOSS_FN)


@pytest.mark.filterwarnings("ignore:the model is right about")  # all of the other half
def test_the_page_judges_each_half_by_a_model_of_the_other(capsys, monkeypatch):
    monkeypatch.setattr(torch, "randperm", torch.arange)
    part = PAGE.read_text(encoding="utf-8").split("\n## From a model that is trained already")[1]
    (block,) = re.findall(
        r"^```python\n(.*?)^```", part.split("\n## ")[0], re.DOTALL | re.MULTILINE
    )
    names = {"torch": torch, "sb": sb, "DataLoader": DataLoader, "Subset": Subset}
    names |= {"loss_fn": LOSS_FN, "train": lambda part: MODEL}
    exec(block, names | {"data": TensorDataset(LOGITS, LABELS)})
    assert capsys.readouterr().out == "tensor([5, 4])\ntensor([], dtype=torch.int64)\n"


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_model_that_is_right_more_often_than_it_says_has_probably_learned_the_labels(smoothing):
    generator = torch.Generator().manual_seed(0)
    chances = (2 * torch.randn(2000, 4, generator=generator)).softmax(1)
    logits = ((1 - smoothing) * chances + smoothing / 4).log()
    drawn = torch.multinomial(chances, 1, generator=generator)[:, 0]
    for labels, warns in ((drawn, False), (chances.argmax(1), True)):
        loader = DataLoader(TensorDataset(logits, labels), 500)
        loss_fn = nn.CrossEntropyLoss(label_smoothing=smoothing)
        told = pytest.warns(sb.SelectionWarning, match="trained on other examples")
        with told if warns else nullcontext():
            sb.guide.find_label_issues(MODEL, loader, loss_fn)
