import copy
import statistics
from dataclasses import replace

import pytest
import torch
from fixture_lab import carry_out, few_digits, fixture_plan
from fixture_loaders import same_tensors
from torch import nn

from reproductions.probes import (
    BatchGradients,
    El2nRanks,
    GradientNorms,
    LossQuantiles,
    LossRanks,
    Selections,
    TargetConfidences,
    unpack,
)
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import ProbeContext

COUNT = 40


@pytest.fixture
def scene():
    data = few_digits()
    model = make_model("fixture_lab:small_net", data, seed=0).eval()
    return ProbeContext(model, data, torch.device("cpu"))


def normalised(data, images):
    mean, std = torch.tensor(data.mean)[:, None, None], torch.tensor(data.std)[:, None, None]
    return (images.float() / 255 - mean) / std


@torch.no_grad()
def logits(scene):
    data = scene.data
    return scene.model(normalised(data, data.train_inputs[:COUNT])), data.train_labels[:COUNT]


def places(values):
    """Rank of each value, from 0, in plain Python."""
    ordered = sorted(range(len(values)), key=lambda index: values[index])
    return [ordered.index(index) for index in range(len(values))]


def losses(scene):
    return nn.functional.cross_entropy(*logits(scene), reduction="none").tolist()


def test_quantiles_of_losses_are_those_of_the_first_examples(scene):
    expected = torch.tensor(losses(scene)).quantile(torch.linspace(0, 1, 5)).tolist()
    seen = LossQuantiles(examples=COUNT, steps=4).look(scene, 1.0, {})
    assert seen["quantiles"] == pytest.approx(expected, rel=1e-4)


def test_ranks_of_losses_are_followed_and_averaged_over_the_looks(scene):
    probe, memory = LossRanks(examples=COUNT, followed=3), {}
    shares = [[place / (COUNT - 1) for place in places(losses(scene))]]
    first = probe.look(scene, 0.5, memory)
    for parameter in scene.model.parameters():
        nn.init.uniform_(parameter)
    shares.append([place / (COUNT - 1) for place in places(losses(scene))])
    last = probe.look(scene, 1.0, memory)
    assert first.keys() == {"followed"}
    for seen, expected in zip((first, last), shares, strict=True):
        assert seen["followed"] == pytest.approx(expected[:3], abs=1e-4)
    moves = [abs(one - other) for one, other in zip(*shares, strict=True)]
    assert last["moved"] == pytest.approx(sum(moves) / COUNT, abs=1e-5)
    assert last["moved"] > 0
    means = [(one + other) / 2 for one, other in zip(*shares, strict=True)]
    assert (unpack(last["ranks"]) / 65535).tolist() == pytest.approx(means, abs=1e-5)


def test_ranks_by_el2n_are_those_of_the_errors_norms_at_the_end(scene):
    probe = El2nRanks(examples=COUNT)
    assert probe.look(scene, 0.5, {}) is None
    outputs, labels = logits(scene)
    errors = (outputs.softmax(1) - nn.functional.one_hot(labels, 10)).norm(dim=1).tolist()
    assert unpack(probe.look(scene, 1.0, {})["ranks"]).tolist() == places(errors)


def test_selections_are_counted_over_a_whole_run(monkeypatch):
    seen, select = [], Selections.select

    def noting(probe, scene, indices, memory):
        seen.extend(indices.tolist())
        select(probe, scene, indices, memory)

    monkeypatch.setattr(Selections, "select", noting)
    run = carry_out(replace(fixture_plan(), probes=(Selections(),)))
    (observation,) = run.look()
    counts = unpack(observation.seen["counts"])
    assert counts.tolist() == [seen.count(index) for index in range(len(counts))]
    assert counts.sum() == run.points[-1].trained


def test_confidences_are_sorted_and_the_surest_bin_is_the_last(scene):
    data = scene.data
    with torch.no_grad():
        outputs = scene.model(normalised(data, data.test_inputs)).softmax(1)
    labels, bins = data.test_labels.tolist(), 10
    pairs = sorted(
        (100 * float(shares[label]), 100 * (int(shares.argmax()) == label))
        for shares, label in zip(outputs, labels, strict=True)
    )
    values, right = zip(*pairs, strict=True)
    each = len(pairs) // bins
    probe, memory = TargetConfidences(0.5, bins), {}
    assert probe.look(scene, 0.4, memory) is None
    seen = probe.look(scene, 0.51, memory)
    assert probe.look(scene, 0.6, memory) is None
    expected = [float(torch.tensor(values).quantile(place / bins)) for place in range(bins + 1)]
    assert seen["confidence"] == pytest.approx(expected, abs=2e-3)
    expected = [statistics.fmean(right[at : at + each]) for at in range(0, len(right), each)]
    assert seen["accuracy"] == pytest.approx(expected, abs=2e-3)


def gradient(scene, rows):
    inputs = normalised(scene.data, scene.data.train_inputs[rows])
    loss = nn.functional.cross_entropy(scene.model(inputs), scene.data.train_labels[rows])
    parts = torch.autograd.grad(loss, list(scene.model.parameters()))
    return torch.cat([part.flatten() for part in parts])


def test_a_part_of_a_batch_is_held_against_that_batch_by_its_highest_losses(scene):
    probe = BatchGradients(batch_size=20, batches=2, shares=(0.1, 1.0))
    seen = probe.look(scene, 0.5, {})
    order, angles, signs = losses(scene), [], []
    for start in (0, 20):
        batch = sorted(range(start, start + 20), key=lambda index: -order[index])
        mine, whole = gradient(scene, batch[:2]), gradient(scene, batch)
        angles.append(float(mine @ whole / (mine.norm() * whole.norm())))
        some = whole != 0
        signs.append(100 * float((mine.sign() == whole.sign())[some].float().mean()))
    assert seen["cosine"]["high-loss"][0] == pytest.approx(sum(angles) / 2, abs=1e-4)
    assert seen["sign"]["high-loss"][0] == pytest.approx(sum(signs) / 2, abs=0.2)
    assert seen["cosine"]["random"][0] != seen["cosine"]["high-loss"][0]
    for kind in ("high-loss", "random"):  # all of a batch is the batch
        assert seen["cosine"][kind][1] == pytest.approx(1, abs=1e-4)
        assert seen["sign"][kind][1] == pytest.approx(100, abs=0.5)


def test_the_net_and_its_gradients_are_left_as_they_were(scene):
    scene.model.zero_grad()
    for parameter in scene.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy.deepcopy(scene.model.state_dict())
    BatchGradients(batch_size=20, batches=2).look(scene, 0.5, {})
    assert all(bool((each.grad == 1).all()) for each in scene.model.parameters())
    assert same_tensors(scene.model.state_dict(), before)


PROBES = (
    *(LossQuantiles(examples=64), LossRanks(), El2nRanks(), Selections(), TargetConfidences()),
    *(BatchGradients(batch_size=16, batches=2), GradientNorms(examples=8)),
)


@pytest.mark.cuda
def test_every_probe_looks_into_a_run_on_the_device():
    run = TrainingRun(replace(fixture_plan(), device="cuda", probes=PROBES), few_digits())
    while not run.finished:
        run.advance()
        run.look()
    seen = {each.probe: each.seen for each in run.observations}
    assert seen.keys() == {repr(probe) for probe in PROBES}
    assert unpack(seen["Selections()"]["counts"]).sum() == run.points[-1].trained
