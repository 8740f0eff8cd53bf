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
    chosen = {"num_processes": 2, "process_index": 0, "parallelism_config": None}
    chosen |= {"split_batches": False, "even_batches": True}
    return SimpleNamespace(**{"distributed_type": DistributedType.MULTI_CPU} | chosen | options)


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
        ({"parallelism_config": SimpleNamespace(tp_size=2, cp_size=1)}, "tp_size=2"),
    ],
)
def test_a_setting_that_selection_cannot_follow_is_refused(options, reason):
    with pytest.raises(sb.ConfigurationError, match=reason):
        own_shard(accelerator(**options), DataLoader(Numbered(8), 4))


class Odd(Sampler):
    def __iter__(self):
        return iter(range(8))


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        (Odd(), r"\(Odd\)"),
        (RandomSampler(range(8), replacement=True), "more than once"),
        (RandomSampler(range(8), num_samples=4), "4 of 8"),
    ],
)
def test_an_order_that_may_differ_between_processes_is_refused(sampler, reason):
    with pytest.raises(sb.LoaderError, match=reason):
        own_shard(accelerator(), DataLoader(Numbered(8), batch_size=4, sampler=sampler))


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_process_has_its_own_part_of_one_order_by_any_seed_that_torch_takes(shuffled):
    torch.manual_seed(2**63 + 5)
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
    torch.manual_seed(0)
    assert sorted(drawn[0] + drawn[1]) == list(range(10))
    assert (drawn[0] != sorted(drawn[0])) == shuffled
    assert loader.batch_sampler is shard
    dealt = DataLoader(Numbered(10), batch_size=2, sampler=DistributedSampler(range(10), 2, 0))
    assert own_shard(accelerator(), dealt).sampler is dealt.sampler
