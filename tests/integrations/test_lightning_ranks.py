"""Two processes of Lightning's DDP share the data, stay together, and go on together."""

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("lightning")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lightning")
    ended = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(Path(__file__).with_name("lightning_ranks.py"))),
            str(folder),
        ],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests" / "fixtures"))),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-6000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", ["selective", "coins", "recorded"])
def test_each_rank_trains_on_its_own_part_of_the_data_in_another_order_each_epoch(ranks, name):
    one, other = (rank[name] for rank in ranks)
    assert one["epochs"] == other["epochs"]
    first = one["epochs"][0]
    rows = [list(chain(*each["trained"][:first])) for each in (one, other)]
    assert sorted(rows[0] + rows[1]) == sorted(set(rows[0] + rows[1]))
    assert len(rows[0]) >= 192
    assert set(chain(*one["trained"][first:])) & set(rows[1])  # an example moves from rank to rank
    assert one["weight"] == other["weight"]


@pytest.mark.parametrize("name", ["selective", "coins", "recorded"])
def test_ranks_go_on_bit_for_bit_within_an_epoch(ranks, name):
    for each in (rank[name] for rank in ranks):
        assert 0 < len(each["resumed"]) < len(each["trained"])
        assert each["resumed"] == each["trained"][-len(each["resumed"]) :]
        assert each["same"]
