from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits
from fixture_papers import fixture_panel, fixture_scale
from fixture_runs import fixture_run
from hypothesis import given
from hypothesis import strategies as st

from reproductions.drawing import draw_images
from reproductions.jiang2019 import inside
from reproductions.measures import follow, lowest, over_training
from reproductions.papers import FIGURES
from reproductions.probes import LossRanks, pack
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.records.schema import Observation

SCALE = fixture_scale()


def filled(name, seen, seeds=3):
    """A figure's panel, with runs in which its probes saw what `seen(key, seed)` says."""
    (panel,) = FIGURES[name].panels(SCALE)[:1]
    runs = {
        arm.key: [observing(arm.plan.probes, seen(arm.key, seed), seed) for seed in range(seeds)]
        for arm in panel.arms
    }
    return fixture_panel(panel, runs)


def observing(probes, seen, seed):
    (probe,) = probes
    observations = [
        Observation(probe=repr(probe), progress=(place + 1) / len(seen), seen=each)
        for place, each in enumerate(seen)
    ]
    return replace(fixture_run(seed=seed), observations=tuple(observations))


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


NUMBERS = st.lists(st.integers(0, 9), min_size=2, max_size=20)
SHARES = st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0])


@given(NUMBERS, SHARES)
def test_the_lowest_fill_their_share_and_those_that_tie_divide_what_is_left(numbers, share):
    found = lowest(torch.tensor(numbers), share).tolist()
    room = max(1, round(share * len(numbers)))
    assert sum(found) == pytest.approx(room)
    for number, part in zip(numbers, found, strict=True):
        lower, equal = sum(n < number for n in numbers), numbers.count(number)
        assert part == pytest.approx(min(1.0, max(0.0, (room - lower) / equal)))


def test_a_number_is_followed_over_the_length_of_a_run_and_averaged_from_a_share_of_it_on():
    seen = [
        Observation(probe="LossRanks()", progress=at, seen={"moved": n})
        for at, n in ((0.25, 9), (0.5, 2), (1, 4))
    ]
    runs = frame_of([replace(fixture_run(), observations=tuple(seen))])
    curve = follow(runs, LossRanks, lambda each: each.moved, 8)
    assert (list(curve.x), list(curve.mean)) == ([2, 4, 8], [9, 2, 4])
    assert [*over_training(runs, LossRanks, lambda each: each.moved)] == [5]
    assert [*over_training(runs, LossRanks, lambda each: each.moved, since=0.5)] == [3]
