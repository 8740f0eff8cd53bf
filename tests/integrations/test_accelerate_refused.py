"""What Accelerate is set to and selection cannot follow is said before training starts."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("accelerate")

from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler
from accelerate.utils import DistributedType
from fixture_loaders import Numbered
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations._accelerate import _shard
from selective_backprop.integrations._accelerate._shard import own_shard


def accelerator(**options):
    """What is asked of an accelerator, of the first of two processes."""
    chosen = {
        "num_processes": 2,
        "process_index": 0,
        "distributed_type": DistributedType.MULTI_CPU,
        "split_batches": False,
        "even_batches": True,
        "parallelism_config": None,
    }
    return SimpleNamespace(**(chosen | options))


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(_shard, "broadcast_object_list", lambda values: values)
    with unhooked():
        yield


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"split_batches": True}, "batch size by 2"),
        ({"even_batches": False}, "Set even_batches=True"),
        ({"distributed_type": DistributedType.DEEPSPEED}, "DeepSpeed"),
        (
            {"parallelism_config": SimpleNamespace(tp_size=2, cp_size=1)},
            "tp_size=2",
        ),
    ],
)
def test_a_setting_that_selection_cannot_follow_is_refused(options, reason):
    with pytest.raises(sb.ConfigurationError, match=reason):
        own_shard(accelerator(**options), DataLoader(Numbered(8), 4))


class Odd(Sampler):
    def __iter__(self):
        return iter(range(8))

    def __len__(self):
        return 8


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sampler": Odd()}, r"\(Odd\)"),
        ({"sampler": RandomSampler(range(8), replacement=True)}, "more than once"),
        ({"sampler": RandomSampler(range(8), num_samples=4)}, "4 of 8"),
    ],
)
def test_an_order_that_may_differ_between_processes_is_refused(options, reason):
    with pytest.raises(sb.LoaderError, match=reason):
        own_shard(accelerator(), DataLoader(Numbered(8), batch_size=4, **options))


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_process_has_its_own_part_of_one_order(shuffled):
    inside = SeedableRandomSampler(range(10)) if shuffled else None
    batches = DataLoader(Numbered(10), batch_size=2, sampler=inside).batch_sampler
    shard = BatchSamplerShard(batches, 2, 0)
    loader = DataLoader(Numbered(10), batch_sampler=shard)
    drawn = []
    for rank in range(2):
        own = own_shard(accelerator(process_index=rank), loader)
        assert type(own.batch_sampler) is BatchSampler
        assert isinstance(own.sampler, DistributedSampler)
        own.sampler.set_epoch(1)
        drawn.append([index for batch in own.batch_sampler for index in batch])
    assert sorted(drawn[0] + drawn[1]) == list(range(10))
    assert (drawn[0] != sorted(drawn[0])) == shuffled
    assert loader.batch_sampler is shard


def test_a_loader_that_is_dealt_out_already_is_left_as_it_is():
    sampler = DistributedSampler(range(10), 2, 0)
    loader = DataLoader(Numbered(10), batch_size=2, sampler=sampler)
    assert own_shard(accelerator(), loader).sampler is sampler


def test_the_seed_may_be_any_that_torch_takes():
    torch.manual_seed(2**63 + 5)
    loader = DataLoader(Numbered(10), batch_size=2, shuffle=True)
    sampler = own_shard(accelerator(), loader).sampler
    sampler.set_epoch(3)
    assert len(list(sampler)) == 5
    torch.manual_seed(0)
