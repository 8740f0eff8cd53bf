from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_panel, fixture_scale, fixture_setting, judged
from fixture_runs import fixture_point, fixture_run, fixture_seeds

from reproductions.diet_sb import figures as diet
from reproductions.evidence import Evidence
from reproductions.jiang2019.scales import SCALES
from reproductions.probes import pack
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.records.schema import Observation

HOLDS, FAILS, OPEN = Verdict
SETTING = fixture_setting(epochs=10, limit=256)
SCALE = replace(fixture_scale(), pruned=SETTING, remarked=SETTING)
ITEM = {item.name: item for item in diet.FIGURES}


def test_the_rows_of_table_1_train_on_what_its_percentages_leave():
    (panel,) = diet.seven(SCALE)
    found = [
        (
            arm.label,
            arm.plan.arm,
            arm.plan.settings.keep if arm.key.startswith(("el2n", "diet")) else 1.0,
            arm.plan.settings.rate if not arm.key.startswith(("trad", "el2n")) else 1.0,
        )
        for arm in panel.arms
    ]
    assert found == [
        ("Baseline", "traditional", 1.0, 1.0),
        ("SB 50 %", "selective-backprop", 1.0, 0.5),
        ("Random-Backprop 50 %", "random-backprop", 1.0, 0.5),
        ("Random-Backprop 75 %", "random-backprop", 1.0, 0.25),
        ("EL2N 25 %", "el2n", 0.75, 1.0),
        ("Diet-SB 50 %", "diet-sb", 0.75, pytest.approx(2 / 3)),
        ("Diet-SB 62.5 %", "diet-sb", 0.75, 0.5),
    ]
    assert {arm.plan.settings.random_warmup for arm in panel.arms} == {0.1}
    assert {arm.plan.settings.warmup for arm in panel.arms} == {0.1}


def test_the_ratios_that_are_claimed_are_those_of_the_quoted_seconds():
    for claim in ITEM["diet-runtime"].claims:
        ratio = diet.SECONDS[claim.arms[0]] / diet.SECONDS["traditional"]
        assert claim.remark == f"; the poster {ratio:.2f}"
        assert diet.TABLE[claim.arms[0]] == claim.of


@pytest.mark.parametrize("scale", [SCALES["small"], SCALES["full"]], ids=lambda scale: scale.name)
def test_scores_and_selections_are_of_the_same_examples(scale):
    ours, scored = (panel.setting for panel in diet.chosen(scale))
    assert (ours.recipe.data, ours.limit) == (scored.recipe.data, scored.limit)
    assert ours.recipe.data == "cifar100"
    assert len({(each.recipe.data, each.limit) for each in scale.scored}) == 1
    assert len({each.recipe.model for each in scale.scored}) == 2


def filled(name, errors, seconds=None):
    """An item's first panel, each method at an error and seconds per epoch, a little apart."""
    (panel,) = ITEM[name].panels(SCALE)
    runs = {}
    for arm in panel.arms:
        error, total = errors.get(arm.key, 20.0), (seconds or {}).get(arm.key, 20.0)
        runs[arm.key] = [
            replace(
                run,
                points=tuple(
                    replace(point, seconds=(total + 0.01 * seed) * point.progress)
                    for point in run.points
                ),
            )
            for seed, run in enumerate(
                fixture_seeds(arm.plan.arm, [error, error + 0.1, error + 0.3])
            )
        ]
    return fixture_panel(panel, runs)


def verdicts(name, panel):
    """The verdicts of each quote, in order."""
    found = {}
    for quote, finding in judged(name, panel):
        found.setdefault(quote, []).append(finding.verdict)
    return found


def test_backprop_methods_are_judged_by_the_posters_sentences():
    errors = {"random-85": 30.0, "random-90": 15.0, "random-75": 25.0}
    seconds = {"random-50": 12.0, "sb-50": 25.0, "random-75": 8.0}
    assert verdicts("diet-accuracy", filled("diet-accuracy", errors, seconds)) == {
        "on-par": [HOLDS],
        "up-to-75": [HOLDS, HOLDS, FAILS],
        "higher-rates": [HOLDS, FAILS],
        "little-impact": [HOLDS, HOLDS, HOLDS, FAILS],
        "speeds-up": [HOLDS],
    }
    apart = filled("diet-accuracy", {"random-50": 26.0})
    assert verdicts("diet-accuracy", apart)["on-par"] == [FAILS]


def test_pruning_methods_are_judged_by_the_posters_sentences():
    errors = {"el2n-25": 24.0, "el2n-50": 19.0, "diet-50": 23.0, "diet-62.5": 10.0}
    seconds = {"el2n-25": 15.0, "diet-50": 16.0, "diet-62.5": 12.0}
    panel = filled("diet-el2n", errors, seconds)
    assert verdicts("diet-el2n", panel) == {
        "limited": [HOLDS, FAILS],
        "on-top": [FAILS, HOLDS],
        "stronger": [HOLDS, FAILS],
        "no-sacrifice": [FAILS, HOLDS, HOLDS, HOLDS],
    }
    table = diet.accuracies_table(panel)
    assert table.rows[1][:2] == ("EL2N 25 %", table.rows[1][1])
    assert table.rows[1][1].startswith("75.87")


def test_the_remark_on_cifar_10_is_judged_by_every_trend():
    (found,) = verdicts("diet-cifar10", filled("diet-cifar10", {})).items()
    assert found[0] == "similar"
    assert len(found[1]) > 10
    small = SCALES["small"]
    assert {panel.setting.recipe.data for panel in diet.remarked(small)} == {"cifar10"}
    assert SCALES["full"].remarked.recipe.model == "resnet20"


def test_a_row_of_table_1_agrees_where_its_ratio_lies_on_the_posters_side():
    seconds = {"sb-50": 22.0, "random-50": 12.0, "diet-50": 17.0}
    panel = filled("diet-runtime", {}, seconds)
    found = verdicts("diet-runtime", panel)
    assert found["sb"] == [FAILS]
    assert found["random"] == found["diet-50"] == [HOLDS]
    assert "baseline" not in found
    table = diet.times_table(panel)
    assert [row[-1] for row in table.rows] == [
        "1.00",
        "0.95",
        "0.59",
        "0.41",
        "0.79",
        "0.83",
        "0.71",
    ]
    assert table.rows[5][1:3] == ("25 %", "67 %")


def test_the_time_of_an_epoch_leaves_warm_up_and_preparation_out():
    points = [
        fixture_point(0.2, seconds=9.0, phases={"prepare": 5.0}),
        fixture_point(1.0, seconds=17.0, phases={"prepare": 5.0}),
    ]
    run = replace(fixture_run(), points=tuple(points))
    assert [*diet.per_epoch(frame_of([run]), 10)] == pytest.approx([1.0])
    assert [*diet.preparing(frame_of([run]))] == [5.0]
    once = frame_of([replace(run, points=tuple(points[-1:]))])
    assert [*diet.per_epoch(once, 10)] == pytest.approx([1.2])


def observed(name, numbers):
    """An item's panels, filled with one packed list of numbers for each arm and seed."""
    found = []
    for panel, lists in zip(ITEM[name].panels(SCALE), numbers, strict=True):
        (arm,) = panel.arms
        (probe,) = arm.plan.probes
        key = "counts" if probe.record_name.startswith("Selections") else "ranks"
        runs = []
        for seed, values in enumerate(lists):
            seen = Observation(probe=probe.record_name, progress=1.0, seen={key: pack(values)})
            runs.append(replace(fixture_run(seed=seed), observations=(seen,)))
        found.append(fixture_panel(panel, {arm.key: runs}))
    return Evidence(SCALE, tuple(found))


def shuffled(seed, count=256, swaps=20):
    """Rising numbers of which some have changed places."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.arange(count)
    places = torch.randperm(count, generator=generator)[:swaps]
    values[places] = values[places.roll(1)]
    return values


@pytest.mark.parametrize(("flip", "verdict"), [(False, HOLDS), (True, FAILS)])
def test_overlap_is_judged_against_chance(flip, verdict):
    mine = [shuffled(seed) for seed in range(3)]
    theirs = [shuffled(seed + 10) for seed in range(3)]
    if flip:
        theirs = [255 - values for values in theirs]
    for name in ("diet-nets", "diet-overlap"):
        evidence = observed(name, (mine, theirs))
        assert [finding.verdict for _, finding in judged(name, *evidence.panels)] == [verdict] * 3
        (table,) = diet.overlaps_table(evidence)
        assert table.rows[-1] == ("chance", "25", "50", "75")


def test_the_combined_rank_is_that_of_scores_and_selections_together():
    scores = [torch.arange(256)] * 2
    counts = [torch.arange(256).flip(0) // 8] * 2
    (table,) = diet.lowest_table(observed("diet-images", (counts, scores)))
    rows = {row[0]: row for row in table.rows}
    assert rows["lowest EL2N"][1] == "20"
    assert float(rows["lowest EL2N"][2]) == pytest.approx(sum(c // 8 for c in range(236, 256)) / 20)
    assert float(rows["all images"][2]) == pytest.approx(15.5)
    # Opposed orders leave every example about as high: the twenty are no longer the lowest scores.
    assert int(rows["lowest combined rank"][1]) < 20


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_classes_are_judged_by_whether_both_skip_the_same(sign, verdict):
    labels = few_digits().train_labels
    noise = [shuffled(seed, swaps=60) for seed in range(3)]
    scores = [labels * 256 + each for each in noise]
    counts = [5 + sign * (labels // 2) + (each % 3) // 2 for each in noise]
    scale = SCALE.pruned.recipe.epochs
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
