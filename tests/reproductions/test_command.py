"""What is typed reaches the papers and the study, and what cannot be done ends with a message."""

import math
import signal
from pathlib import Path

import pytest
from fixture_command import run_command
from fixture_lab import at_update
from fixture_papers import fixture_scale, fixture_setting

from reproductions import command, papers
from reproductions.auto.protocol import STAGES
from reproductions.papers import FIGURES
from reproductions.streams import STREAMS
from selective_backprop_lab.records.schema import read_runs


def reproduce(line, folder):
    """Type a line in a folder, and return the status and what was printed."""
    outcome = run_command(line, folder, main=lambda: command.app(prog_name=command.PROGRAM))
    return outcome.status, outcome.text


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Type a line, and return what was asked of whom."""
    seen = []
    known = {
        papers: ("list_figures", "reproduce"),
        command: ("run_study", "run_streams", "run_recovery"),
    }
    for place, name in ((place, name) for place, names in known.items() for name in names):

        def called(screen, *asked, name=name, **part):
            seen.append((name, *asked, *part.values()))

        monkeypatch.setattr(place, name, called)

    def run(line):
        seen.clear()
        status, said = reproduce(line, tmp_path)
        assert status == 0, said
        return [*seen]

    return run


def test_what_is_named_is_redone_at_the_small_scale_with_three_seeds(typed, tmp_path):
    ((what, figures, order),) = typed(f"fig-7 table-1 --out {tmp_path}")
    assert (what, [each.name for each in figures]) == ("reproduce", ["fig-7", "table-1"])
    assert (order.scale.name, order.seeds, order.threads, order.root) == ("small", 3, 1, None)
    assert order.folder == tmp_path / "runs" / "small"
    assert order.command == f"scripts/reproduce fig-7 table-1 --out {tmp_path}"


def test_every_option_reaches_the_order_wherever_it_stands(typed):
    options = "--seeds 1 --jobs 3 --threads 2 --device cpu --root here --checkpoint-every 12.5"
    options += " --hours 2"
    for line in (f"all --scale full {options}", f"--scale full {options} all"):
        ((_, figures, order),) = typed(line)
        lacking = FIGURES.keys() - {figure.name for figure in figures}
        assert lacking == {"tuned", "tuning"}
        assert (order.scale.name, order.scale["main"][0].hours) == ("full", 2.0)
        assert (order.seeds, order.jobs, order.threads, order.device) == (1, 3, 2, "cpu")
        assert (str(order.root), order.every, order.trains) == ("here", 12.5, True)
    assert typed("all --checkpoint-every never")[0][2].every == math.inf
    assert [typed(f"fig-7 --scale gpu-50{jobs}")[0][2].jobs for jobs in ("", " --jobs 2")] == [1, 2]


def test_a_part_can_be_asked_for_with_other_epochs(typed):
    line = "table-1 fig-5 --scale small --arms sb,Traditional --only cifar10 --epochs 3"
    ((_, figures, order),) = typed(line)
    assert (order.scale.arms, order.scale.only) == (("sb", "traditional"), ("cifar10",))
    plans = order.jobs_of(figures)
    assert {plan.arm for plan in plans} == {"selective-backprop", "traditional"}
    assert {(plan.recipe.data, plan.length.value) for plan in plans} == {("cifar10", 3.0)}


def test_the_stages_of_the_study_have_seeds_and_folders_of_their_own(typed, tmp_path):
    confirm, develop = typed("study-confirm study-develop")
    assert (confirm[1], develop[1]) == (STAGES["confirm"], STAGES["develop"])
    assert {(what, order.seeds) for what, _, order, *_ in (confirm, develop)} == {("run_study", 5)}
    folders = [str(order.out) for _, _, order, *_ in (confirm, develop)]
    assert folders == ["runs/study/confirm", "runs/study/develop"]
    assert confirm[3:] == ([], [])
    *stages, recovery = typed("study")
    assert [stage for _, stage, *_ in stages] == [*STAGES.values(), STREAMS]
    assert recovery[0] == "run_recovery"
    line = f"study-confirm --seeds 2 --jobs 3 --threads 2 --device cpu --out {tmp_path}"
    ((_, _, order, *part),) = typed(f"{line} --from-records --only table,clicks --arms auto")
    assert (order.seeds, order.jobs, order.threads, order.device) == (2, 3, 2, "cpu")
    assert (order.out, order.trains) == (tmp_path / "confirm", False)
    assert part == [["table", "clicks"], ["auto"]]


def test_records_of_the_repository_are_the_default_where_nothing_is_trained(
    typed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ((_, _, order, *_),) = typed("study-confirm --from-records")
    assert str(order.out) == "records/study/confirm"
    Path("records/study/easy").mkdir(parents=True)
    assert [str(call[2].out) for call in typed("study --from-records")] == ["records/study/easy"]
    # To draw, no device need be here.
    ((what, figures, order),) = typed("list --scale cifar10 --device cuda:99 --from-records")
    assert (str(order.out), order.device) == ("records/papers/cifar10", "cuda:99")
    assert (what, len(figures)) == ("list_figures", 6)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fig-99", "there is no figure, table or stage 'fig-99'. Did you mean fig-9"),
        ("fig-1 --device tpu", "--device tpu"),
        ("fig-1 --root /no/such/folder", "/no/such/folder is not a folder"),
        ("fig-7 --scale cifar", "there is no scale 'cifar'. Did you mean cifar10"),
        ("fig-7 --only cifar", "Did you mean cifar10"),
        ("study-confirm --epochs 3", "--epochs is of figures and tables"),
        ("study-recovery --arms auto", "takes no part of itself"),
        ("fig-7 --live", "--live is of headline"),
    ],
)
def test_what_cannot_be_done_ends_with_a_message_and_a_status(line, said, tmp_path):
    status, text = reproduce(f"{line} --out {tmp_path / 'out'}", tmp_path)
    assert status == 2
    assert said in text
    assert not list(tmp_path.iterdir())


def test_what_plain_training_shows_is_printed_as_far_as_it_is_on_record(tmp_path):
    status, said = reproduce("study-recovery --from-records --out there", tmp_path)
    assert (status, said[:19]) == (0, "develop/digits None")


@pytest.mark.usefixtures("signals_as_usual")
def test_what_was_ended_goes_on_when_it_is_typed_again(tmp_path, monkeypatch):
    scale = fixture_scale(fixture_setting(model="tiny_cnn"))
    monkeypatch.setattr(command, "SCALES", {"small": scale})
    at_update(monkeypatch, 3, lambda: signal.raise_signal(signal.SIGTERM))
    line = "fig-1 --seeds 1 --jobs 1 --out out"
    assert reproduce(line, tmp_path)[0] == 143
    assert reproduce(line, tmp_path)[0] == 0
    runs = read_runs(tmp_path / "out" / "runs" / scale.name)
    assert sorted(len(run.end["machines"]) for run in runs)[-2:] == [1, 2]
