"""What first blocks computed to score is not computed again for the rows trained on."""

from collections.abc import Callable

import fixture_reuse as nets
import pytest
import torch
from torch import nn

import selective_backprop as sb

EXACT = 1e-12


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)  # ty: ignore[invalid-argument-type]


def head_of(*pooling: nn.Module) -> Callable[[], nn.Module]:
    def make_head() -> nn.Module:
        # dropout draws random numbers, which the pass itself must not
        return nn.Sequential(
            *pooling, nn.Dropout(0.2), nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, 3)
        )

    return make_head


def early(after: str, *pooling: nn.Module, check: sb.scorers.Check | None = None) -> sb.Strategy:
    scorer = sb.scorers.EarlyExit(after, head_of(*pooling), sgd, check=check, training=True)
    return sb.Strategy("early", scorer, sb.selectors.Percentile(beta=2))


POOLED = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
# The net, its inputs, the exit, how the head pools, and heavy operations before the exit.
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str, nn.Module, int]] = {
    "mlp": (nets.mlp, nets.VECTORS, "1", nn.Identity(), 1),
    "mlp in place": (nets.mlp_in_place, nets.VECTORS, "2", nn.Identity(), 2),
    "convolutions": (nets.convolutional, nets.IMAGES, "3", POOLED, 3),
    "convolutions, before one in place": (nets.convolutional, nets.IMAGES, "1", POOLED, 1),
    "encoder, batch first": (
        lambda: nets.encoder(batch_first=True),
        *(nets.SEQUENCES, "0", nets.Flat(1), 5),
    ),
    "encoder, time first": (
        lambda: nets.encoder(batch_first=False),
        *(nets.SEQUENCES, "1", nets.Flat(0), 5),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "check", [None, sb.scorers.Check(2, 3, least=0)], ids=["unchecked", "checked"]
)
def test_gradients_are_the_plain_steps_and_the_first_blocks_are_computed_once(
    kind: str, check: sb.scorers.Check | None
) -> None:
    make, shape, after, pooling, blocks = KINDS[kind]
    # Heads are made from the global stream, which no step moves: both steps' are alike.
    both = nets.pair(make().double(), early(after, pooling, check=check))
    for seed in range(5):
        assert both.take(nets.candidates(shape, seed)) < EXACT
    stats = both.stats
    assert stats.reused == 4 * blocks, "the first step is for trials"
    assert stats.operations > stats.reused + blocks, "what lies behind the exit is computed"
    assert stats.strayed == 0
    assert (both.steps[1].agreement is not None) == (check is not None)


def test_a_head_may_draw_random_numbers_and_the_blocks_may_not() -> None:
    strategy = early("1")
    net = nets.mlp()
    step = sb.SelectiveStep(net, nn.CrossEntropyLoss(), strategy, reuse_activations=True)
    for seed in range(3):
        inputs, targets = nets.candidates(nets.VECTORS, seed)
        step((inputs.float(), targets)).loss.backward()
    assert step.stats.reused == 2

    class Drawing(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs + torch.rand_like(inputs)

    drawing = nn.Sequential(nn.Linear(5, 8), Drawing(), nn.Linear(8, 3))
    step = sb.SelectiveStep(drawing, nn.CrossEntropyLoss(), strategy, reuse_activations=True)
    with pytest.raises(sb.ConfigurationError, match="draws random numbers"):
        step((inputs.float(), targets))


def test_a_course_that_differs_before_the_exit_still_counts_as_straying() -> None:
    class Straying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.exit, self.last = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = self.first(inputs)
            if torch.is_grad_enabled():
                hidden = hidden @ torch.eye(8, dtype=hidden.dtype)
            return self.last(self.exit(hidden))

    step = sb.SelectiveStep(
        Straying().double(), nn.CrossEntropyLoss(), early("exit"), reuse_activations=True
    )
    for seed in range(2):
        step(nets.candidates(nets.VECTORS, seed))
    assert (step.stats.reused, step.stats.strayed) == (1, 2)


def test_the_blocks_score_in_the_modes_of_training_like_the_plain_step_that_is_told_to() -> None:
    scorer = sb.scorers.EarlyExit("1", head_of(), sgd, check=None)
    strategy = sb.Strategy("early", scorer, sb.selectors.Percentile(beta=2))
    net, modes = nets.mlp(), []
    net[0].register_forward_hook(lambda module, *_: modes.append(module.training))
    step = sb.SelectiveStep(net, nn.CrossEntropyLoss(), strategy, reuse_activations=True)
    inputs, targets = nets.candidates(nets.VECTORS, 0)
    step((inputs.float(), targets))
    assert modes == [True, True]


def test_statistics_of_all_candidates_are_refused_since_the_pass_ends_early() -> None:
    with pytest.raises(sb.ConfigurationError, match=r"candidate_statistics=True.*ends early"):
        sb.SelectiveStep(
            nets.convolutional(nn.BatchNorm2d),
            nn.CrossEntropyLoss(),
            early("1", POOLED),
            reuse_activations=True,
            candidate_statistics=True,
        )
