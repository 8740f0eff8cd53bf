"""A head at an early exit scores by the first blocks, and learns from whatever is scored."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import reference
import torch
from fixture_doors import fixture_data, fresh_net, same_tensors
from fixture_early_exit import BATCHES, door, early, losses, make_head, momentum, start
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop.scorers.cheap._early_exit import _Exit


def heads(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The heads of all scorers that are started from now on."""
    made: list[nn.Module] = []
    ordinary = _Exit.__init__

    def noting(self: _Exit, blocks: Any, head: nn.Module) -> None:
        made.append(head)
        ordinary(self, blocks, head)

    monkeypatch.setattr(_Exit, "__init__", noting)
    return made


def test_scores_are_the_losses_of_the_head_on_what_the_first_blocks_return() -> None:
    model = fresh_net()
    scores = start(early(), model).score(BATCHES[0], None)
    model.eval()
    expected = functional.cross_entropy(
        make_head()(model.layers[:2](BATCHES[0][0])), BATCHES[0][1], reduction="none"
    )
    assert torch.equal(scores, expected.detach())
    assert not scores.requires_grad


def test_blocks_score_in_the_modes_of_training_where_asked_to() -> None:
    model = fresh_net()
    scores = start(early(training=True), model).score(BATCHES[0], None)
    hidden = copy.deepcopy(model).layers[:2](BATCHES[0][0])
    expected = functional.cross_entropy(make_head()(hidden), BATCHES[0][1], reduction="none")
    assert torch.equal(scores, expected.detach())


@pytest.mark.parametrize("rate", [None, 1.0, 1 / 3])
def test_the_head_steps_on_all_that_was_scored_and_else_on_training_batches(
    rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, model, byhand = heads(monkeypatch), fresh_net(), make_head()
    optimizer = momentum(byhand.parameters())
    running = start(early(), model, rate=rate)

    def step(*batches: tuple[Tensor, Tensor], scored: bool = False) -> None:
        total, weight = torch.zeros(()), 0.0
        for inputs, targets in batches:
            with torch.no_grad():
                features = copy.deepcopy(model).eval().layers[:2](inputs)
            found = functional.cross_entropy(byhand(features), targets, reduction="none")
            odds = reference.odds_by_rank(found.tolist(), rate if scored and rate else 1.0)
            total = total + sum(loss * odd for loss, odd in zip(found, odds, strict=True))
            weight += sum(odds)
        optimizer.zero_grad()
        (total / weight).backward()
        optimizer.step()
        for one, other in zip(made[-1].parameters(), byhand.parameters(), strict=True):
            torch.testing.assert_close(one, other)

    running.learn(BATCHES[0])
    step(BATCHES[0])
    running.learn(BATCHES[1])
    step(BATCHES[1])
    for batch in BATCHES[2:4]:
        running.score(batch, None)
    running.learn(BATCHES[4])  # which was selected from what was scored
    step(*BATCHES[2:4], scored=True)
    running.learn(BATCHES[4])
    step(BATCHES[4])


@pytest.mark.parametrize("rate", [1 / 2, 1 / 4])
def test_in_a_loop_only_training_batches_that_were_not_scored_take_a_pass_of_their_own(
    rate: float,
) -> None:
    model, passes = fresh_net(), [0]
    model.layers[0].register_forward_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    loader = door(model, early(), rate=rate)
    warm = sum(1 for _ in loader)
    assert passes == [warm], "the first is scored, to try, and learned from then"
    for _ in range(3):
        before = passes[0], loader.stats.scored
        list(loader)
        assert passes[0] - before[0] == (loader.stats.scored - before[1] + 5) // 6 == 7


def test_candidate_batches_that_make_many_training_batches_are_passed_over_once() -> None:
    model, passes = fresh_net(), [0]
    model.layers[0].register_forward_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    loader = DataLoader(fixture_data(72), 36)
    strategy = sb.selective_backprop(1 / 2, scorer=early(), warmup_epochs=0)
    found = list(sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy, batch_size=6))
    assert (len(found), passes) == (6, [2])


def test_what_it_selects_comes_to_agree_with_the_whole_model_on_real_digits() -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(images).float() / 16, torch.from_numpy(labels))
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    net = nn.Sequential(*layers)

    def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    scorer = sb.scorers.EarlyExit(
        "3", lambda: nn.Linear(64, 10), sgd, sb.scorers.Check(8, 16, least=0)
    )
    loader = sb.SelectiveLoader(
        DataLoader(data, 64, shuffle=True),
        net,
        nn.CrossEntropyLoss(),
        sb.selective_backprop(1 / 3, scorer=scorer, warmup_epochs=0),
    )
    optimizer, found = sgd(net.parameters()), []
    for _ in range(4):
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
            found.append(loader.agreement)
    overlaps = [agreement.overlap for agreement in dict.fromkeys(found) if agreement is not None]
    assert overlaps[0] < 0.4, "a third is chance"
    later = overlaps[3:]
    assert sum(later) / len(later) > 0.55, "0.3 if the head learned from all candidates alike"


def test_a_check_waits_for_the_heads_first_step() -> None:
    running = start(early(check=sb.scorers.Check(1, least=0)), fresh_net())
    running.score(BATCHES[0], None)
    assert running.checked == 0
    running.learn(BATCHES[0])
    running.score(BATCHES[1], None)
    assert running.checked == 6
    assert running.agreement is not None


def test_a_head_that_says_nothing_is_warned_of() -> None:
    model = fresh_net()
    deaf = early(make_head=lambda: nn.Linear(8, 3), check=sb.scorers.Check(1, least=1.0))
    running = start(deaf, model)
    running.learn(BATCHES[0])
    with pytest.warns(sb.SelectionWarning, match="EarlyExit.*later block"):
        running.score(BATCHES[1], None)


def test_what_was_scored_and_not_yet_learned_from_is_part_of_the_state(tmp_path) -> None:
    model = fresh_net()
    one, other = (start(early(), model) for _ in range(2))
    one.learn(BATCHES[0])
    one.score(BATCHES[1], None)
    torch.save(one.state_dict(), tmp_path / "state")
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for running in (one, other):
        running.learn(BATCHES[2])
        running.learn(BATCHES[3])
    assert torch.equal(one.score(BATCHES[4], None), other.score(BATCHES[4], None))


def test_a_head_whose_widths_are_found_out_is_made_at_the_first_batch(tmp_path) -> None:
    model, lazy = fresh_net(), early(make_head=lambda: nn.LazyLinear(3))
    one, other = (start(lazy, model) for _ in range(2))
    torch.save(one.state_dict(), tmp_path / "state")  # before there are any
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    other.score(BATCHES[0], None)
    one.learn(BATCHES[0])
    one.score(BATCHES[1], None)
    for running in (other, start(lazy, model)):
        running.load_state_dict(one.state_dict())
        assert torch.equal(running.score(BATCHES[2], None), one.score(BATCHES[2], None))


@pytest.mark.parametrize("where", ["input", "loss"])
def test_rows_whose_loss_is_not_finite_teach_the_head_nothing(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(model: nn.Module, batch: Any) -> Tensor:
        found = losses(model, batch)
        return torch.cat([found[:1] + torch.inf, found[1:]]) if where == "loss" else found

    made, model = heads(monkeypatch), fresh_net()
    running = start(early(), model, losses=endless)
    inputs, targets = BATCHES[0]
    if where == "input":
        inputs = inputs.clone()
        inputs[0] = torch.nan
    scores = running.score((inputs, targets), None)
    assert not scores[0].isfinite()
    assert bool(scores[1:].isfinite().all())
    before = copy.deepcopy(made[-1].state_dict())
    running.learn(BATCHES[1])
    after = made[-1].state_dict()
    assert all(bool(value.isfinite().all()) for value in after.values())
    assert same_tensors(after, before) == (where == "input"), "the other rows teach it still"


def test_within_autocast_the_head_keeps_its_precision() -> None:
    seen: list[torch.dtype] = []

    def noting() -> nn.Module:
        head = make_head()
        head[0].register_forward_hook(
            lambda module, inputs, output: seen.extend((inputs[0].dtype, output.dtype))
        )
        return head

    running = start(early(make_head=noting, after="layers.0"), fresh_net())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        running.score(BATCHES[0], None)
    running.learn(BATCHES[0])
    assert seen == [torch.float32, torch.float32]


def test_it_scores_by_the_users_own_losses() -> None:
    class Talker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(9, 8), nn.Linear(8, 3)

        def forward(self, *, tokens: Tensor) -> dict[str, Tensor]:
            return {"logits": self.out(self.embed(tokens))}

    class Head(nn.Linear):
        def forward(self, input: Tensor) -> dict[str, Tensor]:
            return {"logits": super().forward(input)}

    def outputs(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(tokens=batch["tokens"])["logits"].flatten(0, 1), batch["targets"].flatten()

    def token_losses(model: nn.Module, batch: Any) -> Tensor:
        found = functional.cross_entropy(*outputs(model, batch), reduction="none")
        return found.view(batch["tokens"].shape).mean(1)

    tokens = torch.arange(20).reshape(4, 5) % 9
    model, batch = Talker(), {"tokens": tokens, "targets": tokens % 3}
    running = start(early(after="embed", make_head=lambda: Head(8, 3)), model, losses=token_losses)
    first = running.score(batch, None)
    for _ in range(20):
        running.learn(batch)
    assert bool((running.score(batch, None) < first).all())
    assert first.shape == (4,)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: sb.scorers.Stale(inner, epochs=2),
        lambda inner: sb.scorers.Predicted(inner, epochs=2),
        lambda inner: sb.scorers.LowPrecision(inner, check=sb.scorers.Check(2, least=0)),
    ],
    ids=["stale", "predicted", "low precision"],
)
@pytest.mark.filterwarnings("ignore:.*has no fast path")
def test_it_learns_inside_another_scorer_whether_that_scores_or_remembers(
    wrap: Callable[[sb.scorers.AbstractScorer], sb.scorers.AbstractScorer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = heads(monkeypatch)
    scorer = wrap(early())
    strategy = sb.Strategy("early", scorer, sb.selectors.Percentile(beta=1))
    loader = door(fresh_net(), scorer, strategy=strategy)
    scored = []
    for _ in range(4):
        before, known = copy.deepcopy(made[-1].state_dict()), loader.stats.scored
        assert list(loader)
        assert not same_tensors(made[-1].state_dict(), before)
        scored.append(loader.stats.scored > known)
    remembers = scorer.needs.remembers
    assert scored == [True, not remembers, True, not remembers]
    assert len(made) == 1
    assert (loader.agreement is not None) == isinstance(scorer, sb.scorers.LowPrecision)


def test_a_step_takes_it_and_goes_on_from_its_state() -> None:
    model = fresh_net().eval()
    strategy = sb.Strategy(
        "early", early(check=sb.scorers.Check(1, least=0)), sb.selectors.Percentile(beta=2)
    )
    steps = [sb.SelectiveStep(model, nn.CrossEntropyLoss(), strategy) for _ in range(2)]
    for batch in BATCHES[:3]:
        assert len(steps[0](batch).rows) == 2
    assert steps[0].agreement is not None
    steps[1].load_state_dict(steps[0].state_dict())
    for batch in BATCHES[3:]:
        one, other = (step(batch) for step in steps)
        assert torch.equal(one.rows, other.rows)
