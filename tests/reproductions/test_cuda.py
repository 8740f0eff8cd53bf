"""On a CUDA device, whatever looks into a run finds its tensors."""

from dataclasses import replace

import pytest
from fixture_lab import few_digits, fixture_plan

from reproductions import probes
from selective_backprop_lab.training.run import TrainingRun

PROBES = (
    probes.LossQuantiles(examples=64),
    probes.LossRanks(),
    probes.El2nRanks(),
    probes.Selections(),
    probes.TargetConfidences(),
    probes.BatchGradients(batch_size=16, batches=2),
    probes.GradientNorms(examples=8),
)


@pytest.mark.cuda
def test_every_probe_looks_into_a_run_on_the_device():
    plan = replace(fixture_plan(), device="cuda", probes=PROBES)
    run = TrainingRun(plan, few_digits())
    while not run.finished:
        run.advance()
        run.look()
    seen = {each.probe: each.seen for each in run.observations}
    assert seen.keys() == {probe.record_name for probe in PROBES}
    counts = probes.unpack(seen[probes.Selections().record_name]["counts"])
    assert counts.sum() == run.points[-1].trained
