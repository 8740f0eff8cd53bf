"""Which examples look mislabelled, against a plain twin and on labels that were flipped."""

import csv
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import doubt, ranking, suspicion
from unhooked import unhooked

import selective_backprop as sb

LOOKS = st.lists(st.sampled_from([-1.0, -0.5, 0.25, 1.0]), max_size=4)


def losses_of(doubts):
    """Losses from which the same doubts are read, NaN where an example was not looked at."""
    deepest = max(1, *map(len, doubts))
    table = np.full((deepest, len(doubts)), np.nan)
    for example, looks in enumerate(doubts):
        for look, value in enumerate(looks):
            table[look, example] = -math.log((1.0 - value) / 2.0) if value < 1.0 else math.inf
    return table


@given(st.lists(LOOKS, min_size=1, max_size=6))
def test_the_ranking_is_the_plain_one_s(doubts):
    suspects = sb.guide.audit(losses_of(doubts))
    assert suspects.indices.tolist() == ranking(doubts)
    expected = [suspicion(doubts[example]) for example in suspects.indices]
    np.testing.assert_allclose(suspects.suspicion, expected, atol=1e-12)
    assert suspects.looks.tolist() == [len(doubts[example]) for example in suspects.indices]
    assert suspects.suspicious == sum(value > 0 for value in expected)


def test_a_ledger_is_read_in_the_order_of_its_epochs():
    ledger = sb.scorers.Ledger(2, depth=2)
    with pytest.raises(sb.ConfigurationError, match="holds no losses yet"):
        sb.guide.audit(ledger)
    indices = torch.arange(2)
    ledger.scored.file(indices, torch.tensor([0.0, 9.0]), 1)
    ledger.scored.file(indices, torch.tensor([9.0, 0.0]), 3)
    ledger.recorded.file(indices, torch.tensor([1.0, 1.0]), 2)
    suspects = sb.guide.audit(ledger)
    assert suspects.indices.tolist() == [0, 1]
    assert suspects.looks.tolist() == [3, 3]


def test_a_share_of_the_list_is_one_of_the_data_set_and_of_losses_alone_nobody_knows_what_is_rare():
    suspects = sb.guide.audit(np.array([0.1, 3.0, np.nan, 1.0]))
    assert suspects.top(0.5).tolist() == [1, 3]
    assert suspects.top(1.0).tolist() == [1, 3, 0]
    with pytest.raises(sb.ConfigurationError, match="a twentieth"):
        suspects.top(5)
    with pytest.raises(sb.ConfigurationError, match="give Doubts"):
        suspects.likely()


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (np.zeros((1, 2, 3)), "shape"),
        (np.zeros(0), "shape"),
        (np.array([0.5, -0.25]), "-0.25"),
        ([1.0, 2.0], "a list cannot be audited"),
        (np.array(["a text", "another"]), "the mean loss over its tokens"),
        (np.array([1.0, None]), "object holds no losses"),
        (torch.tensor([1j]), "complex64 holds no losses"),
        (None, "remembers none"),
    ],
)
def test_what_cannot_be_audited_is_refused(evidence, words):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        sb.guide.audit(evidence)


@given(st.integers(0, 2**31), st.integers(2, 4), st.integers(1, 3))
def test_noted_doubts_are_those_of_the_plain_twin_and_the_last_prediction(seed, classes, passes):
    random = torch.Generator().manual_seed(seed)
    doubts, plain, last = sb.guide.Doubts(5), [[] for _ in range(5)], {}
    for _ in range(passes):
        indices = torch.randperm(4, generator=random)[:3]  # the last never
        outputs = (3 * torch.randn(3, classes, generator=random)).requires_grad_()
        labels = indices % classes
        doubts.note(indices, outputs, labels)
        for index, logits, label in zip(indices.tolist(), outputs.tolist(), labels, strict=True):
            plain[index].append(doubt(logits, int(label)))
            odds = [math.exp(each) for each in logits]
            last[index] = odds.index(max(odds)), max(odds) / sum(odds)
    suspects = sb.guide.audit(doubts)
    assert sorted(suspects.indices) == sorted(last)
    expected = [suspicion(plain[index]) for index in suspects.indices]
    np.testing.assert_allclose(suspects.suspicion, expected, atol=1e-5)
    assert (suspects.labels == suspects.indices % classes).all()
    predicted, sure = zip(*(last[index] for index in suspects.indices), strict=True)
    assert suspects.predictions.tolist() == [*predicted]
    np.testing.assert_allclose(suspects.confidences, sure, rtol=1e-4)


def test_rows_of_one_example_in_a_batch_weigh_the_same():
    doubts = sb.guide.Doubts(1)
    surely = torch.tensor([[99.0, 0.0], [0.0, 99.0]])
    doubts.note(torch.tensor([0, 0]), surely, torch.tensor([0, 0]))
    assert sb.guide.audit(doubts).suspicion.tolist() == [-1 / 3]
    doubts.note(torch.tensor([0]), surely[1:], torch.tensor([0]))
    assert sb.guide.audit(doubts).suspicion.tolist() == pytest.approx([(3 * (3 / 5) - 1) / 4])


def test_doubts_go_on_from_their_state_also_if_they_began_in_inference_mode(tmp_path):
    outputs, labels = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    whole, first, later = (sb.guide.Doubts(2) for _ in range(3))
    for each in (whole, first):
        with torch.inference_mode(each is whole):
            each.note(torch.tensor([0, 1]), outputs + 0, labels)
    torch.save(first.state_dict(), tmp_path / "state")
    later.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for each in (whole, later):
        each.note(torch.tensor([1]), outputs[:1], labels[:1])
    assert sb.guide.audit(later).suspicion.tolist() == sb.guide.audit(whole).suspicion.tolist()
    with pytest.raises(sb.ConfigurationError, match="2 examples, this one has 3"):
        sb.guide.Doubts(3).load_state_dict(first.state_dict())


ROWS, LOGITS = torch.arange(2), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("indices", "outputs", "labels", "words"),
    [
        (ROWS, torch.zeros(2), ROWS, "one logit"),
        (ROWS, LOGITS, torch.zeros(2), "one-hot"),
        (torch.arange(3), LOGITS, ROWS, "one index"),
        (torch.arange(3), LOGITS, torch.arange(3), "expected"),
        (ROWS, LOGITS, torch.tensor([0, 3]), "labels up to 3.*from 0 to 2"),
        (ROWS, LOGITS, ROWS * 1j, "class numbers are needed"),
        (ROWS, LOGITS, np.arange(2), "labels=array.* targets"),
        (ROWS, {"logits": LOGITS}, ROWS, "outputs=.*logits"),
        (None, LOGITS, ROWS, "indices=None.* selection.indices"),
        (ROWS + 2, LOGITS, ROWS, "from 2 to 3.* from 0 to 2"),
        (ROWS - 1, LOGITS, ROWS, "from -1 to 0"),
        (torch.arange(2.0), LOGITS, ROWS, "whole numbers"),
        (ROWS > 0, LOGITS, ROWS, "whole numbers"),
    ],
)
def test_what_is_no_classification_is_refused(indices, outputs, labels, words):
    doubts = sb.guide.Doubts(3)
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        doubts.note(indices, outputs, labels)
    assert not doubts.on_host()["looks"].any()


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16])
def test_rows_without_a_label_and_looks_that_are_not_finite_are_not_noted(kind):
    doubts, plain, outputs = sb.guide.Doubts(4), sb.guide.Doubts(4), torch.eye(4, 3)
    outputs[0, 0] = -math.inf
    labels = torch.tensor([1, -100, 2, -1], dtype=kind)
    with unhooked():
        doubts.note(torch.arange(4, dtype=kind), outputs, labels)
    for wrong in (math.nan, math.inf):
        doubts.note(torch.arange(3), torch.full((3, 3), wrong), torch.tensor([0, 1, 0]))
    plain.note(torch.tensor([0, 2]), outputs[::2], torch.tensor([1, 2]))
    found, expected = doubts.on_host(), plain.on_host()
    assert found["looks"].tolist() == [1, 0, 1, 0]
    for name, each in expected.items():
        assert torch.equal(found[name].nan_to_num(9.0), each.nan_to_num(9.0))


def ranked(doubts, labels, looks=30):
    doubts, labels = np.array(doubts), np.array(labels)
    return sb.guide.Suspects.ranked(doubts, np.full(len(doubts), looks), labels=labels)


def test_what_is_doubted_as_surely_as_right_labels_are_believed_is_likely_wrong():
    believed = [-0.9] * 15 + [-0.6] * 15  # -0.75 in the mean
    assert ranked([*believed, 0.76, 0.74], [0] * 32).likely() == ["wrong", "hard"]
    assert ranked([*believed, 0.76, 0.74], [0] * 32, looks=3).likely() == ["wrong", "hard"]


def test_a_class_is_rare_below_half_of_an_even_share():
    for count, words in ((9, "rare class: 8 of 9 learned"), (10, "hard")):
        labels = [0] * (40 - count) + [1] * count
        assert ranked([-0.9] * 39 + [0.5], labels).likely() == [words]


def test_where_nothing_of_a_class_is_learned_nothing_is_said_of_its_examples():
    suspects = ranked([-0.9] * 9 + [0.95, 0.3], [0] * 9 + [3] * 2)
    assert suspects.likely() == ["unknown: 0 of 2 learned"] * 2
    assert suspects.likely(3) == ["unknown: 0 of 2 learned"] * 2 + [""]
    assert ranked([0.9, 0.9], [0, 1]).likely() == ["unknown: 0 of 1 learned"] * 2


def test_the_csv_names_the_most_suspicious_first_and_a_sentence_how_many(tmp_path):
    found = sb.guide.audit(np.array([[0.1, 5.0, 3.0]] * 3))
    assert str(found) == repr(found) == "2 of 3 labels look wrong, first those of examples 1, 2"
    assert str(sb.guide.audit(np.full((2, 2000), 3.0))).endswith(" 8, 9, …")
    assert str(sb.guide.audit(np.array([0.1, 0.2]))) == "0 of 2 labels look wrong"
    doubts, path = sb.guide.Doubts(3), tmp_path / "suspects.csv"
    outputs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    doubts.note(torch.arange(3), outputs, torch.tensor([0, 0, 1]))
    suspects = sb.guide.audit(doubts)
    suspects.write_csv(path, limit=2, class_names=["cat", "dog, small"], extra={"image": "ab"})
    with path.open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["rank"], first["index"], first["label"]) == ("1", "1", "cat")
    assert (first["prediction"], first["image"]) == ("dog, small", "a")
    assert float(first["suspicion"]) == pytest.approx(suspects.suspicion[0], abs=1e-4)
    assert second["index"] == "2"
    sb.guide.audit(np.array([1.0, 2.0])).write_csv(path)
    assert path.read_text(encoding="utf-8").splitlines()[0] == "rank,index,suspicion,looks"


def loop(strategy, note=lambda *_: None):
    """Train a linear net on two blobs that lie apart, a tenth of the labels wrong."""
    random = torch.Generator().manual_seed(1)
    labels = torch.arange(160) % 2
    points = torch.randn(160, 2, generator=random) + 8.0 * labels[:, None] - 4.0
    wrong = torch.arange(160) % 10 == 7
    data = torch.utils.data.TensorDataset(points, torch.where(wrong, 1 - labels, labels))
    torch.manual_seed(0)
    model, loss_fn = torch.nn.Linear(2, 2), torch.nn.CrossEntropyLoss(reduction="none")
    torch.nn.init.zeros_(model.weight)  # a net that begins wrong doubts what is right
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    loader = sb.SelectiveLoader(loader, model, loss_fn, strategy, with_selection=True)
    for _ in range(2):
        for (inputs, targets), selection in loader:
            outputs = model(inputs)
            losses = loss_fn(outputs, targets)
            optimizer.zero_grad()
            (selection.weights * losses).mean().backward()
            optimizer.step()
            loader.record(selection, losses)
            note(selection.indices, outputs, targets)
    return loader, wrong.numpy()


@pytest.mark.parametrize("strategy", [sb.traditional(), sb.selective_backprop(rate=1 / 2)])
def test_flipped_labels_are_found_in_a_loop_of_one_s_own(strategy):
    doubts = sb.guide.Doubts(160)
    _, wrong = loop(strategy, doubts.note)
    suspects = sb.guide.audit(doubts)
    assert set(suspects.top(0.1)) == set(np.flatnonzero(wrong))
    assert abs(suspects.suspicious - 16) <= 2


def test_a_loader_s_ledger_can_be_audited_and_one_that_remembers_nothing_has_none():
    loader, wrong = loop(sb.recorded_sb(rate=1 / 2))
    assert isinstance(loader.ledger, sb.scorers.Ledger)
    assert set(sb.guide.audit(loader.ledger).top(0.1)) == set(np.flatnonzero(wrong))
    loader, _ = loop(sb.random_backprop(rate=1 / 2))
    assert loader.ledger is None
