import pytest
import torch
from fixture_lab import carry_out, count_rows, few_digits, fixture_plan, name_watched
from torch import nn

from reproductions.jiang2019.example_probes import El2nRanks, LossRanks, Selections
from reproductions.jiang2019.net_probes import GradientAgreement, LossBands
from reproductions.jiang2019.packing import unpack
from reproductions.jiang2019.probes import LossQuantiles
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.training.callbacks import Scene

COUNT = 40


@pytest.fixture
def scene():
    data = few_digits()
    model = make_model("fixture_lab:small_net", data, seed=0).eval()
    return Scene(model, data, torch.device("cpu"))


@torch.no_grad()
def logits(scene):
    data = scene.data
    mean, std = torch.tensor(data.mean)[:, None, None], torch.tensor(data.std)[:, None, None]
    images = (data.train_images[:COUNT].float() / 255 - mean) / std
    return scene.model(images), data.train_labels[:COUNT]


def places(values):
    """Rank of each value, from 0, in plain Python."""
    ordered = sorted(range(len(values)), key=lambda index: values[index])
    return [ordered.index(index) for index in range(len(values))]


def losses(scene):
    outputs, labels = logits(scene)
    return nn.functional.cross_entropy(outputs, labels, reduction="none").tolist()


def shake(scene):
    """Change what the net says."""
    with torch.no_grad():
        for parameter in scene.model.parameters():
            parameter += torch.rand(parameter.shape, generator=torch.Generator().manual_seed(1))


def test_ranks_of_losses_are_followed_and_averaged_over_the_looks(scene):
    probe = LossRanks(examples=COUNT, followed=3).start(scene)
    shares = [[place / (COUNT - 1) for place in places(losses(scene))]]
    first = probe.look(0.5)
    shake(scene)
    shares.append([place / (COUNT - 1) for place in places(losses(scene))])
    last = probe.look(1.0)
    assert first.keys() == {"followed"}
    for seen, expected in zip((first, last), shares, strict=True):
        assert seen["followed"] == pytest.approx(expected[:3], abs=1e-4)
    moves = [abs(one - other) for one, other in zip(*shares, strict=True)]
    assert last["moved"] == pytest.approx(sum(moves) / COUNT, abs=1e-5)
    assert last["moved"] > 0
    means = [(one + other) / 2 for one, other in zip(*shares, strict=True)]
    assert (unpack(last["ranks"]) / 65535).tolist() == pytest.approx(means, abs=1e-5)


def test_ranks_by_el2n_are_those_of_the_errors_norms_at_the_end(scene):
    probe = El2nRanks(examples=COUNT).start(scene)
    assert probe.look(0.5) is None
    outputs, labels = logits(scene)
    errors = [
        sum((share - (place == label)) ** 2 for place, share in enumerate(shares)) ** 0.5
        for shares, label in zip(outputs.softmax(1).tolist(), labels.tolist(), strict=True)
    ]
    assert unpack(probe.look(1.0)["ranks"]).tolist() == places(errors)


def test_selections_are_counted_over_a_whole_run():
    plan = fixture_plan()
    probe = Selections()
    seen = []

    class Listening:
        words = "listening"

        def start(self, scene):
            running = probe.start(scene)
            inner = running.selected
            running.selected = lambda indices: (seen.extend(indices.tolist()), inner(indices))
            return running

    object.__setattr__(plan, "probes", (Listening(),))
    run = carry_out(plan)
    (observation,) = run.look()
    counts = unpack(observation.seen["counts"])
    assert counts.tolist() == [seen.count(index) for index in range(len(counts))]
    assert counts.sum() == run.points[-1].trained


@pytest.mark.parametrize(
    "probe",
    [
        LossQuantiles(100),
        LossRanks(100),
        El2nRanks(100),
        Selections(),
        LossBands(20),
        GradientAgreement(100, batch_size=30, batches=2),
        LossRanks(),
        GradientAgreement(batch_size=30, batches=1),
    ],
    ids=repr,
)
def test_a_probe_passes_as_many_examples_as_it_says(probe, monkeypatch):
    data, rows = few_digits(), {"trained": 0, "looked at": 0}
    model = make_model(name_watched(monkeypatch, count_rows(rows)), data, seed=0).eval()
    running = probe.start(Scene(model, data, torch.device("cpu")))
    for progress in (0.5, 1.0):
        running.look(progress)
    said = probe.passes(len(data.train_labels), len(data.test_labels), 2)
    assert (rows["looked at"], rows["trained"]) == said
