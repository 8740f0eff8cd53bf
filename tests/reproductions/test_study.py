"""A stage finds learning rates, trains once, goes on where it was, and writes what is there."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from fixture_lab import carry_out, fixture_plan
from fixture_papers import ORDER, Screen

import selective_backprop as sb
from reproductions import training
from reproductions.auto import ablations, protocol, recovery
from reproductions.auto.protocol import OURS, PARTS, STAGES, Stage, Tuned, Workload
from reproductions.auto.results import RUNS, read_results
from reproductions.auto.study import run_study
from reproductions.training import Order
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.recipe import Recipe
from selective_backprop_lab.records.lines import PACK
from selective_backprop_lab.records.schema import pack_finished, read_runs

# So few digits are scored by so young a net that the halves may lack a class.
pytestmark = pytest.mark.filterwarnings("ignore")
FACTORS, TUNING_SEEDS = (0.5, 1.0), (900,)
FEW = ("traditional", "infobatch", OURS)
DIGITS = Recipe("digits", "fixture_lab:small_net", epochs=2, batch_size=32)
PLAIN = Workload("Few digits", DIGITS, (1.0, 2.0), (1.0, 2.0), limit=64)
MADE = Composition(skew=1.0, copies=1.0, places=64, noise=0.2)
SKEWED = Workload("Few digits, skewed", DIGITS, (1.0, 2.0), (2.0,), composition=MADE)
ARMS = STAGES["confirm"].arms
TINY = Stage("Tiny", (PLAIN, SKEWED), 7, ARMS)
CELLS = 3 * 2 + 2 + 2  # of three strategies on the one, then on the other


@pytest.fixture(autouse=True, scope="module")
def _small_grid():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FACTORS", FACTORS), ("TUNING_SEEDS", TUNING_SEEDS), ("WIDEST", 1.0)):
            patch.setattr(protocol, name, value)
        yield


def run(out, *, stage=TINY, arms=FEW, only=(), **changes):
    """Run a stage, and return what was said."""
    screen = Screen()
    run_study(screen, stage, Order(out=out, **ORDER | changes), arms=arms, only=only)
    return screen.text


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    return out, run(out)


def test_rates_are_found_with_seeds_of_their_own_and_then_trained_at(made):
    out, said = made
    runs = read_runs(out / RUNS)
    tuning = [run for run in runs if run.header.seed in TUNING_SEEDS]
    assert len(tuning) == CELLS * len(FACTORS) * len(TUNING_SEEDS)
    assert len(runs) - len(tuning) == CELLS * 2
    assert {run.header.seed for run in runs} == {*TUNING_SEEDS, 7, 8}
    for results in read_results(TINY, out):
        assert len(results.runs) == 2 * len(results.workload.cells(FEW))
        for run in results.runs.itertuples():
            best = results.rates[run.arm, Budget(run.unit, run.length)]
            assert run.learning_rate == best.rate
            assert list(best.errors) == [0.05, 0.1]
    assert f"{len(tuning)} runs: 0 on record" in said
    assert f"{CELLS * 2} runs: 0 on record" in said


def test_nothing_is_trained_again_and_what_is_packed_is_found(made, tmp_path, monkeypatch):
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    pack_finished(tmp_path / RUNS)
    assert [file.name for file in (tmp_path / RUNS).iterdir()] == [PACK]
    monkeypatch.setattr(training, "run_grid", None)
    before = (tmp_path / "index.md").read_text("utf-8")
    assert f"{2 * CELLS} runs: {2 * CELLS} on record\n" in run(tmp_path)
    assert (tmp_path / "index.md").read_text("utf-8") == before


def test_a_part_is_trained_and_the_rest_named_as_missing(tmp_path):
    run(tmp_path, arms=("traditional",), only=("few-digits-skewed",), seeds=1)
    runs = read_runs(tmp_path / RUNS)
    assert {run.header.arm for run in runs} == {"traditional"}
    assert len(runs) == 2 * (len(FACTORS) * len(TUNING_SEEDS) + 1)
    page = (tmp_path / "index.md").read_text("utf-8")
    assert "Not on record yet: Few digits." in page
    others = (len(ARMS) - 1) * (len(FACTORS) * len(TUNING_SEEDS) + 1)
    assert f"{others} are missing or diverged" in page
    # What is trained later joins it.
    run(tmp_path, arms=(OURS,), only=("few-digits-skewed",), seeds=1)
    assert "| Few digits, skewed at 2 | " in (tmp_path / "index.md").read_text("utf-8")


def test_a_rate_that_diverges_is_left_out_and_the_others_are_trained(tmp_path, monkeypatch):
    wild = replace(PLAIN, recipe=replace(DIGITS, learning_rate=1e30), lengths=(4.0,))
    wild = replace(wild, compared=wild.lengths)
    monkeypatch.setattr(protocol, "FACTORS", (1e-31, 1.0))
    stage, arms = replace(TINY, workloads=(wild,)), ("traditional", "selective-backprop")
    assert "Diverged, and left out" in run(tmp_path, stage=stage, arms=arms, seeds=1)
    main = [run for run in read_runs(tmp_path / RUNS) if run.header.seed == 7]
    rates = [run.header.config["recipe"]["learning_rate"] for run in main if run.finished]
    assert rates == pytest.approx([0.1, 0.1])


def test_the_grid_goes_on_where_the_best_is_at_its_edge(monkeypatch):
    monkeypatch.setattr(protocol, "WIDEST", 8.0)
    monkeypatch.setattr(protocol, "FACTORS", (0.5, 1.0, 2.0))
    (first, *_) = cells = PLAIN.cells(("traditional",))

    def tried(errors):
        plans = PLAIN.tuning_plans(("traditional",), {first: Tuned(errors)}, "cpu")
        own = [plan for plan in plans if plan.length == first[1]]
        assert len(plans) - len(own) == (len(cells) - 1) * 3
        return sorted({plan.recipe.learning_rate for plan in own})

    assert tried({0.05: 3.0, 0.1: 2.0, 0.2: 3.0}) == [0.05, 0.1, 0.2]
    assert tried({0.05: 1.0, 0.1: 2.0, 0.2: 3.0}) == [0.025, 0.05, 0.1, 0.2]
    assert tried({0.05: 5.0, 0.1: 4.0, 0.2: 3.0, 0.4: 2.0}) == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert tried({0.05: 3.0, 0.1: 2.0}) == [0.05, 0.1, 0.2]  # where it diverged
    highest = {0.1 * 2.0**i: 9.0 - i for i in range(-1, 4)}
    assert tried(highest) == sorted(highest)


ABSENT = replace(PLAIN, title="Absent", recipe=replace(DIGITS, data="cifar10"))


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"only": ("digits-9",)}, sb.ConfigurationError, "'digits-9'.*few-digits, few-digits-"),
        ({"stage": replace(TINY, workloads=(PLAIN, ABSENT))}, sb.DataError, "is not a folder"),
    ],
)
def test_a_part_or_data_that_are_not_there_are_refused(changes, error, said, tmp_path):
    with pytest.raises(error, match=said):
        run(tmp_path, **{"root": tmp_path / "no such place", **changes})
    assert not list(tmp_path.iterdir())


def test_the_stages_share_no_data_and_no_seed():
    # The last five stages have data of those before them, under seeds of their own.
    data = [{each.recipe.data for each in stage.workloads} for stage in [*STAGES.values()][:-5]]
    seeds = [{*stage.seeds(50)} for stage in STAGES.values()]
    for parts in (data, [*seeds, {900, 901, 902}]):
        assert sum(map(len, parts)) == len(set().union(*parts))


def test_each_changed_part_of_auto_trains_in_its_own_way():
    recipe = {"learning_rate": 0.5}
    names = ("skips_nothing", "recovering", "never_ends", "half_weights", "full_weights")
    arms = [OURS, *(arm for arm in PARTS if arm.partition(":")[2] in names)]
    ends = {arm: carry_out(fixture_plan(arm, epochs=16, recipe=recipe)).points[-1] for arm in arms}
    usual, *trained = (ends[arm].trained for arm in arms)
    skipping, ended, half, full, late = trained  # as `ABLATIONS` has them
    assert ended < usual == half == full < late < skipping == 16 * 256
    assert len({end.test_loss for end in ends.values()}) == len(arms)
    made = {repr(getattr(ablations, name)) for name in ablations.ABLATIONS}
    assert len(made | {repr(sb.auto())}) == 1 + len(PARTS)


def test_what_the_first_passes_show_is_counted_by_hand():
    losses = [[0.1, 0.1, 2, 2, 4, 2], [0.1, 2, 0.1, 0.1, 2, 3], [0.1, 0.1, 2, 0.1, 0.1, 3]]
    by_hand = (2 / 4, 2 / 3, 3 / 6, 2 / 6 * 2 / 4, 1 - 5.2 / 10, 0 / 1)
    found = recovery.numbers_of(np.array(losses, dtype=np.float32))
    assert [*found.values()] == pytest.approx(by_hand, rel=1e-6)


def test_the_first_passes_are_measured_once_for_each_workload(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "STAGES", {"tiny": TINY})
    monkeypatch.setattr(recovery, "READ", ("tiny",))
    recovery.run_recovery(Screen(), order := Order(out=tmp_path, **ORDER))
    known = json.loads((tmp_path / recovery.FILE).read_text("utf-8"))["workloads"]
    assert [*known] == ["tiny/few-digits", "tiny/few-digits-skewed"]
    monkeypatch.setattr(recovery, "measure", None)
    recovery.run_recovery(screen := Screen(), order)
    assert str(known["tiny/few-digits"]["learned"]) in screen.text
