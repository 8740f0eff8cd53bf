from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_panel, fixture_scale, fixture_setting, judged
from fixture_runs import fixture_run

from reproductions.drawing import draw_images
from reproductions.evidence import Evidence
from reproductions.jiang2019 import inside
from reproductions.papers import FIGURES
from reproductions.probes import KEPT, pack
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.records.schema import Observation

HOLDS, FAILS, _ = Verdict
SCALE = fixture_scale()


def filled(name, seen, seeds=3):
    """A figure's panel, with runs in which its probes saw what `seen(key, seed)` says."""
    (panel,) = FIGURES[name].panels(SCALE)[:1]
    return fixture_panel(
        panel,
        {
            arm.key: [
                observing(arm.plan.probes, seen(arm.key, seed), seed) for seed in range(seeds)
            ]
            for arm in panel.arms
        },
    )


def observing(probes, seen, seed):
    (probe,) = probes
    observations = [
        Observation(probe=probe.record_name, progress=(place + 1) / len(seen), seen=each)
        for place, each in enumerate(seen)
    ]
    return replace(fixture_run(seed=seed), observations=tuple(observations))


def verdicts(name, panel):
    return [(quote, finding.verdict) for quote, finding in judged(name, panel)]


def agreement(seed, early, late):
    """Parts that exceed random ones by so much, in the first half of an epoch and after it."""

    def look(by):
        by += 0.001 * seed * by
        return {
            "cosine": {"high-loss": [0.5 + by] * 4, "random": [0.5] * 4},
            "sign": {"high-loss": [80 + 10 * by] * 4, "random": [80] * 4},
        }

    return [look(early), *[look(late)] * 3]


@pytest.mark.parametrize(("by", "verdict"), [(0.2, HOLDS), (-0.2, FAILS)])
def test_gradients_of_high_losses_are_judged_after_the_first_epoch(by, verdict):
    panel = filled("fig-5", lambda key, seed: agreement(seed, early=-9 * by, late=by))
    assert verdicts("fig-5", panel) == [("ahead", verdict)] * 8 + [("signs", verdict)]
    for share in KEPT:
        claims = [finding.claim for _, finding in judged("fig-5", panel)[:8]]
        assert sum(percent(share) in claim for claim in claims) == 2


def test_a_share_is_judged_by_its_own_numbers():
    def seen(key, seed):
        (look,) = agreement(seed, early=0.2, late=0.2)[:1]
        look["cosine"]["high-loss"][2] = 0.4 + 0.01 * seed
        return [look] * 4

    found = judged("fig-5", filled("fig-5", seen))
    failed = [each.claim for _, each in found if each.verdict is FAILS]
    assert len(failed) == 1
    assert "50 %" in failed[0]
    assert "cosine" in failed[0]


def test_the_first_looks_and_the_last_stand_in_the_table():
    panel = filled("fig-5", lambda key, seed: agreement(0, early=0.1, late=0.2) * 2)
    text = inside.gradients_table(panel).to_markdown()
    for epoch in ("0.2", "0.5", "0.8", "2.0"):  # eight looks in two epochs
        assert f"epoch {epoch}" in text


def test_what_is_ours_is_drawn_and_not_judged():
    def drawn(key, seed):
        kinds = {"high-loss": 0.5, "random": 0.4}
        return [{"cosine": kinds, "sign": kinds}] * 2

    def bands(key, seed):
        return [{"confidence": [90, 80, 70, 60, 30], "accuracy": [99, 99, 90, 50, 10]}] * 2

    for name, seen in (("ours-gradients", drawn), ("ours-bands", bands)):
        evidence = Evidence(SCALE, (filled(name, seen),))
        assert FIGURES[name].draw(evidence) is not None
        assert FIGURES[name].tables(evidence)
        assert not FIGURES[name].claims


def confidences(harder, easier, twentieth=0.0):
    """What a figure sees where SB's percentiles exceed Traditional's by so much."""

    def seen(key, seed):
        by = (1 + 0.01 * seed) if key == "sb" else 0
        values = [30 + by * harder] * 50 + [90 + by * easier] * 50
        values[20] += by * twentieth
        return [{"confidence": [*values, 90 + by * easier], "accuracy": values}]

    return seen


@pytest.mark.parametrize(
    ("harder", "easier", "expected"),
    [(8, -2, [HOLDS, HOLDS]), (-8, -7, [FAILS, FAILS]), (8, -7, [HOLDS, FAILS])],
)
def test_confidence_is_judged_where_it_is_gained_and_what_it_costs(harder, easier, expected):
    found = verdicts("fig-8", filled("fig-8", confidences(harder, easier)))
    assert found == [("caption", verdict) for verdict in expected]


@pytest.mark.parametrize(
    ("harder", "easier", "twentieth", "expected"),
    [
        (4, -0.5, 0, [HOLDS, HOLDS, HOLDS, HOLDS]),
        (4, -2.0, 0, [HOLDS, FAILS, HOLDS, HOLDS]),
        (4, -0.5, -9, [HOLDS, HOLDS, FAILS, HOLDS]),
        (-4, 0.0, 0, [FAILS, HOLDS, FAILS, FAILS]),
    ],
)
def test_accuracy_is_judged_by_percentile_and_as_a_whole(harder, easier, twentieth, expected):
    panel = filled("fig-9", confidences(harder, easier, twentieth))
    found = verdicts("fig-9", panel)
    assert [quote for quote, _ in found] == ["caption", "caption", "twentieth", "all"]
    assert [verdict for _, verdict in found] == expected


def test_the_paper_s_twentieth_percentile_stands_beside_ours():
    for name, ours, papers in (("fig-8", "30.00", "55"), ("fig-9", "30.00", "29")):
        evidence = Evidence(SCALE, (filled(name, confidences(0, 0)),))
        (table,) = FIGURES[name].tables(evidence)
        row = next(row for row in table.rows if row[0] == "SB")
        assert row[1].startswith(ours)
        assert row[2] == papers


@pytest.mark.parametrize(
    ("epochs", "evaluations", "epoch"),
    [(20, 12, 10.0), (5, 4, 5.0), (160, 50, 9.6), (13, 12, 9.75)],
)
def test_a_snapshot_is_of_the_look_nearest_to_epoch_ten(epochs, evaluations, epoch):
    setting = fixture_setting(epochs=epochs, evaluations=evaluations)
    (panel,) = FIGURES["fig-8"].panels(fixture_scale(setting))
    moments = [probe.moment for arm in panel.arms for probe in arm.plan.probes]
    assert moments == pytest.approx([epoch / epochs] * 2)


@pytest.mark.parametrize(("by", "verdict"), [(0.1, HOLDS), (-0.1, FAILS)])
def test_odds_are_judged_by_how_far_ranks_move(by, verdict):
    def seen(key, seed):
        moved = 0.3 + (by + 0.01 * seed * by if key == "sb" else 0)
        followed = [0.1, 0.2, 0.3, 0.4, 0.5]
        return [{"followed": followed}, {"followed": followed, "moved": moved}]

    assert verdicts("fig-15", filled("fig-15", seen)) == [("fluctuates", verdict)]


def ranked(order):
    return [{"followed": []}, {"followed": [], "moved": 0.1, "ranks": pack(torch.tensor(order))}]


def test_seeds_share_the_hardest_images_where_they_agree_on_them():
    rising = list(range(20))
    same = filled("fig-2", lambda key, seed: ranked([*rising[:18], *rising[18:][:: (-1) ** seed]]))
    other = filled("fig-2", lambda key, seed: ranked(rising[:: (-1) ** seed]), seeds=2)
    assert inside.shared(same, -1).mean == 100
    assert inside.shared(same, 1).mean == 100
    assert inside.shared(other, -1).mean == 0
    assert inside.shared(filled("fig-2", lambda *_: ranked(rising), seeds=1), 1).seeds == 0


@pytest.mark.parametrize(("rank", "verdict"), [(0.05, HOLDS), (0.3, FAILS)])
def test_images_are_easy_over_the_course_where_their_mean_rank_is_low(rank, verdict):
    def seen(key, seed):
        easy = [int(65535 * rank) + seed] * inside.SHOWN
        return ranked([*easy, *[60000] * 90])

    assert verdicts("fig-2", filled("fig-2", seen)) == [("easy", verdict)]


def test_the_easiest_images_come_first_and_the_hardest_last():
    order = torch.tensor([3, 0, 2, 1])
    shown = filled("fig-2", lambda key, seed: ranked(order.tolist()))
    assert inside.easiest_first(shown) == [1, 3, 2, 0]


def test_images_lie_in_reading_order_with_their_classes():
    from matplotlib.figure import Figure

    data, indices = few_digits(), [5, 7, 2, 11]
    panel = Figure().subplots()
    draw_images(panel, data, indices, "some")
    (shown,) = panel.images
    sheet = torch.tensor(shown.get_array())
    for place, index in enumerate(indices):
        top, left = place // 2 * 12, place % 2 * 9
        assert torch.equal(sheet[top : top + 8, left : left + 8, 1], data.train_inputs[index, 0])
    names = [data.class_names[int(data.train_labels[index])] for index in indices]
    assert [text.get_text() for text in panel.texts] == names
