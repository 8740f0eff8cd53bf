"""What one machine has trained goes on on another."""

import io
import signal
import zipfile

import pytest
from fixture_lab import few_digits, fixture_plan
from fixture_papers import Screen
from fixture_sessions import train_session

import selective_backprop as sb
from reproductions import carrying
from reproductions.carrying import carried, take_back, write_pieces
from selective_backprop_lab.records.schema import pack_finished, read_runs

DONE, BEGUN = fixture_plan("traditional", epochs=2), fixture_plan("low-k", epochs=6, evaluations=3)


@pytest.fixture
def trained(tmp_path):
    """A folder with a finished run, and one that was interrupted in its second half."""
    folder = tmp_path / "here" / "gpu-50"
    train_session(DONE, few_digits(), folder)
    train_session(BEGUN, few_digits(), folder, updates=5)
    return folder


@pytest.fixture
def there(tmp_path):
    return tmp_path / "there" / "gpu-50"


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_records_and_checkpoints_arrive_as_they_were_and_the_run_goes_on(trained, there, tmp_path):
    write_pieces(trained, tmp_path, Screen())
    take_back(tmp_path, there, Screen())
    assert files(there) == files(trained)
    run = train_session(BEGUN, few_digits(), there)
    (record,) = [each for each in read_runs(there) if each.header.arm == "low-k"]
    assert record.finished
    assert len(record.end["machines"]) == 2
    assert run.finished


def test_what_has_come_further_stays_and_what_is_behind_is_replaced(trained, there, tmp_path):
    pack_finished(trained)  # packed records are carried, too
    write_pieces(trained, tmp_path, Screen())
    take_back(tmp_path, there, Screen())
    assert {run.name for run in read_runs(there)} == {run.name for run in read_runs(trained)}
    train_session(BEGUN, few_digits(), there)
    further = files(there)
    take_back(tmp_path, there, Screen())
    assert files(there) == further
    write_pieces(there, tmp_path, Screen())
    assert len(list(tmp_path.glob("*.piece"))) == 1  # the older one is gone
    take_back(tmp_path, trained, Screen())
    assert all(run.finished for run in read_runs(trained))


def test_there_are_at_most_so_many_pieces_and_what_does_not_fit_is_named(
    trained, there, tmp_path, monkeypatch
):
    monkeypatch.setattr(carrying, "PIECE", 500)
    screen = Screen()
    write_pieces(trained, tmp_path, screen)
    (checkpoint,) = trained.glob("*.checkpoint")
    assert f"left out, since they do not fit: {checkpoint.name}" in " ".join(screen.text.split())
    pieces = sorted(tmp_path.glob("*.piece"))
    assert 1 < len(pieces) <= 8
    assert max(path.stat().st_size for path in pieces) == 500
    take_back(tmp_path, there, Screen())
    assert [run.finished for run in read_runs(there)] == [True]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda piece: piece.unlink(), "of the 3 pieces gpu-50-.*, 2 is missing"),
        (lambda piece: piece.write_bytes(piece.read_bytes()[:-1]), "are damaged"),
        (lambda piece: piece.rename(piece.with_name("mine.piece")), "mine.piece: no piece"),
    ],
)
def test_damaged_missing_and_foreign_pieces_are_refused_and_nothing_is_written(
    harm, said, trained, there, tmp_path, monkeypatch
):
    monkeypatch.setattr(carrying, "PIECE", 20_000)
    monkeypatch.setattr(carrying, "PIECES", 3)
    write_pieces(trained, tmp_path, Screen())
    (piece,) = tmp_path.glob("*-2-of-*.piece")
    harm(piece)
    with pytest.raises(sb.RecordError, match=said):
        take_back(tmp_path, there, Screen())
    assert not there.exists() or not list(there.iterdir())


@pytest.mark.parametrize("name", ["../out.jsonl", "a.jsonl", "b.txt"])
def test_a_piece_that_holds_something_else_is_refused(name, there, tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"else")
    digest = carrying._digest(file.getvalue())
    (tmp_path / f"gpu-50-{digest}-1-of-1.piece").write_bytes(file.getvalue())
    with pytest.raises(sb.RecordError, match="does not hold records"):
        take_back(tmp_path, there, Screen())
    assert not list(there.iterdir())
    assert not list(tmp_path.rglob("*.jsonl"))


def test_pieces_of_another_scale_are_left_alone(trained, there, tmp_path):
    write_pieces(trained, tmp_path, Screen())
    take_back(tmp_path, there.with_name("gpu"), Screen())
    assert not there.with_name("gpu").exists()


@pytest.mark.usefixtures("signals_as_usual")
def test_pieces_are_written_whatever_ends_the_training_and_a_signal_waits(
    trained, tmp_path, monkeypatch
):
    place, write = tmp_path / "pieces", carrying.write_pieces
    for leaving in (SystemExit(143), KeyboardInterrupt(), sb.LossError("it diverged")):
        with pytest.raises(type(leaving)), carried(place, trained, Screen()):
            raise leaving
        (piece,) = place.iterdir()
        piece.unlink()

    def signalled(*given):
        signal.raise_signal(signal.SIGTERM)
        write(*given)

    monkeypatch.setattr(carrying, "write_pieces", signalled)
    with pytest.raises(SystemExit), carried(place, trained, Screen()):
        pass
    assert list(place.iterdir())
