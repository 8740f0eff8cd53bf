"""Laws that every adapter keeps. A new one needs a driver in `fixture_adapters`, nothing else."""

import copy
import tomllib
from pathlib import Path

import pytest
import torch
from fixture_adapters import BATCH, DRIVERS, Stopped, Stream, loader_of, rows
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop import integrations

ROOT = Path(__file__).parents[2]
every_adapter = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.framework)
STRATEGIES = {
    "everything": sb.traditional(),
    "random": sb.random_backprop(1 / 2),
    "exact": sb.selective_backprop(rate=1 / 2, warmup_epochs=1),
    "coins": sb.selective_backprop(rate=1 / 2, draw="bernoulli", warmup_epochs=1),
    "stale": sb.stale_sb(rate=1 / 2, epochs=2),
    "weighed": sb.infobatch(),
    "auto": sb.auto(),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def same(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_every_adapter_has_a_driver_a_page_and_an_extra():
    loaders = {loader.stem for loader in Path(integrations.__file__).parent.glob("[!_]*.py")}
    loaders -= {"trl"}  # leaves completions out, and wraps no loader: docs/rollouts.md
    assert loaders == {driver.framework for driver in DRIVERS}
    assert loaders <= {page.stem for page in (ROOT / "docs").glob("*.md")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert loaders <= project["optional-dependencies"].keys()


@every_adapter
def test_training_on_everything_is_plain_training_bit_for_bit(driver, tmp_path):
    """With a short last batch in each epoch."""
    plain, selective = (
        driver.train(strategy, tmp_path, rows(100)) for strategy in (None, sb.traditional())
    )
    assert selective.batches == plain.batches
    assert same(selective.weights, plain.weights)
    assert selective.stats.kept == selective.stats.candidates == 4 * 100


@every_adapter
def test_scoring_leaves_the_model_its_modes_and_the_random_streams_as_they_were(driver, tmp_path):
    """Kept whole after scoring, a net with dropout and batch statistics trains as without."""
    keeps_all = sb.Strategy("all", sb.scorers.Forward(), sb.selectors.Percentile(0))
    plain, scored = (driver.train(strategy, tmp_path) for strategy in (None, keeps_all))
    assert scored.stats.scored >= 4 * 96
    assert scored.batches == plain.batches
    assert same(scored.weights, plain.weights)
    assert scored.modes == plain.modes


@every_adapter
def test_the_loader_that_was_given_is_left_as_it_was(driver, tmp_path):
    loader = loader_of(rows(96))
    before = copy.copy(vars(loader))
    driver.train(STRATEGIES["random"], tmp_path, loader=loader)
    assert vars(loader) == before


@every_adapter
@every_strategy
def test_steps_are_on_full_batches_and_no_candidate_is_lost(driver, strategy, tmp_path):
    run = driver.train(strategy, tmp_path)
    stats = run.stats
    assert {len(batch) for batch in run.batches} == {BATCH}
    assert stats.candidates == 4 * 96
    assert stats.batches == len(run.batches)
    assert stats.kept - stats.waiting <= BATCH * len(run.batches) <= stats.kept
    assert (stats.kept < stats.candidates) == (strategy.name != "traditional")


@every_adapter
@pytest.mark.parametrize("strategy", [sb.infobatch(), sb.auto(), sb.recorded_sb(1 / 2)])
def test_each_steps_losses_are_recorded_for_the_examples_of_that_step(
    driver, strategy, tmp_path, monkeypatch
):
    recorded, record = [], sb.SelectiveLoader.record

    def note(loader, selection, losses, *args, **named):
        recorded.append(selection.indices.tolist())
        return record(loader, selection, losses, *args, **named)

    monkeypatch.setattr(sb.SelectiveLoader, "record", note)
    assert recorded == driver.train(strategy, tmp_path).batches != []


@every_adapter
@pytest.mark.parametrize("name", ["random", "exact", "stale", "weighed", "auto"])
def test_training_goes_on_with_the_same_examples_and_weights(driver, name, tmp_path):
    strategy = STRATEGIES[name]
    whole = driver.train(strategy, tmp_path / "whole")
    with pytest.raises(Stopped):
        driver.train(strategy, tmp_path, stop=15)
    rest = driver.train(strategy, tmp_path, resume=True)
    assert 0 < len(rest.batches) < len(whole.batches)
    assert rest.batches == whole.batches[-len(rest.batches) :]
    assert same(rest.weights, whole.weights)
    assert rest.stats == whole.stats


@every_adapter
def test_the_state_of_another_strategy_is_refused(driver, tmp_path):
    with pytest.raises(Stopped):
        driver.train(STRATEGIES["exact"], tmp_path, stop=15)
    with pytest.raises(sb.ConfigurationError, match="strategy"):
        driver.train(sb.selective_backprop(rate=1 / 4), tmp_path, resume=True)


@every_adapter
@pytest.mark.parametrize(
    ("strategy", "error", "message"),
    [
        (sb.auto, sb.ConfigurationError, r"auto\(\.\.\.\), called"),
        (sb.random_backprop(1 / 2), sb.LoaderError, "stream"),
    ],
    ids=["no strategy", "no indices"],
)
def test_what_cannot_work_is_refused_before_training(driver, strategy, error, message, tmp_path):
    with unhooked(), pytest.raises(error, match=message):
        driver.train(strategy, tmp_path, Stream(rows(96)))


@every_adapter
def test_a_stream_is_selected_from_where_indices_are_not_needed(driver, tmp_path):
    run = driver.train(
        sb.selective_backprop(rate=1 / 2, warmup_epochs=0), tmp_path, Stream(rows(96))
    )
    assert {len(batch) for batch in run.batches} == {BATCH}
    assert run.stats.kept < 0.6 * run.stats.candidates
