"""A selective loader acts under Accelerate as a loader that Accelerate has prepared."""

import gc
import weakref
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("accelerate")

import accelerate
from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler
from accelerate.utils import DataLoaderConfiguration, DistributedType
from fixture_adapters import rows
from fixture_damage import refuse_all
from fixture_loaders import Numbered, flat, numbers
from fixture_open_batch import BATCH, CHANGES, EXAMPLES, LABELS, TRAININGS, Loop, train_as_told
from hypothesis import given, settings
from torch import nn
from torch.utils import data
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations._accelerate import _loader
from selective_backprop.integrations._accelerate._loader import own_shard
from selective_backprop.integrations.accelerate import AcceleratedLoader


def forget():
    """Accelerate keeps one state for the whole process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


@pytest.fixture(autouse=True)
def fresh_state():
    torch.manual_seed(0)
    yield
    forget()


LOSS_FN = nn.CrossEntropyLoss()
SEEDABLE = DataLoaderConfiguration(use_seedable_sampler=True)


class Training:
    """A loop as everybody writes it under Accelerate."""

    def __init__(self, strategy, *, accumulated=1, configuration=None, plugin=None, **options):
        self.accelerator = accelerator = accelerate.Accelerator(
            **plugin or {"cpu": True},
            gradient_accumulation_steps=accumulated,
            dataloader_config=configuration or DataLoaderConfiguration(),
        )
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loader, self.loss_fn = DataLoader(rows(100), batch_size=8, shuffle=True), LOSS_FN
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        if strategy is not None:
            parts = accelerator, self.loader, self.model, LOSS_FN, strategy
            self.loader = AcceleratedLoader(*parts, **options)
        self.steps = []

    def step(self, inputs, targets):
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.loss_fn(self.model(inputs), targets))
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.steps.append(self.accelerator.sync_gradients)

    def run(self, epochs=1, save=None, stop=0):
        """Train; save the state where `save` says when `stop` batches have been trained on."""
        for _ in range(epochs):
            for inputs, targets in self.loader:
                self.step(inputs, targets)
                if len(self.steps) == stop:
                    self.accelerator.save_state(str(save))

    @property
    def weights(self):
        return torch.cat([value.detach().flatten() for value in self.model.parameters()])


@pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")
@settings(max_examples=50)
@given(TRAININGS)
def test_although_a_batch_is_fetched_ahead_losses_are_those_of_the_batch_the_loop_has(told):
    accelerator = accelerate.Accelerator(cpu=True)
    train_as_told(told, partial(AcceleratedLoader, accelerator))


@pytest.mark.parametrize("loads", [False, True])
def test_a_batch_that_the_loop_never_got_takes_no_loss(loads):
    make = partial(AcceleratedLoader, accelerate.Accelerator(cpu=True))
    loop = Loop(sb.recorded_sb(1 / 2), LABELS["bytes"], CHANGES["float"], make)
    fresh = loop.loader.state_dict()
    # After a part of a batch was left out, the next one is refused.
    acts = iter(["train"] * 2 if loads else ["train", "drop a row"])
    with nullcontext() if loads else pytest.raises(sb.LossError, match="only 7 of the 8"):
        loop.epoch(acts, ahead=0, most=2 if loads else 9)
    if loads:
        loop.loader.load_state_dict(fresh)
    loop.epoch(iter(["train"] * 9), ahead=0, most=9)
    assert loop.check() >= EXAMPLES - 2 * BATCH


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
def test_a_stateful_loader_whose_state_accelerate_has_asked_for_can_be_selected_from():
    pytest.importorskip("torchdata")
    configuration = DataLoaderConfiguration(use_stateful_dataloader=True)
    training = Training(sb.selective_backprop(1 / 2), configuration=configuration)
    training.run(epochs=2)
    assert training.loader.stats.candidates == 200


def test_accumulated_gradients_are_stepped_on_as_the_prepared_loader_s_and_at_each_epoch_s_end():
    ended = []
    for strategy in (None, sb.traditional()):
        training = Training(strategy, accumulated=3, configuration=SEEDABLE)
        training.run(epochs=2)
        ended.append(training)
    assert ended[0].steps == ended[1].steps
    assert torch.equal(ended[0].weights, ended[1].weights)
    training = Training(sb.selective_backprop(rate=1 / 2, warmup_epochs=0), accumulated=4)
    training.run(epochs=2)
    # of 100 candidates in windows of 16: 6 batches, and 6 more with what was carried
    assert training.steps == [False, False, False, True, False, True] * 2
    assert training.accelerator.gradient_state.active_dataloader is None


def numbered(examples):
    forget()
    accelerator, loader = accelerate.Accelerator(cpu=True), DataLoader(examples, 4)
    return AcceleratedLoader(accelerator, loader, None, None, sb.traditional())


def test_what_was_fetched_when_a_loop_breaks_off_goes_first_in_the_next_epoch():
    loader, first = numbered(Numbered(40)), []
    for batch in loader:
        first += numbers([batch])
        if len(first) == 2:
            break
    assert len(loader) == 11
    second = numbers(loader)
    assert first + second[:1] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert flat(second[1:]) == list(range(40))
    assert len(loader) == 10


@pytest.mark.parametrize("stop", [1, 6, 12, 13])
def test_a_state_saved_after_leaving_a_loop_continues_the_epoch(stop, tmp_path):
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=1)
    whole = Training(strategy)
    whole.run(epochs=3)
    for error in (False, True):
        forget()
        left = Training(strategy)
        with suppress(KeyboardInterrupt):
            for inputs, targets in left.loader:
                left.step(inputs, targets)
                if len(left.steps) == stop:
                    if error:
                        raise KeyboardInterrupt
                    break
        left.accelerator.save_state(str(tmp_path))
        forget()
        rest = Training(strategy)
        rest.accelerator.load_state(str(tmp_path))
        assert rest.loader.next_epoch == (stop == 13)
        assert len(rest.loader) == (13 if stop < 13 else 6)
        rest.run(epochs=3 - rest.loader.next_epoch)
        assert len(left.steps) + len(rest.steps) == len(whole.steps)
        assert torch.equal(rest.weights, whole.weights)


def test_a_batch_fetched_ahead_of_a_data_set_that_fails_comes_first():
    class Breaking(Numbered):
        def __getitem__(self, index):
            return {}[0] if index == 30 else super().__getitem__(index)

    loader, seen = numbered(Breaking(40)), []
    with pytest.raises(LookupError):
        seen.extend(numbers([batch])[0] for batch in loader)
    again = numbered(Numbered(40))
    again.load_state_dict(loader.state_dict())
    assert flat(seen) + flat(numbers(again)) == list(range(40))


def test_a_pass_that_is_left_behind_gives_way_to_the_next():
    loader = numbered(Numbered(12))
    left = iter(loader)
    next(left)
    assert len(list(loader)) == 4
    assert list(left) == []
    assert accelerate.state.GradientState().active_dataloader is None


def test_two_loaders_of_one_accelerator_need_names_of_their_own_while_both_are_used():
    accelerator, model = accelerate.Accelerator(cpu=True), nn.Linear(1, 1)

    def made(model=None, **options):
        loader = DataLoader(Numbered(8), 4)
        return AcceleratedLoader(accelerator, loader, model, None, sb.traditional(), **options)

    kept = made(model), made(name="other")
    with pytest.raises(sb.ConfigurationError, match=r"'selection'.* name= .*delete"):
        made()
    gone = weakref.ref(model)
    del kept, model
    assert len(made()) == 2
    gc.collect()
    assert gone() is None


def test_length_and_counts_are_the_loader_s_and_a_schedule_for_the_prepared_one_counts_candidates():
    training = Training(sb.selective_backprop(1 / 2, warmup_epochs=0), epochs=2)
    loader = training.loader
    linear = torch.optim.lr_scheduler.LinearLR(training.optimizer, 1.0, 0.0, total_iters=26)
    scheduler = sb.CandidateScheduler(linear, loader)
    assert len(loader) == 6
    training.run(epochs=2)
    assert (loader.next_epoch, loader.batch_size, loader.stats.kept) == (2, 8, 96)
    scheduler.step()
    assert scheduler.last_epoch == 26 > 2 * len(loader)


@pytest.mark.parametrize("stop", [10, 13], ids=["within an epoch", "between epochs"])
def test_the_order_of_a_seedable_sampler_goes_on_with_another_seed(stop, monkeypatch, tmp_path):
    whole = Training(sb.traditional(), configuration=SEEDABLE)
    whole.run(epochs=2, save=tmp_path, stop=stop)
    monkeypatch.setattr("torch.random.initial_seed", lambda: 9)
    forget()
    rest = Training(sb.traditional(), configuration=SEEDABLE)
    rest.accelerator.load_state(str(tmp_path))
    rest.run(epochs=2 - rest.loader.next_epoch)
    assert torch.equal(rest.weights, whole.weights)


def test_a_damaged_state_is_refused_and_changes_nothing():
    loader = Training(sb.random_backprop(1 / 2)).loader
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert state["ahead"] is not None
    inside = {**state, "loader": {**state["loader"], "position": -5}}
    with pytest.raises(sb.ConfigurationError, match=r'state\["loader"\]\["position"\].*int'):
        loader.load_state_dict(inside)
    assert sum(1 for _ in batches) == 5
    loader.load_state_dict(state)
    assert refuse_all(loader, state, beside=("loader",)) > 10


def accelerator(**options):
    """What is asked of an accelerator, of the first of two processes."""
    chosen = {"num_processes": 2, "process_index": 0, "parallelism_config": None}
    chosen |= {"split_batches": False, "even_batches": True}
    return SimpleNamespace(**{"distributed_type": DistributedType.MULTI_CPU} | chosen | options)


@pytest.fixture
def one_process(monkeypatch):
    monkeypatch.setattr(_loader, "broadcast_object_list", lambda values: values)
    with unhooked():
        yield


one_alone = pytest.mark.usefixtures("one_process")


@one_alone
def test_a_setting_that_selection_cannot_follow_or_an_order_that_may_differ_is_refused():
    for options, reason in (
        ({"split_batches": True}, "batch size by 2"),
        ({"even_batches": False}, "Set even_batches=True"),
        ({"distributed_type": DistributedType.MEGATRON_LM}, "Megatron-LM"),
        ({"parallelism_config": SimpleNamespace(tp_size=2, cp_size=1)}, "tp_size=2"),
    ):
        with pytest.raises(sb.ConfigurationError, match=reason):
            own_shard(accelerator(**options), DataLoader(Numbered(8), 4))
    for sampler, reason in (
        (data.SubsetRandomSampler(range(8)), r"\(SubsetRandomSampler\)"),
        (RandomSampler(range(8), replacement=True), "more than once"),
        (RandomSampler(range(8), num_samples=4), "4 of 8"),
    ):
        with pytest.raises(sb.LoaderError, match=reason):
            own_shard(accelerator(), DataLoader(Numbered(8), batch_size=4, sampler=sampler))


@pytest.mark.parametrize("shuffled", [False, True])
@one_alone
def test_each_process_has_its_own_part_of_one_order_by_any_seed_that_torch_takes(shuffled):
    torch.manual_seed(2**63 + 5)
    inside = SeedableRandomSampler(range(10)) if shuffled else None
    batches = DataLoader(Numbered(10), batch_size=2, sampler=inside).batch_sampler
    shard = BatchSamplerShard(batches, 2, 0)
    loader = DataLoader(Numbered(10), batch_sampler=shard)
    drawn = []
    for rank in range(2):
        own = own_shard(accelerator(process_index=rank), loader)
        assert type(own.batch_sampler) is data.BatchSampler
        assert isinstance(own.sampler, DistributedSampler)
        own.sampler.set_epoch(1)
        drawn.append([index for batch in own.batch_sampler for index in batch])
    torch.manual_seed(0)
    assert sorted(drawn[0] + drawn[1]) == list(range(10))
    assert (drawn[0] != sorted(drawn[0])) == shuffled
    assert loader.batch_sampler is shard
    dealt = DataLoader(Numbered(10), batch_size=2, sampler=DistributedSampler(range(10), 2, 0))
    assert own_shard(accelerator(), dealt).sampler is dealt.sampler
