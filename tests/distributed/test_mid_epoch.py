"""States that all ranks save after the same batch go on together, bit for bit."""

import pytest
from fixture_rank_tasks import save_and_go_on
from fixture_ranks import Failed
from fixture_training import STRATEGIES


@pytest.mark.parametrize("shards", [(48, 48), (72, 40), (48, 48, 48), (60, 52, 44)], ids=str)
@pytest.mark.parametrize("name", [name for name in STRATEGIES if "pipelined" not in name])
def test_from_whichever_batch_ranks_go_on_they_do_as_if_they_had_not_stopped(
    processes, name, shards
):
    for answer in processes.form(len(shards)).run(save_and_go_on, name, shards):
        assert not isinstance(answer, Failed), answer
        whole, resumed = answer
        assert resumed == whole
