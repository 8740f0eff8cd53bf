from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_scale
from fixture_runs import fixture_run

from reproductions.drawing import draw_images
from reproductions.figures import Found, PanelData
from reproductions.jiang2019 import inside
from reproductions.papers import FIGURES
from reproductions.probes import pack
from selective_backprop.lab.analysis.verdict import Verdict
from selective_backprop.lab.records.schema import Observation

HOLDS, FAILS, OPEN = Verdict
SCALE = fixture_scale()


def filled(name, seen, seeds=3):
    """A figure's panel, with runs in which its probes saw what `seen(key, seed)` says."""
    (panel,) = FIGURES[name].panels(SCALE)[:1]
    arms = []
    for entry in panel.entries:
        runs = []
        for seed in range(seeds):
            (words,) = (probe.words for probe in entry.plan.probes)
            looked = seen(entry.key, seed)
            progress = [(place + 1) / len(looked) for place in range(len(looked))]
            observations = [
                Observation(probe=words, progress=at, seen=each)
                for at, each in zip(progress, looked, strict=True)
            ]
            runs.append(replace(fixture_run(seed=seed), observations=tuple(observations)))
        arms.append(entry.arm(runs))
    return PanelData(panel, tuple(arms))


def verdicts(findings):
    return [finding.verdict for finding in findings]


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_gradients_of_high_losses_are_judged_by_how_near_they_point(sign, verdict):
    def seen(key, seed):
        by = sign * (0.1 + 0.01 * seed)
        return [
            {
                "cosine": {"high-loss": 0.5 + by, "random": 0.5},
                "sign": {"high-loss": 60 + by, "random": 60},
            }
        ] * 2

    shown = inside.present_gradients(Found(SCALE, (filled("fig-5", seen),)))
    assert verdicts(shown.findings) == [verdict] * 2


@pytest.mark.parametrize(("sign", "verdict"), [(1, HOLDS), (-1, FAILS)])
def test_confidence_is_judged_where_it_is_lost_and_where_it_is_gained(sign, verdict):
    def seen(key, seed):
        by = sign * (5 + seed) if key == "sb" else 0
        return [
            {"confidence": [90 - by, 80, 70, 60, 30 + by], "accuracy": [99, 99, 90, 50 + by, 10]}
        ] * 2

    assert verdicts(inside.judge_confidence(filled("fig-8", seen))) == [verdict] * 2
    assert verdicts(inside.judge_accuracy(filled("fig-9", seen))) == [verdict]


@pytest.mark.parametrize(("by", "verdict"), [(0.1, HOLDS), (-0.1, FAILS)])
def test_odds_are_judged_by_how_far_ranks_move(by, verdict):
    def seen(key, seed):
        moved = 0.3 + (by + 0.01 * seed * by if key == "sb" else 0)
        followed = [0.1, 0.2, 0.3, 0.4, 0.5]
        return [{"followed": followed}, {"followed": followed, "moved": moved}]

    assert verdicts(inside.judge_odds(filled("fig-15", seen))) == [verdict]


def ranked(order):
    return [{"followed": []}, {"followed": [], "moved": 0.1, "ranks": pack(torch.tensor(order))}]


def test_images_are_hard_for_good_where_seeds_agree_on_them():
    rising = list(range(20))
    same = filled("fig-2", lambda key, seed: ranked([*rising[:18], *rising[18:][:: (-1) ** seed]]))
    other = filled("fig-2", lambda key, seed: ranked(rising[:: (-1) ** seed]), seeds=2)
    for shown, verdict, words in ((same, HOLDS, "+90.00"), (other, FAILS, "−10.00")):
        (finding,) = inside.judge_hardest(shown)
        assert finding.verdict is verdict
        assert finding.measured.startswith(words)
    (alone,) = inside.judge_hardest(filled("fig-2", lambda key, seed: ranked(rising), seeds=1))
    assert alone.verdict is OPEN


def test_the_easiest_images_come_first_and_the_hardest_last():
    order = torch.tensor([3, 0, 2, 1])
    shown = filled("fig-2", lambda key, seed: ranked(order.tolist()))
    assert inside.order_of(shown) == [1, 3, 2, 0]


def test_images_lie_in_reading_order_with_their_classes():
    from matplotlib.figure import Figure

    data, indices = few_digits(), [5, 7, 2, 11]
    panel = Figure().subplots()
    draw_images(panel, data, indices, "some")
    (shown,) = panel.images
    sheet = torch.tensor(shown.get_array())
    for place, index in enumerate(indices):
        top, left = place // 2 * 12, place % 2 * 9
        assert torch.equal(sheet[top : top + 8, left : left + 8, 1], data.train_images[index, 0])
    names = [data.class_names[int(data.train_labels[index])] for index in indices]
    assert [text.get_text() for text in panel.texts] == names
