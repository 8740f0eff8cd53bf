"""Which examples look mislabelled, against a plain twin; and tables of examples for other tools."""

import csv
import math
import re
import sys
from pathlib import Path

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
        (None, "remembers no examples: note Doubts.* such as sb.auto"),
        (np.array(["a text", "another"]), "the mean loss over its tokens"),
        (np.array([1.0, None]), "object holds no losses"),
        (torch.tensor([1j]), "complex64 holds no losses"),
        (None, "NoneType cannot"),
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
    with pytest.raises(sb.ConfigurationError, match=r"shape \(3\)"):
        sb.guide.Doubts(3).load_state_dict(first.state_dict())


ROWS, ZEROS = torch.arange(2), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("indices", "outputs", "labels", "words"),
    [
        (ROWS, torch.zeros(2), ROWS, "one logit"),
        (ROWS, ZEROS, torch.zeros(2), "one-hot"),
        (torch.arange(3), ZEROS, ROWS, "one index"),
        (torch.arange(3), ZEROS, torch.arange(3), "expected"),
        (ROWS, ZEROS, torch.tensor([0, 3]), "labels up to 3.*from 0 to 2"),
        (ROWS, ZEROS, ROWS * 1j, "class numbers are needed"),
        (ROWS, ZEROS, np.arange(2), "labels=array.* targets"),
        (ROWS, {"logits": ZEROS}, ROWS, "outputs=.*logits"),
        (None, ZEROS, ROWS, "indices=None.* selection.indices"),
        (ROWS + 2, ZEROS, ROWS, "from 2 to 3.* from 0 to 2"),
        (ROWS - 1, ZEROS, ROWS, "from -1 to 0"),
        (torch.arange(2.0), ZEROS, ROWS, "whole numbers"),
        (ROWS > 0, ZEROS, ROWS, "whole numbers"),
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
    assert re.fullmatch("2 of 3 labels look wrong .*, first those of examples 1, 2", str(found))
    assert str(sb.guide.audit(np.full((2, 2000), 3.0))).endswith(" 8, 9, …")
    assert str(sb.guide.audit(np.array([0.1, 0.2]))) == "0 of 2 labels look wrong to the model"
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


PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
LABELS = torch.tensor([0, 1, 1, 0, 2])
LOGITS = torch.tensor([[9.0, 0, 0], [0, 9, 0], [9, 0, 0], [0, 0, 1]])


@pytest.fixture
def doubts():
    """Of five examples the third looks wrong for sure, the fourth a little, one was never seen."""
    noted = sb.guide.Doubts(5)
    noted.note(torch.arange(4), LOGITS, LABELS[:4])
    return noted


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_doubts_become_the_columns_of_cleanlab_in_the_data_set_s_order(doubts):
    table = sb.guide.example_table(doubts)
    assert table["index"].tolist() == [0, 1, 2, 3, 4]
    assert table["given_label"].tolist() == [0, 1, 1, 0, -1]
    assert table["predicted_label"].tolist() == [0, 1, 0, 2, -1]
    assert table["looks"].tolist() == [1, 1, 1, 1, 0]
    doubt = np.tanh([-4.5, -4.5, 4.5, 0.5])
    quality = 0.5 - (doubt - 1.0) / 4.0  # with the look that is sure of the label
    np.testing.assert_allclose(table["label_quality"][:4], quality, rtol=1e-5)
    np.testing.assert_allclose(table["suspicion"][:4], (doubt - 1.0) / 2.0, atol=1e-6)
    assert np.isnan([table[name][4] for name in ("label_quality", "suspicion", "confidence")]).all()
    assert not table["is_label_issue"].any()
    for _ in range(2):
        doubts.note(torch.arange(4), LOGITS, LABELS[:4])
    assert sb.guide.example_table(doubts)["is_label_issue"].tolist() == [0, 0, 1, 1, 0]
    suspects = sb.guide.audit(doubts)
    for name, column in sb.guide.example_table(suspects).items():
        np.testing.assert_array_equal(column, sb.guide.example_table(doubts)[name])


def test_a_ledger_shows_last_losses_scores_classes_and_counts():
    ledger = sb.scorers.Ledger(4, depth=2)
    assert list(sb.guide.example_table(ledger)) == ["index", "times_trained"]
    for epoch, losses in enumerate(([0.5, 0.25], [2.0, 1.0])):
        ledger.hand_out(torch.tensor([0, 2]))
        ledger.record(torch.tensor([0, 2]), torch.tensor(losses), epoch)
    ledger.scored.file(torch.tensor([3]), torch.tensor([7.0]), 5)
    ledger.classify(torch.tensor([2]), torch.tensor([9.0]))
    table = {name: column.tolist() for name, column in sb.guide.example_table(ledger).items()}
    nan = pytest.approx(np.nan, nan_ok=True)
    assert table == {
        "index": [0, 1, 2, 3],
        "loss": [2.0, nan, 1.0, nan],
        "loss_epoch": [1, -1, 1, -1],
        "score": [nan, nan, nan, 7.0],
        "score_epoch": [-1, -1, -1, 5],
        "label": [-1, -1, 9, -1],
        "times_trained": [2, 0, 2, 0],
    }


def test_what_is_written_as_csv_is_read_again(doubts, tmp_path):
    table = {**sb.guide.example_table(doubts), "file": ["a", "b", "c", "d", 'e, "f"']}
    sb.guide.write_table(table, tmp_path / "all.csv")
    rows = read(tmp_path / "all.csv")
    assert list(rows[0]) == list(table)
    assert [row["file"] for row in rows] == table["file"]
    assert [row["label_quality"] == "" for row in rows] == [False] * 4 + [True]
    found = [float(row["label_quality"]) for row in rows[:4]]
    np.testing.assert_allclose(found, table["label_quality"][:4], rtol=1e-6)
    assert [row["is_label_issue"] for row in rows] == ["False"] * 5


FORMULAS = ["=1+2", "+3 4", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", Path("-x")]
PLAIN = ["a=1", "'=1", "", "-0.5", "+1e-3", "-inf", -2, -0.25, True, None]


@pytest.mark.parametrize("given", [FORMULAS, PLAIN])
def test_no_text_begins_as_a_formula_for_a_spreadsheet_and_numbers_stay_numbers(
    doubts, tmp_path, given
):
    cells = [str(each) for each in given]
    expected = [f"'{cell}" for cell in cells] if given is FORMULAS else cells
    sb.guide.write_table({"=name": cells, "-2": range(len(cells))}, tmp_path / "all.csv")
    rows = read(tmp_path / "all.csv")
    assert list(rows[0]) == ["'=name", "-2"]
    assert [row["'=name"] for row in rows] == expected
    suspects = sb.guide.audit(np.linspace(1.0, 2.0, len(given)))
    suspects.write_csv(tmp_path / "suspects.csv", extra={"@more": given})
    expected = [cell.replace("None", "") for cell in expected]
    assert [row["'@more"] for row in read(tmp_path / "suspects.csv")] == expected
    sb.guide.audit(doubts).write_csv(tmp_path / "all.csv", class_names=["=1", "@2", "-3"])
    assert {row["label"] for row in read(tmp_path / "all.csv")} == {"'=1", "'@2"}


def test_parquet_keeps_types_and_values(doubts, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = sb.guide.example_table(doubts)
    sb.guide.write_table(table, tmp_path / "all.parquet")
    found = pandas.read_parquet(tmp_path / "all.parquet")
    for name, column in table.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name].to_numpy(), column)


def test_what_cannot_be_written_is_refused_by_name_or_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for table, name, said in (
        ({"a": np.arange(2)}, "all.parquet", r"pip install pandas pyarrow.*\.csv"),
        ({"a": np.arange(2), "b": np.arange(3)}, "all.csv", r"'a': 2, 'b': 3"),
        ({"a": np.arange(2)}, "all.xlsx", r"all\.xlsx.*\.csv or \.parquet"),
    ):
        with pytest.raises(sb.ConfigurationError, match=said):
            sb.guide.write_table(table, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_suspects_of_losses_alone_have_no_labels_and_what_is_no_table_is_refused():
    table = sb.guide.example_table(sb.guide.audit(torch.tensor([3.0, 0.1])))
    assert list(table) == ["index", "suspicion", "label_quality", "is_label_issue", "looks"]
    for wrong in (None, [0.5], np.zeros((2, 2, 2))):
        with unhooked(), pytest.raises(sb.ConfigurationError, match=r"\[look, example\]"):
            sb.guide.example_table(wrong)


def test_the_page_writes_a_table_and_losses_of_any_loop_are_audited(doubts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    part = PAGE.read_text(encoding="utf-8").split("\n## For other tools")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)
    exec(block, {"sb": sb, "doubts": doubts, "files": list("abcde")})
    assert len(read(tmp_path / "examples.csv")) == 5
    seen = torch.linspace(2.0, 0.1, 36).view(3, 12)  # [look, example]
    seen[1, 0] = torch.nan
    sb.guide.write_table(sb.guide.example_table(seen), "losses.csv")
    rows = read(tmp_path / "losses.csv")
    assert list(rows[0]) == ["index", "loss_0", "loss_1", "loss_2"]
    assert [float(row["loss_2"]) for row in rows] == pytest.approx(seen[2].tolist())
    assert len(sb.guide.audit(seen)) == 12
