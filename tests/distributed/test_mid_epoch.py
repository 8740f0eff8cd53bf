"""States that all ranks save after the same batch go on together, bit for bit."""

import pytest
from fixture_rank_tasks import save_and_go_on
from fixture_ranks import Failed
from fixture_training import STRATEGIES


@pytest.mark.parametrize("name", ["selective", "stale", "recorded, rescored"])
def test_messages_that_travel_while_a_batch_is_trained_on_change_nothing(processes, name):
    pair = processes.form(2)
    late, at_once = (pair.run(save_and_go_on, name, (48, 48), overlap) for overlap in (True, False))
    for (whole, resumed), (expected, _) in zip(late, at_once, strict=True):
        assert resumed == whole == expected


KINDS = [(name, (72, 40)) for name in STRATEGIES if "pipelined" not in name]
KINDS += [(name, (48,) * 3) for name in ("traditional", "selective", "stale", "recorded, rescored")]


@pytest.mark.parametrize(("name", "shards"), KINDS, ids=str)
def test_from_whichever_batch_ranks_go_on_they_do_as_if_they_had_not_stopped(
    processes, name, shards
):
    for answer in processes.form(len(shards)).run(save_and_go_on, name, shards):
        assert not isinstance(answer, Failed), answer
        whole, resumed = answer
        assert resumed == whole
