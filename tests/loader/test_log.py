"""What selection does goes into the log that is there, now and then, and once."""

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

EXAMPLES, BATCH = 192, 8  # 24 batches


@pytest.fixture
def loader():
    torch.manual_seed(0)
    return make_loader(sb.selective_backprop(rate=1 / 3))


def make_loader(strategy, **options):
    data = TensorDataset(torch.randn(EXAMPLES, 3), torch.arange(EXAMPLES) % 2)
    bare = DataLoader(data, batch_size=BATCH, shuffle=True)
    return sb.SelectiveLoader(
        bare, torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), strategy, **options
    )


class Entries:
    """A callable that keeps what it is given."""

    def __init__(self):
        self.steps, self.values = [], []

    def __call__(self, values, step):
        self.steps.append(step)
        self.values.append(dict(values))


def train(loader, log, epochs=2):
    for _ in range(epochs):
        for _ in loader:
            log(loader)


def test_an_entry_is_written_every_so_many_batches_and_when_asked_for_but_not_twice(loader):
    entries = Entries()
    log = sb.Log(entries, every=9)
    train(loader, log)
    assert entries.steps == [9, 18, 27]
    for _ in range(2):
        log(loader, now=True)
    assert entries.steps[3:] == [loader.stats.batches]
    assert all(math.isfinite(value) for values in entries.values for value in values.values())


def test_rates_are_of_the_candidates_since_the_entry_before_and_costs_those_of_all(loader):
    entries = Entries()
    train(loader, sb.Log(entries, every=6), epochs=3)
    rates = [values["selection/recent_rate"] for values in entries.values]
    assert rates[:4] == [1.0] * 4  # the first epoch keeps everything
    assert rates[4:] == pytest.approx([1 / 3] * 2, abs=0.05)
    sb.Log(entries)(loader, now=True)
    last, stats = entries.values[-1], loader.stats
    assert last["selection/candidates"] == stats.candidates
    assert last["selection/rate"] == stats.rate
    # The first batch is scored to see whether it can be, and later epochs' are all scored.
    assert stats.scored == 2 * EXAMPLES + BATCH
    assert last["selection/cost"] == stats.scored + 3 * stats.kept
    assert last["selection/plain_cost"] == 3 * stats.candidates


def test_mean_and_deciles_are_of_the_scores_that_candidates_rank_against(loader):
    entries = Entries()
    train(loader, sb.Log(entries, every=1))
    first, last = entries.values[0], entries.values[-1]
    assert "selection/score_mean" not in first  # in the first epoch nothing is ranked
    ranked = loader.state_dict()["parts"]["history"]
    scores = np.sort(ranked["ring"][: ranked["filed"]].double().numpy())
    assert last["selection/score_mean"] == pytest.approx(scores.mean())
    for tenth in range(1, 10):
        place = tenth * (len(scores) - 1) / 10
        below, above = scores[math.floor(place)], scores[math.ceil(place)]
        expected = below + (place - math.floor(place)) * (above - below)
        assert last[f"selection/score_p{tenth}0"] == pytest.approx(expected)


def test_remembered_scores_are_summed_up_where_none_are_taken():
    loader = make_loader(sb.recorded_sb(rate=1 / 2), with_selection=True)
    for epoch in range(2):
        for _, selection in loader:
            loader.record(selection, selection.indices.float())
            if epoch == 0:
                assert loader.scores is None
    assert loader.scores.count == EXAMPLES
    assert loader.scores.mean == pytest.approx((EXAMPLES - 1) / 2)
    assert loader.scores.deciles[0] == 0.0
    assert loader.scores.deciles[-1] == EXAMPLES - 1


def test_a_fresh_loader_is_logged_from_its_first_batch_on(loader):
    entries = Entries()
    log = sb.Log(entries, every=12)
    train(loader, log, epochs=1)
    train(make_loader(sb.random_backprop(rate=1 / 2)), log, epochs=1)
    assert entries.steps == [12, 24, 12]
    assert entries.values[-1]["selection/rate"] == pytest.approx(0.5)


def test_tensorboard_reads_back_what_was_written(loader, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        train(loader, sb.Log(writer, every=12))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    kept = [(event.step, event.value) for event in events.Scalars("selection/kept")]
    assert kept == [(12, 12 * BATCH), (24, 24 * BATCH)]
    assert "selection/score_p50" not in events.Tags()["scalars"]  # of the first epoch alone


def test_a_real_weights_and_biases_run_keeps_the_entries_beside_the_users_own(
    loader, tmp_path, monkeypatch
):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="selection") as run:
        log = sb.Log(run, every=12)
        for number, _ in enumerate(loader):
            run.log({"mine": number})  # the run's own steps go on while selection's stand still
            log(loader)
        summary = dict(run.summary)
    assert summary["mine"] == 23
    assert summary["selection/batches"] == 24
    assert summary["selection/kept"] == 24 * BATCH
    assert summary["selection/rate"] == 1.0


def test_real_mlflow_reads_back_what_was_written(loader, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # without a database's dependencies
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    mlflow.set_experiment("selection")
    with mlflow.start_run() as run:
        train(loader, sb.Log(mlflow, every=12))
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "selection/kept")
    assert [(each.step, each.value) for each in history] == [(12, 12 * BATCH), (24, 24 * BATCH)]


@pytest.mark.parametrize("to", [None, 3, "runs/one"])
def test_what_cannot_be_written_to_is_refused_with_what_can(to):
    with pytest.raises(sb.ConfigurationError, match=r"add_scalar.*callable\(values, step\)"):
        sb.Log(to)


@pytest.fixture
def group(tmp_path):
    """Lets this process be one rank of a group of that size, as far as torch can tell."""

    def join(rank):
        store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
        torch.distributed.init_process_group("fake", store=store, rank=rank, world_size=2)

    yield join
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("rank", "steps"), [(0, [12, 24]), (1, [])])
def test_only_the_first_rank_writes(loader, group, rank, steps):
    pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    entries = Entries()
    log, batches = sb.Log(entries, every=12), iter(loader)
    next(batches)
    group(rank)  # a loader that was built without it would not begin another epoch
    for _ in batches:
        log(loader)
    assert entries.steps == steps
    if rank:
        sb.Log(None)(loader)  # what other ranks have for a writer
