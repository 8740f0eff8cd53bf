from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_panel, fixture_scale, fixture_setting, judged
from fixture_runs import fixture_run

from reproductions.diet_sb import figures as diet
from reproductions.measures import Evidence
from reproductions.probes import pack
from selective_backprop_lab.analysis.estimates import Verdict
from selective_backprop_lab.records.schema import Observation

HOLDS, FAILS, OPEN = Verdict
SETTING = fixture_setting(epochs=10, limit=256)
SCALE = fixture_scale(SETTING)
ITEM = {item.name: item for item in diet.FIGURES}


def test_the_ratios_that_are_claimed_are_those_of_the_quoted_seconds():
    for claim in ITEM["diet-runtime"].claims:
        ratio = diet.SECONDS[claim.arms[0]] / diet.SECONDS["traditional"]
        assert claim.remark == f"; the poster {ratio:.2f}"
        assert diet.TABLE[claim.arms[0]] == claim.of


def observed(name, numbers):
    """An item's panels, filled with one packed list of numbers for each arm and seed."""
    found = []
    for panel, lists in zip(ITEM[name].panels(SCALE), numbers, strict=True):
        (arm,) = panel.arms
        probe = repr(arm.plan.probes[0])
        key = "counts" if probe.startswith("Selections") else "ranks"
        seen = (Observation(probe=probe, progress=1.0, seen={key: pack(each)}) for each in lists)
        runs = [replace(fixture_run(seed=n), observations=(each,)) for n, each in enumerate(seen)]
        found.append(fixture_panel(panel, {arm.key: runs}))
    return Evidence(SCALE, tuple(found))


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_classes_are_judged_by_whether_both_skip_the_same(sign, verdict):
    labels = few_digits().train_labels
    noise = [torch.arange(256).roll(seed) for seed in range(3)]
    scores = [labels * 256 + each for each in noise]
    counts = [5 + sign * (labels // 2) + (each % 3) // 2 for each in noise]
    scale = SETTING.recipe.epochs
    evidence = observed("diet-classes", (counts, scores))
    ((_, finding),) = judged("diet-classes", *evidence.panels)
    assert finding.verdict is verdict
    (table,) = diet.classes_table(evidence)
    rows = {row[0]: row for row in table.rows}
    assert set(rows) == set(few_digits().class_names)
    mean = sum(float(each[labels == 0].double().mean()) for each in counts) / 3
    zero = rows[few_digits().class_names[0]]
    assert float(zero[1].split()[0]) == pytest.approx(100 * (1 - mean / scale), abs=0.01)
    assert zero[2].startswith("100.00")
