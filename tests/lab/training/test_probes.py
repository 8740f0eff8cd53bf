from dataclasses import dataclass, replace

import pytest
import torch
from fixture_lab import few_digits, finish, fixture_plan, run_plans, untimed
from torch import nn

from reproductions.probes import LossQuantiles
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.records.schema import read_run
from selective_backprop_lab.training.probes import Probe, ProbeContext, RunningProbe
from selective_backprop_lab.training.run import TrainingRun


@dataclass(frozen=True)
class Restless(Probe):
    """Draws random numbers, counts what is selected, and speaks every other time."""

    name: str = "restless"

    def start(self, scene):
        return RunningRestless(scene)


class RunningRestless(RunningProbe):
    def __init__(self, scene):
        self.scene = scene
        self.counts = torch.zeros(len(scene.data.train_labels), dtype=torch.int64)
        self.looks = 0

    def selected(self, indices):
        self.counts[indices] += 1

    def look(self, progress):
        torch.rand(100)
        assert not self.scene.model.training
        self.looks += 1
        return {"selected": int(self.counts.sum())} if self.looks % 2 else None


def record(folder, *probes, arm="selective-backprop"):
    plan = replace(fixture_plan(arm), probes=probes)
    [run] = run_plans([plan], few_digits(), folder, command="", watch=lambda *_: None)
    return run


def test_a_run_with_probes_trains_as_one_without_and_shares_its_record(tmp_path):
    plain = record(tmp_path / "plain")
    probed = record(tmp_path / "probed", Restless())
    assert untimed(list(probed.points)) == untimed(list(plain.points))
    assert probed.path.name == plain.path.name


def test_what_a_probe_sees_is_recorded_at_the_moment_it_saw_it(tmp_path):
    run = record(tmp_path, Restless())
    assert [each.probe for each in run.observations] == ["Restless(name='restless')"] * 2
    assert [each.progress for each in run.observations] == [run.points[i].progress for i in (0, 2)]
    assert [each.seen for each in run.observations] == [
        {"selected": run.points[i].trained} for i in (0, 2)
    ]


def test_a_record_that_lacks_what_a_probe_would_have_seen_is_repeated_and_kept(tmp_path):
    first = record(tmp_path)
    again = record(tmp_path, Restless())
    assert again.path == first.path
    assert again.observations
    (old,) = tmp_path.glob("*.replaced")
    assert read_run(old).points == first.points
    assert record(tmp_path, Restless()) == again
    assert record(tmp_path) == again
    both = record(tmp_path, Restless(), Restless("other"))
    assert {each.probe for each in both.observations} == {
        "Restless(name='restless')",
        "Restless(name='other')",
    }


def test_quantiles_of_losses_are_those_of_the_first_examples():
    data = few_digits()
    run = finish(TrainingRun(fixture_plan("traditional"), data))
    probe = LossQuantiles(examples=100, steps=4).start(
        ProbeContext(run.model, data, torch.device("cpu"))
    )
    images, labels = next(iter(make_loader(data, batch_size=100, seed=0, shuffle=False)))
    with torch.no_grad():
        losses = nn.functional.cross_entropy(run.model.eval()(images), labels, reduction="none")
    expected = losses.quantile(torch.linspace(0, 1, 5)).tolist()
    assert probe.look(1.0)["quantiles"] == pytest.approx(expected, rel=1e-4)
