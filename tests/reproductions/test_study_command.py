"""The study is trained once, goes on where it was, and writes a page from what is on record."""

from dataclasses import replace

import pytest
from fixture_papers import Screen

import selective_backprop as sb
from reproductions.auto_study import study_command
from reproductions.auto_study.command import Inquiry, run_study
from reproductions.auto_study.outcomes import Outcome
from reproductions.auto_study.protocol import ARMS, OURS, STAGES, Ground, Stage, StageName
from reproductions.jiang2019 import needs
from selective_backprop.lab.cli import main as cli
from selective_backprop.lab.data.augment import Augmentation
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.schema import read_runs

# So few digits are scored by so young a net that the halves may lack a class.
pytestmark = pytest.mark.filterwarnings("ignore")
TINY = Stage(
    "Tiny",
    (
        Ground(
            "Few digits",
            Recipe(
                "digits",
                "fixture_lab:small_net",
                epochs=2,
                batch_size=32,
                augmentation=Augmentation(shift=1),
            ),
            192,
            (2.0, 4.0),
        ),
    ),
    first_seed=7,
)
RUNS = 2 * (2 * len(ARMS) + 1)


def inquiry(out, **changes):
    fields = {
        "stage": TINY,
        "seeds": 2,
        "device": "cpu",
        "threads": 1,
        "jobs": 1,
        "root": None,
        "out": out,
        "command": "selective-backprop study",
    }
    return Inquiry(**fields | changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out, screen = tmp_path_factory.mktemp("study"), Screen()
    run_study(screen, inquiry(out))
    return out, screen.text


def test_every_strategy_is_trained_at_each_budget_with_the_stages_own_seeds(made):
    out, said = made
    runs = read_runs(out / "runs")
    assert len(runs) == RUNS
    assert {run.header.seed for run in runs} == {7, 8}
    assert {run.header.arm for run in runs} == set(ARMS)
    assert {run.header.config["budget"] for run in runs} == {2.0, 2.5, 4.0}
    assert all(run.finished for run in runs)
    assert all(
        run.points[-1].cost == pytest.approx(run.header.config["budget"], 0.1) for run in runs
    )
    assert f"{RUNS} runs: 0 on record, {RUNS} to do" in said


def test_the_page_has_a_figure_a_row_for_each_strategy_and_every_goal(made):
    out, said = made
    page = (out / "index.md").read_text(encoding="utf-8")
    assert page.startswith("# Tiny\n")
    assert "](few-digits.png)" in page
    assert (out / "few-digits.png").read_bytes().startswith(b"\x89PNG")
    drawn = (out / "few-digits.svg").read_text(encoding="utf-8")
    for arm in ARMS:
        assert f"| {arm} |" in page
        assert arm in drawn
    goals = [line for line in page.splitlines() if any(f"| {each} |" in line for each in Outcome)]
    assert len(goals) == 2 + 2 + 1 + 3
    assert f"Of {len(goals)} goals: " in page
    assert "192 training examples, fixture_lab:small_net, batch 32" in page
    assert "Seeds 7 and 8" in page
    assert "Few digits: " in said


def test_nothing_is_trained_again(made, monkeypatch):
    out, _ = made
    monkeypatch.setattr(needs.Trained, "meet", None)
    before, screen = (out / "few-digits.svg").read_bytes(), Screen()
    run_study(screen, inquiry(out))
    assert f"{RUNS} runs: {RUNS} on record\n" in screen.text
    assert (out / "few-digits.svg").read_bytes() == before


def test_what_is_missing_is_left_out_with_a_word(made, tmp_path):
    out, _ = made
    (tmp_path / "runs").mkdir()
    for run in read_runs(out / "runs"):
        if run.header.arm != "kath18":
            (tmp_path / "runs" / run.path.name).write_bytes(run.path.read_bytes())
    run_study(Screen(), inquiry(tmp_path, trains=False))
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| kath18 |" not in page
    assert "Left out: 4 runs, not on record." in page


def test_a_ground_without_auto_is_not_judged(made, tmp_path):
    out, _ = made
    (tmp_path / "runs").mkdir()
    for run in read_runs(out / "runs"):
        if run.header.arm != OURS:
            (tmp_path / "runs" / run.path.name).write_bytes(run.path.read_bytes())
    with pytest.raises(sb.RecordError, match="no ground on which traditional and auto were run"):
        run_study(Screen(), inquiry(tmp_path, trains=False))


def test_missing_data_are_named_before_anything_is_trained(tmp_path):
    (ground,) = TINY.grounds
    absent = replace(ground, recipe=replace(ground.recipe, data="cifar10"))
    stage = replace(TINY, grounds=(ground, absent))
    with pytest.raises(sb.DataError, match="no such place is not a folder"):
        run_study(Screen(), inquiry(tmp_path, stage=stage, root=tmp_path / "no such place"))
    assert not list(tmp_path.iterdir())


def test_every_option_reaches_the_inquiry(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(study_command, "run_study", lambda console, asked: seen.append(asked))
    line = f"study confirm --seeds 2 --jobs 3 --threads 2 --device cpu --root here --out {tmp_path}"
    assert not cli.app([*line.split(), "--no-train"], standalone_mode=False)
    assert not cli.app(["study", "develop"], standalone_mode=False)
    confirm, develop = seen
    assert confirm.stage is STAGES[StageName.CONFIRM]
    assert (confirm.seeds, confirm.jobs, confirm.threads, confirm.device) == (2, 3, 2, "cpu")
    assert (str(confirm.root), confirm.out, confirm.trains) == ("here", tmp_path / "confirm", False)
    assert (develop.stage, develop.seeds, develop.trains) == (STAGES[StageName.DEVELOP], 5, True)
