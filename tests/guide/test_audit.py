"""Which examples look mislabelled, against a plain twin and on labels that were flipped."""

import csv
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference_audit import doubt, ranking, suspicion
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


def test_an_example_that_is_looked_at_more_often_is_more_suspicious_at_equal_doubt():
    table = losses_of([[0.25], [0.25, 0.25, 0.25], []])
    assert sb.guide.audit(table).indices.tolist() == [1, 0]


def test_later_looks_weigh_more():
    assert sb.guide.audit(losses_of([[1.0, -1.0], [-1.0, 1.0]])).indices.tolist() == [1, 0]


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


def test_losses_of_one_look_are_ranked_as_they_are_and_tensors_do_as_well():
    losses = torch.tensor([0.1, 3.0, math.nan, 1.0], requires_grad=True)
    assert sb.guide.audit(losses).indices.tolist() == [1, 3, 0]


def test_an_array_is_read_in_whatever_order_it_lies_in_memory():
    losses = np.array([[0.1, 3.0], [2.0, 0.2]])
    expected = sb.guide.audit(losses[::-1].copy())
    assert sb.guide.audit(losses[::-1]).suspicion.tolist() == expected.suspicion.tolist()


def test_a_share_of_the_list_is_one_of_the_data_set():
    suspects = sb.guide.audit(np.array([0.1, 3.0, np.nan, 1.0]))
    assert suspects.top(0.5).tolist() == [1, 3]
    assert suspects.top(1.0).tolist() == [1, 3, 0]
    with pytest.raises(sb.ConfigurationError, match="a twentieth"):
        suspects.top(5)


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
def test_noted_doubts_are_those_of_the_plain_twin(seed, classes, passes):
    random = torch.Generator().manual_seed(seed)
    doubts, plain = sb.guide.Doubts(5), [[] for _ in range(5)]
    for _ in range(passes):
        indices = torch.randperm(4, generator=random)[:3]  # the last never
        outputs = 3 * torch.randn(3, classes, generator=random)
        labels = indices % classes
        doubts.note(indices, outputs, labels)
        for index, logits, label in zip(indices, outputs.tolist(), labels, strict=True):
            plain[index].append(doubt(logits, int(label)))
    suspects = sb.guide.audit(doubts)
    looked = [index for index in range(5) if plain[index]]
    assert sorted(suspects.indices) == looked
    expected = [suspicion(plain[index]) for index in suspects.indices]
    np.testing.assert_allclose(suspects.suspicion, expected, atol=1e-5)
    assert (suspects.labels == suspects.indices % classes).all()


def test_rows_of_one_example_in_a_batch_weigh_the_same():
    doubts = sb.guide.Doubts(1)
    surely = torch.tensor([[99.0, 0.0], [0.0, 99.0]])
    doubts.note(torch.tensor([0, 0]), surely, torch.tensor([0, 0]))
    assert sb.guide.audit(doubts).suspicion.tolist() == [-1 / 3]
    doubts.note(torch.tensor([0]), surely[1:], torch.tensor([0]))
    assert sb.guide.audit(doubts).suspicion.tolist() == pytest.approx([(3 * (3 / 5) - 1) / 4])


def test_the_last_prediction_and_its_confidence_are_noted():
    doubts = sb.guide.Doubts(3)
    outputs = torch.tensor([[0.0, 2.0], [2.0, 0.0]], requires_grad=True)
    doubts.note(torch.tensor([0, 2]), outputs.flip(0), torch.tensor([0, 0]))
    doubts.note(torch.tensor([0, 2]), outputs, torch.tensor([0, 0]))
    suspects = sb.guide.audit(doubts)
    assert suspects.indices.tolist() == [0, 2]
    assert suspects.predictions.tolist() == [1, 0]
    sure = 1 / (1 + math.exp(-2))
    np.testing.assert_allclose(suspects.confidences, [sure, sure], rtol=1e-6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_looks_that_are_not_finite_are_not_noted(wrong):
    doubts, plain = sb.guide.Doubts(3), sb.guide.Doubts(3)
    outputs, labels = torch.tensor([[0.0, 2.0], [-math.inf, 1.0]]), torch.tensor([0, 1])
    for each in (doubts, plain):
        each.note(torch.tensor([0, 1]), outputs, labels)
    doubts.note(torch.arange(3), torch.full((3, 2), wrong), torch.tensor([0, 1, 0]))
    found, expected = sb.guide.audit(doubts), sb.guide.audit(plain)
    for name in ("indices", "suspicion", "looks", "predictions", "confidences"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_doubts_that_began_in_inference_mode_can_be_noted_in_training():
    doubts, logits = sb.guide.Doubts(3), torch.tensor([[0.0, 1.0]])
    for example, mode in enumerate((True, False, True)):
        with torch.inference_mode(mode):
            doubts.note(torch.tensor([example]), logits + 0, torch.tensor([0]))
    assert doubts.on_host()["looks"].tolist() == [1, 1, 1]


def test_doubts_go_on_from_their_state(tmp_path):
    outputs, labels = torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 0])
    whole, first = sb.guide.Doubts(2), sb.guide.Doubts(2)
    whole.note(torch.tensor([0, 1]), outputs, labels)
    first.note(torch.tensor([0, 1]), outputs, labels)
    torch.save(first.state_dict(), tmp_path / "state")
    later = sb.guide.Doubts(2)
    later.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for each in (whole, later):
        each.note(torch.tensor([1]), outputs[:1], labels[:1])
    assert sb.guide.audit(later).suspicion.tolist() == sb.guide.audit(whole).suspicion.tolist()
    with pytest.raises(sb.ConfigurationError, match="2 examples, this one has 3"):
        sb.guide.Doubts(3).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("indices", "outputs", "labels", "words"),
    [
        (torch.arange(2), torch.zeros(2), torch.arange(2), "one logit"),
        (torch.arange(2), torch.zeros(2, 3), torch.zeros(2), "one-hot"),
        (torch.arange(3), torch.zeros(2, 3), torch.arange(2), "one index"),
        (torch.arange(3), torch.zeros(2, 3), torch.arange(3), "expected"),
        (torch.arange(2), torch.zeros(2, 3), torch.tensor([0, 3]), "labels up to 3.*from 0 to 2"),
        (torch.arange(2), torch.zeros(2, 3), torch.arange(2) * 1j, "class numbers are needed"),
        (torch.arange(2), torch.zeros(2, 3), np.arange(2), "labels=array.* targets"),
        (torch.arange(2), {"logits": torch.zeros(2, 3)}, torch.arange(2), "outputs=.*logits"),
        (None, torch.zeros(2, 3), torch.arange(2), "indices=None.* selection.indices"),
        (torch.arange(2) + 2, torch.zeros(2, 3), torch.arange(2), "from 2 to 3.* from 0 to 2"),
        (torch.arange(2) - 1, torch.zeros(2, 3), torch.arange(2), "from -1 to 0"),
        (torch.arange(2.0), torch.zeros(2, 3), torch.arange(2), "whole numbers"),
        (torch.arange(2) > 0, torch.zeros(2, 3), torch.arange(2), "whole numbers"),
    ],
)
def test_what_is_no_classification_is_refused(indices, outputs, labels, words):
    doubts = sb.guide.Doubts(3)
    with unhooked(), pytest.raises(sb.ConfigurationError, match=words):
        doubts.note(indices, outputs, labels)
    assert not doubts.on_host()["looks"].any()


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int16])
def test_rows_without_a_label_are_not_noted(kind):
    doubts, plain, outputs = sb.guide.Doubts(4), sb.guide.Doubts(4), torch.eye(4, 3)
    labels = torch.tensor([1, -100, 2, -1], dtype=kind)
    with unhooked():
        doubts.note(torch.arange(4, dtype=kind), outputs, labels)
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


def test_of_losses_alone_nobody_knows_what_is_rare():
    with pytest.raises(sb.ConfigurationError, match="give Doubts"):
        sb.guide.audit(np.array([1.0, 2.0])).likely()


def test_right_examples_of_a_rare_class_are_not_called_wrong():
    random = torch.Generator().manual_seed(0)
    clean = torch.cat([torch.arange(400) % 2, torch.full((12,), 2)])
    centres = torch.tensor([[-4.0, 0.0], [4.0, 0.0], [4.0, 3.5]])
    points = centres[clean] + torch.randn(412, 2, generator=random)
    wrong = (torch.arange(412) % 20 == 7) & (clean < 2)
    labels = torch.where(wrong, 1 - clean, clean)
    labels[[7, 107]] = 2  # wrong ones in the rare class
    model = torch.nn.Linear(2, 3)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    doubts = sb.guide.Doubts(412)
    for _ in range(12):
        for rows in torch.randperm(412, generator=random).split(16):
            outputs = model(points[rows])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(outputs, labels[rows]).backward()
            optimizer.step()
            doubts.note(rows, outputs, labels[rows])
    suspects = sb.guide.audit(doubts)
    said = dict(zip(suspects.indices.tolist(), suspects.likely(412), strict=True))
    of_rare = [said[index] for index in range(400, 412)]
    assert sum(map(bool, of_rare)) >= 3
    assert "wrong" not in of_rare
    found = [said[index] == "wrong" for index in wrong.nonzero().flatten().tolist()]
    assert np.mean(found) > 0.6


def test_what_was_found_is_said_in_a_sentence():
    found = sb.guide.audit(np.array([[0.1, 5.0, 3.0]] * 3))
    said = "2 of 3 labels look wrong"
    assert str(found) == repr(found) == f"{said}, first those of examples 1, 2"
    assert str(sb.guide.audit(np.full((2, 2000), 3.0))).endswith(" 8, 9, …")
    assert str(sb.guide.audit(np.array([0.1, 0.2]))) == "0 of 2 labels look wrong"


def test_the_csv_names_the_most_suspicious_first(tmp_path):
    doubts = sb.guide.Doubts(3)
    outputs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    doubts.note(torch.arange(3), outputs, torch.tensor([0, 0, 1]))
    path = tmp_path / "suspects.csv"
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


def loop(strategy, note):
    """Train a linear net on two blobs that lie apart, a tenth of the labels wrong."""
    random = torch.Generator().manual_seed(1)
    labels = torch.arange(160) % 2
    points = torch.randn(160, 2, generator=random) + 8.0 * labels[:, None] - 4.0
    wrong = torch.arange(160) % 10 == 7
    data = torch.utils.data.TensorDataset(points, torch.where(wrong, 1 - labels, labels))
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(model.weight)  # a net that begins wrong doubts what is right
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_fn = torch.nn.CrossEntropyLoss(reduction="none")
    loader = sb.SelectiveLoader(
        torch.utils.data.DataLoader(data, batch_size=8, shuffle=True),
        model,
        loss_fn,
        strategy,
        with_selection=True,
    )
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
    loader, wrong = loop(sb.recorded_sb(rate=1 / 2), lambda *_: None)
    assert isinstance(loader.ledger, sb.scorers.Ledger)
    assert set(sb.guide.audit(loader.ledger).top(0.1)) == set(np.flatnonzero(wrong))
    loader, _ = loop(sb.random_backprop(rate=1 / 2), lambda *_: None)
    assert loader.ledger is None
