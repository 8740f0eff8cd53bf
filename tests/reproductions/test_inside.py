from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_scale
from fixture_runs import fixture_run

from reproductions.jiang2019 import bands, easiest, gradients, odds, pictures
from reproductions.jiang2019.inside import FIG_2, FIG_5, FIG_8, FIG_9, FIG_15
from reproductions.jiang2019.items import Filled, Found
from reproductions.jiang2019.judging import Verdict
from reproductions.jiang2019.packing import pack
from selective_backprop.lab.records.schema import Observation

AGREES, DISAGREES, UNCLEAR = Verdict
SCALE = fixture_scale()


def filled(item, seen, seeds=3):
    """An item's panel, with runs in which its probes saw what `seen(key, seed)` says."""
    (panel,) = item.panels(SCALE)[:1]
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
    return Filled(panel, tuple(arms))


def verdicts(findings):
    return [finding.verdict for finding in findings]


@pytest.mark.parametrize(("sign", "verdict"), [(1, AGREES), (-1, DISAGREES)])
def test_gradients_of_high_losses_are_judged_by_how_near_they_point(sign, verdict):
    def seen(key, seed):
        by = sign * (0.1 + 0.01 * seed)
        return [
            {
                "cosine": {"high-loss": 0.5 + by, "random": 0.5},
                "sign": {"high-loss": 60 + by, "random": 60},
            }
        ] * 2

    assert (
        verdicts(gradients.present(Found(SCALE, (filled(FIG_5, seen),))).findings) == [verdict] * 2
    )


@pytest.mark.parametrize(("sign", "verdict"), [(1, AGREES), (-1, DISAGREES)])
def test_confidence_is_judged_where_it_is_lost_and_where_it_is_gained(sign, verdict):
    def seen(key, seed):
        by = sign * (5 + seed) if key == "sb" else 0
        return [
            {"confidence": [90 - by, 80, 70, 60, 30 + by], "accuracy": [99, 99, 90, 50 + by, 10]}
        ] * 2

    assert verdicts(bands.sure(filled(FIG_8, seen))) == [verdict] * 2
    assert verdicts(bands.right(filled(FIG_9, seen))) == [verdict]


@pytest.mark.parametrize(("by", "verdict"), [(0.1, AGREES), (-0.1, DISAGREES)])
def test_odds_are_judged_by_how_far_ranks_move(by, verdict):
    def seen(key, seed):
        moved = 0.3 + (by + 0.01 * seed * by if key == "sb" else 0)
        followed = [0.1, 0.2, 0.3, 0.4, 0.5]
        return [{"followed": followed}, {"followed": followed, "moved": moved}]

    assert verdicts(odds._judge(filled(FIG_15, seen))) == [verdict]


def ranked(order):
    return [{"followed": []}, {"followed": [], "moved": 0.1, "ranks": pack(torch.tensor(order))}]


def test_images_are_hard_for_good_where_seeds_agree_on_them():
    rising = list(range(20))
    same = filled(FIG_2, lambda key, seed: ranked([*rising[:18], *rising[18:][:: (-1) ** seed]]))
    other = filled(FIG_2, lambda key, seed: ranked(rising[:: (-1) ** seed]), seeds=2)
    for shown, verdict, words in ((same, AGREES, "+90.00"), (other, DISAGREES, "−10.00")):
        (finding,) = easiest._judge(shown)
        assert finding.verdict is verdict
        assert finding.words.startswith(words)
    (alone,) = easiest._judge(filled(FIG_2, lambda key, seed: ranked(rising), seeds=1))
    assert alone.verdict is UNCLEAR


def test_the_easiest_images_come_first_and_the_hardest_last():
    order = torch.tensor([3, 0, 2, 1])
    assert easiest._order(filled(FIG_2, lambda key, seed: ranked(order.tolist()))) == [1, 3, 2, 0]


def test_images_lie_in_reading_order_with_their_classes():
    from matplotlib.figure import Figure

    data, indices = few_digits(), [5, 7, 2, 11]
    panel = Figure().subplots()
    pictures.draw_images(panel, data, indices, "some")
    (shown,) = panel.images
    sheet = torch.tensor(shown.get_array())
    for place, index in enumerate(indices):
        top, left = place // 2 * 12, place % 2 * 9
        assert torch.equal(sheet[top : top + 8, left : left + 8, 1], data.train_images[index, 0])
    names = [data.class_names[int(data.train_labels[index])] for index in indices]
    assert [text.get_text() for text in panel.texts] == names


def test_items_say_what_is_theirs_and_what_is_not():
    for item in (FIG_2, FIG_5, FIG_8, FIG_9, FIG_15):
        assert any("ours" in words for words in item.reported)
