"""Tables as published: what is standardised, what is missing, and what may be tested on."""

import gzip

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.data import tables
from selective_backprop_lab.data.datasets import load
from selective_backprop_lab.data.splits import held_out, redrawn

SHUTTLE = "shuttle/shuttle."


def connection(seconds, word, kind):
    return ",".join([str(seconds), "tcp", word, "SF", *["0"] * 37, kind])


def write_kdd(folder, rows):
    folder.mkdir(exist_ok=True)
    text = "".join(connection(*row) + "\n" for row in rows)
    (folder / "kddcup.data_10_percent.gz").write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def kdd(monkeypatch, tmp_path):
    """Return the splits of six copies of one connection and of eight that come once."""
    rows = [(0, "http", "smurf.")] * 6 + [(each, "ftp", "normal.") for each in range(1, 9)]
    monkeypatch.setattr(tables, "_KDD", {"kddcup.data_10_percent.gz": len(rows)})
    monkeypatch.setattr(tables, "_KDD_TESTED", 3)
    write_kdd(tmp_path / "kdd99", rows)
    return tables.read_kdd99(tmp_path)


def test_only_connections_that_come_once_are_tested_on_however_data_are_drawn(kdd):
    assert kdd.class_names == ("normal", "smurf")
    for seed in range(5):
        drawn = redrawn(kdd, seed)
        assert (len(drawn.train_labels), drawn.test_labels.tolist()) == (11, [0, 0, 0])
        assert drawn.train_labels.bincount().tolist() == [5, 6]
        held = held_out(drawn)
        assert (held.test_labels.tolist(), len(held.train_labels)) == ([0, 0], 9)
        everything = torch.cat([held.train_inputs, held.test_inputs, drawn.test_inputs])
        assert everything[:, 0].unique().numel() == 9  # nothing is lost, and nothing comes twice


def test_numbers_are_logarithms_with_mean_0_and_words_are_features(kdd):
    inputs = torch.cat([kdd.train_inputs, kdd.test_inputs]).double()
    assert inputs.shape == (14, 38 + 4)
    # Columns that never change are 0, and nothing is further than eight deviations away.
    assert torch.allclose(inputs.mean(0), torch.zeros(42, dtype=torch.float64), atol=1e-6)
    seconds = torch.cat([torch.zeros(6), torch.arange(1, 9)]).double().log1p()
    wanted = (seconds - seconds.mean()) / seconds.std(correction=0)
    assert torch.allclose(inputs[:, 0].sort().values, wanted.sort().values, atol=1e-5)


def test_shuttles_features_are_its_numbers_and_their_signed_logarithms(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "_SHUTTLE", {"shuttle.trn": 2, "shuttle.tst": 1})
    (tmp_path / "shuttle").mkdir()
    (tmp_path / f"{SHUTTLE}trn").write_text("50 -21 77 0 28 0 27 48 22 2\n1 2 3 4 5 6 7 8 9 7\n")
    (tmp_path / f"{SHUTTLE}tst").write_text("55 0 92 0 0 26 36 92 56 1\n")
    found = tables.read_shuttle(tmp_path)
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == ([1, 6], [0])
    row = found.train_inputs[0]
    assert torch.allclose(row[9:], row[:9].sign() * row[:9].abs().log1p())
    (tmp_path / f"{SHUTTLE}tst").write_text("55 0 92 0 0 26 36 92 56 8\n")
    with pytest.raises(sb.DataError, match=r"shuttle\.tst has a class that is none of 1 to 7"):
        load("shuttle", root=tmp_path)


def test_tables_that_are_not_the_publishers_are_refused(kdd, tmp_path):
    for content, why in (
        (gzip.compress(b"1,2\n"), "has 1 rows, not 14"),
        (gzip.compress(b""), "has 0 rows, not 14"),
        (gzip.compress(b"1,2\n" * 99)[:-9], "cannot be read as 42 columns"),
    ):
        (tmp_path / "kdd99" / "kddcup.data_10_percent.gz").write_bytes(content)
        with pytest.raises(sb.DataError, match=f"kddcup.data_10_percent.gz {why}"):
            load("kdd99", root=tmp_path)
    write_kdd(tmp_path / "kdd99", [("many", "http", "smurf.")] * 14)
    with pytest.raises(sb.DataError, match="a word where a number belongs"):
        load("kdd99", root=tmp_path)


ROW = (
    "{age}, {work}, 7, Bachelors, 13, Divorced, Sales, Husband, White, Male, 9, 0, 40, Peru, {pay}"
)


def write_adult(folder, *, end="."):
    def rows(*people, end=""):
        return "".join(
            ROW.format(age=age, work=work, pay=pay) + end + "\n" for age, work, pay in people
        )

    train = rows((20, "Private", "<=50K"), (30, "?", ">50K"), (40, "Private", ">50K"))
    (folder / "adult.data").write_text(train + "\n")
    test = rows((50, "Never-worked", ">50K"), end=end)
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + test)


@pytest.fixture
def few_adults(monkeypatch):
    monkeypatch.setattr(tables, "_ADULT", {"adult.data": 3, "adult.test": 1})


@pytest.mark.filterwarnings("ignore:invalid value")  # of columns that never change
def test_numbers_are_standardised_and_each_category_is_a_feature(few_adults, tmp_path):
    (tmp_path / "adult").mkdir()
    write_adult(tmp_path / "adult")
    data = load("adult", root=tmp_path)
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([0, 1, 1], [1])
    age = torch.cat([data.train_inputs, data.test_inputs])[:, 0]
    assert torch.allclose(age, torch.tensor([-1.0, 0.0, 1.0, 2.0]) * 1.5**0.5)
    work = data.train_inputs[:, 6:9], data.test_inputs[:, 6:9]  # ?, Never-worked, Private
    assert work[0].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert work[1].tolist() == [[0, 1, 0]]


def test_files_that_are_not_the_publishers_are_refused(few_adults, tmp_path):
    with pytest.raises(sb.DataError, match=r"adult\.data or adult\.test.*archive\.ics\.uci"):
        load("adult", root=tmp_path)
    write_adult(tmp_path, end="?")
    with pytest.raises(sb.DataError, match=r"adult\.test has 0 labelled rows, not 1"):
        load("adult", root=tmp_path)
    (tmp_path / "adult.data").write_text("<html>\n")
    with pytest.raises(sb.DataError, match=r"adult\.data has 1 rows, not 3"):
        load("adult", root=tmp_path)
