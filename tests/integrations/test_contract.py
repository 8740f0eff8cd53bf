"""Laws that every adapter keeps. A new one needs a driver in `fixture_adapters`, nothing else."""

import copy
import functools
import tempfile
import tomllib
from pathlib import Path

import pytest
import torch
from fixture_adapters import BATCH, DRIVERS, Stopped, Stream, loader_of, rows
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop import integrations
from selective_backprop.integrations._kit import require

ROOT = Path(__file__).parents[2]
every_adapter = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.framework)
STRATEGIES = {
    "exact": sb.selective_backprop(rate=1 / 2, warmup_epochs=1),
    "coins": sb.selective_backprop(rate=1 / 2, draw="bernoulli", warmup_epochs=1),
    "stale": sb.stale_sb(rate=1 / 2, epochs=2),
    "weighed": sb.infobatch(),
    "recorded": sb.recorded_sb(1 / 2),
    "auto": sb.auto(),
}


def same(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


@functools.cache
def whole(driver, name):
    """A training without interruption, and the examples whose losses each step recorded."""
    recorded, record = [], sb.SelectiveLoader.record

    def note(loader, selection, losses, *args, **named):
        recorded.append(selection.indices.tolist())
        return record(loader, selection, losses, *args, **named)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(sb.SelectiveLoader, "record", note)
        return driver.train(STRATEGIES[name], Path(folder)), recorded


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
def test_scoring_leaves_model_modes_random_streams_and_the_loader_as_they_were(driver, tmp_path):
    """Kept whole after scoring, a net with dropout and batch statistics trains as without."""
    keeps_all = sb.Strategy("all", sb.scorers.Forward(), sb.selectors.Percentile(0))
    loader = loader_of(rows(96), shuffle=driver.shuffle)
    before = copy.copy(vars(loader))
    plain = driver.train(None, tmp_path)
    scored = driver.train(keeps_all, tmp_path, loader=loader)
    assert scored.stats.scored >= 4 * 96
    assert scored.batches == plain.batches
    assert same(scored.weights, plain.weights)
    assert scored.modes == plain.modes
    assert vars(loader) == before


@every_adapter
@pytest.mark.parametrize("name", STRATEGIES)
def test_steps_are_on_full_batches_record_their_own_losses_and_lose_no_candidate(driver, name):
    run, recorded = whole(driver, name)
    stats = run.stats
    assert {len(batch) for batch in run.batches} == {BATCH}
    assert stats.candidates == 4 * 96
    assert stats.batches == len(run.batches)
    assert stats.kept - stats.waiting <= BATCH * len(run.batches) <= stats.kept
    assert stats.kept < stats.candidates
    needed = name in ("weighed", "recorded", "auto")
    assert recorded == run.batches or (not needed and not recorded)


@every_adapter
@pytest.mark.parametrize("name", ["exact", "stale", "weighed", "auto"])
def test_training_goes_on_with_the_same_weights_and_the_same_strategy_alone(driver, name, tmp_path):
    through, _ = whole(driver, name)
    with pytest.raises(Stopped):
        driver.train(STRATEGIES[name], tmp_path, stop=15)
    with pytest.raises(sb.ConfigurationError, match="strategy"):
        driver.train(sb.selective_backprop(rate=1 / 4), tmp_path, resume=True)
    rest = driver.train(STRATEGIES[name], tmp_path, resume=True)
    assert 0 < len(rest.batches) < len(through.batches)
    assert rest.batches == through.batches[-len(rest.batches) :]
    assert same(rest.weights, through.weights)
    assert rest.stats == through.stats


@every_adapter
@pytest.mark.parametrize(
    ("strategy", "error", "message"),
    [
        (sb.auto, sb.ConfigurationError, r"auto\(\.\.\.\), called"),
        (sb.random_backprop(1 / 2), sb.LoaderError, "stream"),
    ],
)
def test_what_cannot_work_is_refused_before_training(driver, strategy, error, message, tmp_path):
    with unhooked(), pytest.raises(error, match=message):
        driver.train(strategy, tmp_path, Stream(rows(96)))


@every_adapter
def test_a_stream_is_selected_from_where_indices_are_not_needed(driver, tmp_path):
    strategy = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
    run = driver.train(strategy, tmp_path, Stream(rows(96)))
    assert {len(batch) for batch in run.batches} == {BATCH}
    assert run.stats.kept < 0.6 * run.stats.candidates


def test_a_framework_that_is_missing_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"no-such-thing 3\.1.*not installed") as refusal:
        require("no-such-thing", "3.1")
    assert refusal.value.name == "no-such-thing"


def test_a_framework_that_is_too_old_is_named_with_what_to_do():
    require("torch", "2.8")
    require("numpy", "1.9")  # which is older than 1.26
    message = r"torch 2\.\d.* 99\.1 or newer.*pip install 'selective-backpro"
    with pytest.raises(sb.ConfigurationError, match=message):
        require("torch", "99.1")
