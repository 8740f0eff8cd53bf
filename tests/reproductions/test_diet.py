from dataclasses import replace

import pytest
import torch
from fixture_lab import carry_out, few_digits
from fixture_papers import fixture_scale, fixture_setting
from fixture_runs import fixture_point, fixture_run, fixture_seeds

from reproductions import training
from reproductions.diet_sb import figures as diet
from reproductions.diet_sb import judging
from reproductions.figures import Found, PanelData
from reproductions.jiang2019.scales import SCALES
from reproductions.probes import pack
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.records.schema import Observation

HOLDS, FAILS, OPEN = Verdict
SETTING = fixture_setting(epochs=10, limit=256)
SCALE = replace(fixture_scale(), pruned=SETTING, remarked=SETTING)
ITEM = {item.name: item for item in diet.FIGURES}


def test_the_rows_of_table_1_train_on_what_its_percentages_leave():
    (panel,) = diet.seven(SCALE)
    found = [
        (
            entry.label,
            entry.plan.arm,
            entry.plan.settings.keep if entry.key.startswith(("el2n", "diet")) else 1.0,
            entry.plan.settings.rate if not entry.key.startswith(("trad", "el2n")) else 1.0,
        )
        for entry in panel.entries
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
    assert {entry.plan.settings.random_warmup for entry in panel.entries} == {0.1}
    assert {entry.plan.settings.warmup for entry in panel.entries} == {0.1}


def test_the_seconds_of_table_1_are_those_that_are_quoted():
    quotes = ITEM["diet-runtime"].reported.quotes
    for name, seconds in diet.TABLE.values():
        assert quotes[name].text.endswith(f" {seconds:.2f}s")


@pytest.mark.filterwarnings("ignore:no example of class")
@pytest.mark.parametrize("key", ["el2n-25", "diet-50"])
def test_what_pruning_is_expected_to_cost_is_about_what_it_costs(key):
    short = replace(SCALE, pruned=fixture_setting(epochs=5, limit=256, evaluations=1))
    (entry,) = (each for each in diet.seven(short)[0].entries if each.key == key)
    run = carry_out(entry.plan, few_digits())
    assert run.points[-1].cost == pytest.approx(training.cost(entry.plan), rel=0.1)


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
    arms = []
    for entry in panel.entries:
        error = errors.get(entry.key, 20.0)
        ends = [error, error + 0.1, error + 0.3]
        total = (seconds or {}).get(entry.key, 20.0)
        runs = fixture_seeds(entry.plan.arm, ends)
        runs = [
            replace(
                run,
                points=tuple(
                    replace(point, seconds=(total + 0.01 * seed) * point.progress)
                    for point in run.points
                ),
            )
            for seed, run in enumerate(runs)
        ]
        arms.append(entry.arm(runs))
    return Found(SCALE, (PanelData(panel, tuple(arms)),))


def verdicts(shown):
    """The verdicts of each quote, in order."""
    found = {}
    for quote, finding in shown.findings:
        found.setdefault(quote, []).append(finding.verdict)
    return found


def test_backprop_methods_are_judged_by_the_posters_sentences():
    errors = {"random-85": 30.0, "random-90": 15.0, "random-75": 25.0}
    seconds = {"random-50": 12.0, "sb-50": 25.0, "random-75": 8.0}
    shown = diet.present_backprop(filled("diet-accuracy", errors, seconds))
    assert verdicts(shown) == {
        "on-par": [HOLDS],
        "up-to-75": [HOLDS, HOLDS, FAILS],
        "higher-rates": [HOLDS, FAILS],
        "little-impact": [HOLDS, HOLDS, HOLDS, FAILS],
        "speeds-up": [HOLDS],
    }
    apart = diet.present_backprop(filled("diet-accuracy", {"random-50": 26.0}))
    assert verdicts(apart)["on-par"] == [FAILS]


def test_pruning_methods_are_judged_by_the_posters_sentences():
    errors = {"el2n-25": 24.0, "el2n-50": 19.0, "diet-50": 23.0, "diet-62.5": 10.0}
    seconds = {"el2n-25": 15.0, "diet-50": 16.0, "diet-62.5": 12.0}
    found = filled("diet-el2n", errors, seconds)
    shown = diet.present_pruning(found)
    assert verdicts(shown) == {
        "limited": [HOLDS, FAILS],
        "on-top": [FAILS, HOLDS],
        "stronger": [HOLDS, FAILS],
        "no-sacrifice": [FAILS, HOLDS, HOLDS, HOLDS],
    }
    (table,) = shown.tables
    assert table.rows[1][:2] == ("EL2N 25 %", table.rows[1][1])
    assert table.rows[1][1].startswith("75.87")


def test_the_remark_on_cifar_10_is_judged_by_every_trend():
    shown = diet.present_remarked(filled("diet-cifar10", {}))
    assert {quote for quote, _ in shown.findings} == {"similar"}
    assert len(shown.findings) > 10
    small = SCALES["small"]
    assert {panel.setting.recipe.data for panel in diet.remarked(small)} == {"cifar10"}
    assert SCALES["full"].remarked.recipe.model == "resnet20"


def test_a_row_of_table_1_agrees_where_its_ratio_lies_on_the_posters_side():
    seconds = {"sb-50": 22.0, "random-50": 12.0, "diet-50": 17.0}
    shown = diet.present_runtime(filled("diet-runtime", {}, seconds))
    found = verdicts(shown)
    assert found["sb"] == [FAILS]
    assert found["random"] == found["diet-50"] == [HOLDS]
    assert "baseline" not in found
    (table,) = shown.tables
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
    assert judging.per_epoch(run, 10) == pytest.approx(1.0)
    assert judging.preparing(run) == 5.0
    once = replace(run, points=tuple(points[-1:]))
    assert judging.per_epoch(once, 10) == pytest.approx(1.2)


def looked(name, numbers):
    """An item's panels, filled with one packed list of numbers for each entry and seed."""
    panels = ITEM[name].panels(SCALE)
    found = []
    for panel, lists in zip(panels, numbers, strict=True):
        (entry,) = panel.entries
        (probe,) = entry.plan.probes
        key = "counts" if probe.record_name.startswith("Selections") else "ranks"
        runs = []
        for seed, values in enumerate(lists):
            seen = Observation(probe=probe.record_name, progress=1.0, seen={key: pack(values)})
            runs.append(replace(fixture_run(seed=seed), observations=(seen,)))
        found.append(PanelData(panel, (entry.arm(runs),)))
    return Found(SCALE, tuple(found))


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
    for name, present in (
        ("diet-nets", diet.present_nets),
        ("diet-overlap", diet.present_selections),
    ):
        shown = present(looked(name, (mine, theirs)))
        assert [finding.verdict for _, finding in shown.findings] == [verdict] * 3
        assert shown.tables[0].rows[-1] == ("chance", "25", "50", "75")


def test_the_combined_rank_is_that_of_scores_and_selections_together():
    scores = [torch.arange(256)] * 2
    counts = [torch.arange(256).flip(0) // 8] * 2
    shown = diet.present_images(looked("diet-images", (counts, scores)))
    rows = {row[0]: row for row in shown.tables[0].rows}
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
    shown = diet.present_classes(looked("diet-classes", (counts, scores)))
    ((_, finding),) = shown.findings
    assert finding.verdict is verdict
    (table,) = shown.tables
    rows = {row[0]: row for row in table.rows}
    assert set(rows) == set(few_digits().class_names)
    mean = sum(float(each[labels == 0].double().mean()) for each in counts) / 3
    zero = rows[few_digits().class_names[0]]
    assert float(zero[1].split()[0]) == pytest.approx(100 * (1 - mean / scale), abs=0.01)
    assert zero[2].startswith("100.00")
