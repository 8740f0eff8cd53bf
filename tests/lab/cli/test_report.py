"""The command `report`: what is drawn from records, and where it cannot be read or written."""

import csv
import re

import numpy as np
import pytest
from fixture_command import run_command
from fixture_lab import EXAMPLES, few_digits
from fixture_runs import fixture_history, fixture_record
from PIL import Image

from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.records.example_history import examples_path, read_examples
from selective_backprop_lab.records.lines import PACK
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.report import figures
from selective_backprop_lab.report.audit import audit_runs

DRAWN = ("table.md", "comparison.png", "report.html")


def test_a_report_is_drawn_from_the_records_alone_and_goes_elsewhere_if_asked_to(copy, untrained):
    before, table = sorted((copy / "out").iterdir()), (copy / "out/table.md").read_bytes()
    for name in DRAWN:
        (copy / "out" / name).unlink()
    outcome = run_command("report out -o '[a]/:b:'", copy)
    assert (outcome.status, outcome.err) == (0, "")
    assert "Open [a]/:b:/report.html" in outcome.out
    assert (copy / "[a]/:b:/table.md").read_bytes() == table
    assert sorted(path.name for path in (copy / "[a]/:b:").iterdir()) == sorted(DRAWN)
    assert sorted((copy / "out").iterdir()) == [path for path in before if path.name not in DRAWN]


def test_what_is_wrong_with_a_record_is_said_and_the_rest_is_reported(copy, undrawn):
    spoiled, cut = sorted((copy / "out").glob("selective-backprop-*.jsonl"))
    spoiled.write_bytes(spoiled.read_bytes().replace(b'"cost"', b'"most"', 1))
    cut.write_bytes(cut.read_bytes()[:-9])
    examples_path(next((copy / "out").glob("traditional-seed0-*.jsonl"))).write_bytes(b"half")
    outcome = run_command("report out", copy)
    assert outcome.status == 0
    first, second = outcome.err.splitlines()
    assert first.startswith(f"warning: out/{spoiled.name}, line 2: cost is None")
    assert "damaged" in second
    assert "selective-backprop, seed 1, is unfinished" in outcome.text
    assert "traditional" in (copy / "out/table.md").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a record, of which no figure is drawn, which takes a second."""
    monkeypatch.setattr(figures, "draw_comparison", lambda runs, path, **_: None)
    fixture_record(tmp_path / "out")
    return tmp_path


ALONE = "run the same with --strategies traditional --budget 5, then report"
WINS = "some", 4.0, r"other gains: .*−5.00 points", ALONE
LOSES = "some", 14.0, r"other loses: .*\+5.00 points", "try your own data (--data module:function)"
OWN = "some:load", *LOSES[1:3], "look at odd labels (audit)"


@pytest.mark.parametrize(("data", "end", "found", "then"), [WINS, LOSES, OWN])
def test_the_first_lines_say_whether_selection_paid_and_the_last_what_to_do_next(
    folder, data, end, found, then
):
    for arm, error in (("traditional", 9.0), ("other", end)):
        for seed in range(3):
            config = {"data": data, "model": "net", "epochs": 5}
            fixture_record(folder / "two", arm, seed, error=error + seed / 10, config=config)
    outcome = run_command("report two", folder)
    assert outcome.status == 0
    said, _, rest = outcome.out.partition("\n\n")
    words = " ".join(said.split())
    assert re.match(f"On {data}, plain training ends at .* {found}", words)
    assert f"\nNext: {then}" in rest[rest.index("Open two/report.html") :]
    assert (folder / "two/table.md").read_text(encoding="utf-8").startswith(words)


@pytest.mark.parametrize(
    ("taken", "place", "said"),
    [
        ("page.html", "page.html", ""),
        ("elsewhere/report.html", "elsewhere", " (report.html)"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_named_and_nothing_is_left(folder, taken, place, said):
    (folder / taken).mkdir(parents=True)
    outcome = run_command(f"report out -o {place}", folder)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: {place} cannot be written{said}: Is a directory. ")
    assert not list(folder.rglob("*.new"))


def test_records_are_packed_and_what_is_trained_where_there_is_a_pack_joins_it(folder):
    before = read_runs(folder / "out")
    packed = run_command("pack out", folder)
    assert (packed.status, packed.err) == (0, "")
    assert "1 record" in packed.out
    assert [path.name for path in (folder / "out").iterdir()] == [PACK]
    assert read_runs(folder / "out") == before
    train = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"
    assert run_command(train, folder).status == 0
    assert not list((folder / "out").glob("*.jsonl"))
    assert len(read_runs(folder / "out")) == 2
    assert "recorded already" in run_command(train, folder).text


def record(folder, arm="traditional", seed=0, *, history=None, finished=True, **config):
    config = {"data": "no-such-data", "model": "net", "epochs": 1} | config
    options = {"history": history, "finished": finished, "command": "train, as typed"}
    return fixture_record(folder, arm, seed, config=config, **options)


def doubted(doubt, looks=3, **changes):
    return fixture_history(
        doubt=np.array(doubt, np.float32), looks=np.full(12, looks, np.int32), **changes
    )


@pytest.fixture
def noisy(tmp_path):
    """A run on digits, a fifth of whose labels were flipped, all of which it doubted."""
    data = Composition(noise=0.2)(few_digits())
    wrong = data.flipped.numpy()
    history = fixture_history(
        EXAMPLES,
        class_name=data.class_names,
        label=data.train_labels.numpy(),
        label_clean=data.train_clean_labels.numpy(),
        doubt=np.where(wrong, 0.9, np.linspace(-0.9, 0.8, EXAMPLES)).astype(np.float32),
        looks=np.full(EXAMPLES, 9, np.int32),
        loss_last=np.linspace(0.0, 1.0, EXAMPLES, dtype=np.float32),
    )
    config = {"data": "digits", "limit": EXAMPLES, "noise": 0.2}
    return record(tmp_path / "out", history=history, **config)


def test_a_table_has_what_is_known_of_all_examples_in_the_data_set_s_order(noisy):
    outcome = run_command("audit out --top 1 --table out/all.csv", noisy.parents[1])
    assert outcome.status == 0
    with (noisy.parent / "all.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == [*range(EXAMPLES)]
    data = Composition(noise=0.2)(few_digits())
    assert [int(row["given_label"]) for row in rows] == data.train_labels.tolist()
    suspected = np.array([row["is_label_issue"] == "True" for row in rows])
    assert suspected[data.flipped.numpy()].all()
    assert len({row["mean_loss"] for row in rows}) > 1
    outcome = run_command("audit out --table out/all.txt", noisy.parents[1])
    assert (outcome.status, ".csv or .parquet" in outcome.err) == (2, True)


def test_an_audit_lists_the_most_suspicious_with_pictures(noisy):
    folder = noisy.parent / "audit"
    outcome = run_command("audit out --top 40", noisy.parents[1])
    assert outcome.status == 0
    with (folder / "suspects.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, 41)]
    page = (folder / "suspects.html").read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width' in page
    images = read_examples(noisy).portrait_image[..., 0]
    for row in rows:
        assert f'src="{row["picture"]}"' in page
        with Image.open(folder / row["picture"]) as picture:
            assert (np.asarray(picture) == images[int(row["index"])]).all()


def test_what_is_rare_is_told_from_what_is_wrong_in_terminal_list_and_page(tmp_path):
    label = np.repeat([0, 1, 2], [16, 3, 1])
    doubt = np.full(20, -0.8, np.float32)
    doubt[15:] = [0.5, -0.5, 0.6, 0.9, 0.9]  # nothing of class 2 is learned
    changes = {"label": label, "doubt": doubt, "looks": np.full(20, 30, np.int32)}
    record(tmp_path, history=fixture_history(20, **changes))
    outcome = run_command("audit . --top 5", tmp_path)
    with (tmp_path / "audit" / "suspects.csv").open(encoding="utf-8", newline="") as file:
        said = {int(row["index"]): row["likely"] for row in csv.DictReader(file)}
    assert said == {
        18: "wrong",
        19: "unknown: 0 of 1 learned",
        17: "rare class: 1 of 3 learned",
        15: "hard",
        16: "",
    }
    surest = "the surest first: 1 likely wrong, 1 of classes that the model has not learned at all"
    assert f"{surest}, 1 hard, 1 of a rare class. If many labels are wrong" in outcome.out
    page = (tmp_path / "audit" / "suspects.html").read_text(encoding="utf-8")
    rows = [line for line in outcome.out.splitlines() if line[:4].strip()[:1].isdigit()]
    for words in filter(None, said.values()):
        assert f", {words}</small>" in page
        first = words.partition(" of ")[0]  # which a narrow terminal does not break
        assert sum(first in row for row in rows) == 1


def test_runs_of_the_same_data_are_audited_together_by_all_their_looks(tmp_path):
    one, other = np.linspace(-1, 1, 12), np.linspace(1, -1, 12)
    sure = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    classes = np.arange(12) % 3
    record(tmp_path, "low-k", history=doubted(one, prediction=classes, confidence=sure))
    later = doubted(other, 6, prediction=(classes + 1) % 3, confidence=sure[::-1])
    record(tmp_path, "top-k", history=later)
    suspects = audit_runs([tmp_path]).suspects
    order = suspects.indices
    mean = (3 * one + 6 * other) / 9
    np.testing.assert_allclose(suspects.suspicion, ((9 * mean - 1) / 10)[order], atol=1e-6)
    surer = np.where(np.arange(12) < 6, (classes + 1) % 3, classes)
    assert suspects.predictions.tolist() == surer[order].tolist()


def test_what_cannot_be_audited_is_said_and_the_rest_is_shown(tmp_path):
    good = record(tmp_path, "traditional", history=doubted(np.linspace(-1, 1, 12)))
    record(tmp_path, "traditional", 1, history=doubted(np.linspace(-1, 1, 12)))
    bare = record(tmp_path, "low-k")
    unfinished = record(tmp_path, "top-k", finished=False)
    torn = record(tmp_path, "infobatch", history=fixture_history())
    examples_path(torn).write_bytes(examples_path(torn).read_bytes()[:200])
    foreign = record(tmp_path, "el2n", history=fixture_history(8), data="other")
    relabelled = record(tmp_path, "grand", history=fixture_history(label=np.arange(12) // 4))
    outcome = run_command(f"audit {tmp_path}", tmp_path)
    assert outcome.status == 0
    for words in (
        f"{bare.name}: nothing is known of its examples",
        f"{unfinished.name}: nothing is known of its examples",
        "It was made by: train, as typed",
        f"{examples_path(torn)}: damaged",
        foreign.name,
        f"{relabelled.name}: its examples have other labels than in {good.name}",
    ):
        assert words in outcome.text
    assert "12 training examples" in outcome.text
    assert "2 runs (traditional) believed" in outcome.text
    assert (tmp_path / "audit" / "suspects.csv").exists()


def test_a_folder_without_records_of_examples_is_refused_with_what_to_do(tmp_path):
    record(tmp_path)
    outcome = run_command(f"audit {tmp_path}", tmp_path)
    assert outcome.status == 2
    assert "no run has examples that can be audited" in outcome.text
    assert "--again" in outcome.text
    assert run_command("audit nowhere", tmp_path).status == 2


def test_the_list_says_how_lasting_the_loss_was_and_how_often_each_was_trained_on(tmp_path):
    counts = np.arange(12, dtype=np.int32)
    losses = np.linspace(0.0, 2.2, 12, dtype=np.float32)
    unseen = np.where(counts == 11, np.nan, losses + 1)
    for number, means in enumerate((losses, unseen)):
        history = fixture_history(selected=counts * (1 + number), loss_mean=means)
        record(tmp_path / "out", history=history, seed=number)
    assert run_command("audit out --top 12 --out listed", tmp_path).status == 0
    with (tmp_path / "listed" / "suspects.csv").open(encoding="utf-8", newline="") as file:
        rows = {int(row["index"]): row for row in csv.DictReader(file)}
    assert [int(rows[index]["times_trained"]) for index in range(12)] == [3 * i for i in range(12)]
    assert float(rows[5]["mean_loss"]) == pytest.approx(1.5, abs=1e-4)
    assert float(rows[11]["mean_loss"]) == pytest.approx(2.2, abs=1e-4)


def test_examples_that_are_no_images_are_listed_alone(tmp_path):
    neither = {"portrait_image": None, "portrait_index": np.zeros(0, np.int64)}
    record(tmp_path, history=fixture_history(**neither))
    outcome = run_command(f"audit {tmp_path} --top 3", tmp_path)
    assert outcome.status == 0
    assert sorted(file.name for file in (tmp_path / "audit").iterdir()) == ["suspects.csv"]
