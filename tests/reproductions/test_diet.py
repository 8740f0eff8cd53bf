import math
from dataclasses import replace

import pytest
import torch
from fixture_lab import carry_out, few_digits
from fixture_papers import fixture_scale, fixture_setting
from fixture_runs import fixture_run, fixture_seeds

from reproductions import training
from reproductions.diet_sb import figures as diet
from reproductions.figures import Found, PanelData
from reproductions.jiang2019.scales import SCALES
from reproductions.probes import pack
from selective_backprop.lab.analysis.verdict import Verdict
from selective_backprop.lab.records.schema import Observation

HOLDS, FAILS, OPEN = Verdict
SCALE = replace(fixture_scale(), pruned=fixture_setting(epochs=10, limit=256))
SEVEN = [
    "Traditional",
    "Random",
    "SB",
    "Stale-SB",
    "EL2N",
    "EL2N + random",
    "Diet-SB",
]
ITEM = {item.name: item for item in diet.FIGURES}


def trained_on(plan):
    """The share of an epoch that a run trains on once it selects."""
    kept = plan.settings.keep if plan.arm in {"el2n", "el2n-random", "diet-sb"} else 1.0
    return kept * (1.0 if plan.arm in {"traditional", "el2n"} else plan.settings.rate)


def test_what_is_pruned_is_the_same_for_every_strategy():
    (panel,) = diet.accuracy(SCALE)
    shares = [trained_on(entry.plan) for entry in panel.entries]
    assert shares == pytest.approx([1.0, *[0.75] * 4, *[0.5] * 4, *[0.25] * 4])
    (panel,) = diet.seven(SCALE)
    assert [entry.label for entry in panel.entries] == SEVEN
    assert [trained_on(entry.plan) for entry in panel.entries] == pytest.approx([1, *[0.5] * 6])


@pytest.mark.filterwarnings("ignore:no example of class")
@pytest.mark.parametrize("place", [4, 5, 6])
def test_what_pruning_is_expected_to_cost_is_about_what_it_costs(place):
    short = replace(SCALE, pruned=fixture_setting(epochs=5, limit=256, evaluations=1))
    entry = diet.seven(short)[0].entries[place]
    run = carry_out(entry.plan, few_digits())
    assert run.points[-1].cost == pytest.approx(training.cost(entry.plan), rel=0.1)
    scored, trained = training.passes(entry.plan)
    assert 2 <= scored < 7  # two models score everything, whatever follows
    assert trained > 5 * trained_on(entry.plan)


@pytest.mark.parametrize("scale", [SCALES["small"], SCALES["full"]], ids=lambda scale: scale.name)
def test_scores_and_selections_are_of_the_same_examples(scale):
    alike = {(each.recipe.data, each.limit) for each in (scale.pruned, *scale.scored)}
    assert len(alike) == 1
    assert len({each.recipe.model for each in scale.scored}) == 2


def accuracies(of):
    """The accuracy item, whose runs end at the error `of(key, share)`, a little apart."""
    (panel,) = diet.accuracy(SCALE)
    arms = []
    for entry in panel.entries:
        error = of(entry.key, 1 - trained_on(entry.plan))
        arms.append(entry.arm(fixture_seeds(entry.plan.arm, [error, error + 0.1, error + 0.3])))
    return Found(SCALE, (PanelData(panel, tuple(arms)),))


def test_accuracy_is_judged_against_random_at_the_same_share():
    ends = {"traditional": 5.0, "random": 20.0, "sb": 10.0, "el2n": 30.0, "diet": 20.0}

    def slightly(key, share):
        return ends[key] + 8 * share * (key == "sb")

    shown = diet.present_accuracy(accuracies(slightly))
    verdicts = [finding.verdict for finding in shown.findings]
    assert verdicts == [HOLDS, FAILS, OPEN] * 3
    (table,) = shown.tables
    assert [row[0] for row in table.rows] == [
        "Random",
        "SB",
        "EL2N",
        "Diet-SB",
        "Traditional, nothing pruned",
    ]
    assert [cell.split()[0] for cell in table.rows[1][1:]] == ["87.87", "85.87", "83.87"]
    assert [cell.split()[0] for cell in table.rows[2][1:]] == ["69.87"] * 3


def test_runtimes_are_judged_in_wall_seconds():
    (panel,) = diet.seven(SCALE)
    seconds = {"traditional": 20.0, "sb": 15.0, "diet": 17.0}
    arms = []
    for entry in panel.entries:
        runs = [
            replace(
                fixture_run(seed=seed, seconds=seconds.get(entry.key, 9.0) + 0.1 * seed * seed),
                end={"status": "finished", "meters": {"prepared_cost": 0.5}},
            )
            for seed in range(3)
        ]
        if entry.key == "diet":
            runs = [
                replace(
                    run,
                    points=tuple(replace(p, seconds=p.seconds + 0.01 * seed) for p in run.points),
                )
                for seed, run in enumerate(runs)
            ]
        arms.append(entry.arm(runs))
    shown = diet.present_runtime(Found(SCALE, (PanelData(panel, tuple(arms)),)))
    assert [finding.verdict for finding in shown.findings] == [HOLDS, FAILS]
    (table,) = shown.tables
    assert [row[0] for row in table.rows] == SEVEN
    assert table.rows[0][3] == "1.00×"


def looked(name, numbers):
    """An item's panels, filled with one packed list of numbers for each entry and seed."""
    panels = ITEM[name].panels(SCALE)
    found = []
    for panel, lists in zip(panels, numbers, strict=True):
        (entry,) = panel.entries
        (probe,) = entry.plan.probes
        key = "counts" if probe.words.startswith("Selections") else "ranks"
        runs = []
        for seed, values in enumerate(lists):
            seen = Observation(probe=probe.words, progress=1.0, seen={key: pack(values)})
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
        assert [finding.verdict for finding in shown.findings] == [verdict] * 3
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
    (finding,) = shown.findings
    assert finding.verdict is verdict
    (table,) = shown.tables
    assert [row[0] for row in table.rows] == list(few_digits().class_names)
    mean = sum(float(each[labels == 0].double().mean()) for each in counts) / 3
    assert float(table.rows[0][1].split()[0]) == pytest.approx(100 * (1 - mean / scale), abs=0.01)
    assert table.rows[0][2].startswith("100.00")
    assert not math.isnan(float(table.rows[9][2].split()[0]))
