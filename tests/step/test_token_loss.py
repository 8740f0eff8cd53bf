"""The head and loss on chosen tokens train as the plain masked mean of their losses does."""

from collections.abc import Callable
from typing import Any

import fixture_transformer as small
import pytest
import torch
from fixture_cuda import no_waiting
from fixture_transformer import MASKED, assert_equal, gradients
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop._step import head as head_module

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
AUTOCAST = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda(real="autocast"))]
Kept = Callable[[Tensor, Tensor], Tensor]


def shifted(labels: Tensor) -> Tensor:
    return functional.pad(labels[:, 1:], (0, 1), value=MASKED)


def plain_losses(hidden: Tensor, head: nn.Linear, targets: Tensor) -> Tensor:
    logits = head(hidden).movedim(-1, 1)
    return functional.cross_entropy(logits, targets, reduction="none")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("rate", [0.25, 0.6, 1.0])
@pytest.mark.parametrize(
    "options", [{}, {"bias": True}, {"tied": True}, {"checkpointed": True, "tied": True}], ids=str
)
def test_gradients_are_those_of_the_plain_masked_mean(options, rate, chunk, device) -> None:
    model = small.make(**options).to(device)
    words, labels = (each.to(device) for each in small.batch())
    selection = sb.TokenSelection(rate)
    selected = sb.TokenLoss(model.head, selection, shift=True, chunk=chunk)(model(words), labels)
    found = gradients(model, selected.loss)
    losses = plain_losses(model(words), model.head, shifted(labels))
    expected = selection(losses, shifted(labels))
    assert selected.kept.equal(expected.kept)
    assert selected.loss.item() == pytest.approx(expected.loss.item(), rel=1e-6)
    exact = small.make(**options).to(device).double()
    losses = plain_losses(exact(words), exact.head, shifted(labels))
    assert_equal(found, [each.float() for each in gradients(exact, losses[selected.kept].mean())])


def test_the_gradient_is_no_further_from_the_exact_one_than_the_plain_one_is() -> None:
    torch.manual_seed(0)
    head, hidden = nn.Linear(32, 500), torch.randn(4, 33, 32, requires_grad=True)
    labels = torch.randint(500, (4, 33))
    exact_head, exact = nn.Linear(32, 500).double(), hidden.detach().double().requires_grad_()
    exact_head.load_state_dict(head.state_dict())
    [slope] = torch.autograd.grad(plain_losses(exact, exact_head, labels).mean(), exact)
    [found] = torch.autograd.grad(sb.TokenLoss(head)(hidden, labels).loss, hidden)
    [plain] = torch.autograd.grad(plain_losses(hidden, head, labels).mean(), hidden)
    worst = [
        (each - slope).abs().max().item() / slope.abs().max().item() for each in (found, plain)
    ]
    assert worst[0] < 1e-6
    assert worst[0] < 1.5 * worst[1]
    doubled = sb.TokenLoss(exact_head)(exact, labels).loss
    assert_equal([torch.autograd.grad(doubled, exact)[0]], [slope], 1e-14)


def test_losses_are_exact_where_the_target_has_no_probability_left() -> None:
    head = nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [400.0], [1.0]]))
    hidden = torch.ones(1, 2, 1, requires_grad=True)
    selected = sb.TokenLoss(head)(hidden, torch.tensor([[0, 1]]))
    assert selected.losses.tolist() == [[400.0, 0.0]]
    assert selected.loss == 200.0
    [slope] = torch.autograd.grad(selected.loss, hidden)
    assert slope.flatten().tolist() == [200.0, 0.0]


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda(real="autocast"))]
)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_precision_and_sums_in_single(precision, device) -> None:
    model = small.make(bias=True).to(device)
    words, labels = (each.to(device) for each in small.batch())
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1.0), shift=True, chunk=7)
    with torch.autocast(device, dtype=precision):
        selected = token_loss(model(words), labels)
        logits = model.head(model(words)).float()  # as CUDA's loss would else round once more
        plain = functional.cross_entropy(
            logits.movedim(-1, 1), shifted(labels), ignore_index=MASKED, reduction="none"
        )
    assert selected.loss.dtype == selected.losses.dtype == torch.float32
    found = gradients(model, selected.loss)
    assert {each.dtype for each in found} == {torch.float32}
    counts = shifted(labels) != MASKED
    torch.testing.assert_close(selected.losses[counts], plain[counts], rtol=1e-5, atol=1e-5)
    assert_equal(found, gradients(model, plain[counts].mean()), 0.02)


def test_a_head_in_half_precision_adds_up_in_single() -> None:
    model = small.make().bfloat16()
    words, labels = small.batch()
    selected = sb.TokenLoss(model.head, shift=True, chunk=3)(model(words), labels)
    found = gradients(model, selected.loss)
    assert selected.loss.dtype == torch.float32
    assert {each.dtype for each in found} == {torch.bfloat16}
    exact = small.make().bfloat16().float()
    losses = plain_losses(exact(words), exact.head, shifted(labels))
    mean = losses[shifted(labels) != MASKED].mean()
    assert selected.loss.item() == pytest.approx(mean.item(), rel=5e-3)
    assert_equal([each.float() for each in found], gradients(exact, mean), 0.05)


def test_small_gradients_survive_half_precision_and_a_scaled_loss() -> None:
    head = nn.Linear(8, 5, bias=False).half()
    hidden = torch.randn(1, 4096, 8).half().requires_grad_()
    labels = torch.randint(5, (1, 4096))
    loss = sb.TokenLoss(head)(hidden, labels).loss * 1024.0
    found = torch.autograd.grad(loss, [hidden, head.weight])
    wide, exact = hidden.detach().float().requires_grad_(), nn.Linear(8, 5, bias=False)
    exact.load_state_dict(head.state_dict())
    mean = plain_losses(wide, exact, labels).mean() * 1024.0
    expected = torch.autograd.grad(mean, [wide, exact.weight])
    assert_equal([each.float() for each in found], list(expected), 0.01)


def test_a_sum_over_tokens_that_is_too_high_for_half_precision_is_not_lost() -> None:
    head = nn.Linear(1, 8).half()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    hidden = torch.full((1, 4096, 1), 64.0, dtype=torch.float16)
    sb.TokenLoss(head)(hidden, torch.zeros(1, 4096, dtype=torch.int64)).loss.backward()
    assert head.weight.grad.flatten().tolist() == [-56.0] + [8.0] * 7


def test_gradients_accumulate_over_calls_and_follow_the_factor_of_the_loss() -> None:
    model = small.make(tied=True)
    words, labels = small.batch()
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1 / 2), shift=True)
    halves = [(words[:2], labels[:2]), (words[2:], labels[2:])]
    alone = [gradients(model, token_loss(model(one), two).loss) for one, two in halves]
    model.zero_grad()
    both = [token_loss(model(one), two).loss / 2 for one, two in halves]
    sum(both).backward()
    expected = [(one + two) / 2 for one, two in zip(*alone, strict=True)]
    assert_equal([each.grad for each in model.parameters()], expected)


def test_a_second_backward_pass_gives_the_same() -> None:
    head, hidden = nn.Linear(8, 5), torch.randn(2, 3, 8, requires_grad=True)
    loss = sb.TokenLoss(head)(hidden, torch.ones(2, 3, dtype=torch.int64)).loss
    first = torch.autograd.grad(3 * loss, [hidden, head.weight], retain_graph=True)
    assert_equal(list(torch.autograd.grad(3 * loss, [hidden, head.weight])), list(first), 0)


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_training_goes_on_after_a_call_in_inference_mode(rate) -> None:
    head, hidden = nn.Linear(8, 5), torch.randn(2, 3, 8)
    token_loss = sb.TokenLoss(head, sb.TokenSelection(rate))
    with torch.inference_mode():
        losses = token_loss.losses(hidden, WORDS)
        inside = token_loss(hidden, WORDS).loss
    selected = token_loss(hidden, WORDS)
    selected.loss.backward()
    assert selected.loss == inside
    assert selected.losses.equal(losses)
    assert head.weight.grad.any()


@pytest.mark.parametrize("frozen", ["head", "hidden"])
def test_what_needs_no_gradient_gets_none(frozen) -> None:
    head, hidden = nn.Linear(8, 5), torch.randn(2, 3, 8, requires_grad=True)
    (head if frozen == "head" else hidden).requires_grad_(False)
    sb.TokenLoss(head)(hidden, torch.ones(2, 3, dtype=torch.int64)).loss.backward()
    assert (hidden.grad is None) == (frozen == "hidden")
    assert (head.weight.grad is None) == (head.bias.grad is None) == (frozen == "head")


def test_where_no_gradients_are_asked_for_none_are_made(monkeypatch) -> None:
    head, hidden = nn.Linear(8, 5), torch.randn(2, 3, 8, requires_grad=True)
    token_loss, made = sb.TokenLoss(head), []
    monkeypatch.setattr(head_module, "_add_product", lambda *given: made.append(given))
    with torch.no_grad():
        loss = token_loss(hidden, WORDS).loss
    assert not loss.requires_grad
    assert not made
    assert token_loss(hidden, WORDS).loss == loss
    assert made


@pytest.mark.parametrize("shift", [False, True])
def test_labels_of_any_whole_type_count_alike(shift) -> None:
    head, hidden = nn.Linear(8, 200), torch.randn(1, 4, 8)
    labels = torch.tensor([[1, 7, 156, 3]])  # 156 as a byte has the bits of -100
    token_loss = sb.TokenLoss(head, shift=shift)
    expected = token_loss(hidden, labels)
    for kind in (torch.uint8, torch.int32):
        found = token_loss(hidden, labels.to(kind))
        assert found.kept.equal(expected.kept)
        assert found.loss == expected.loss
        assert token_loss.choose(labels.to(kind)).equal(expected.kept)


def test_no_token_that_counts_is_a_loss_of_zero_with_gradients_of_zero() -> None:
    head, hidden = nn.Linear(8, 5), torch.randn(2, 3, 8, requires_grad=True)
    labels = torch.full((2, 3), MASKED)
    for selection in (None, sb.TokenSelection(1 / 2), percentile()):
        selected = sb.TokenLoss(head, selection)(hidden, labels)
        assert selected.loss == 0
        assert not selected.kept.any()
        for slope in torch.autograd.grad(selected.loss, [hidden, *head.parameters()]):
            assert not slope.any()


def test_a_weight_that_a_parametrisation_computes_trains_it() -> None:
    hidden, labels = torch.randn(2, 3, 8), torch.randint(5, (2, 3))
    head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 5))
    found = gradients(head, sb.TokenLoss(head)(hidden, labels).loss)
    assert_equal(found, gradients(head, plain_losses(hidden, head, labels).mean()))


def test_a_compiled_body_trains_alike() -> None:
    model = small.make()
    words, labels = small.batch()
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1 / 2), shift=True)

    compiled = torch.compile(model, backend="eager")
    found = gradients(model, token_loss(compiled(words), labels).loss)
    torch.compiler.reset()
    assert_equal(found, gradients(model, token_loss(model(words), labels).loss), 1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's
def test_in_a_compiled_step_the_body_is_compiled_and_the_head_and_loss_are_not() -> None:
    model, graphs = small.make(), []
    words, labels = small.batch()
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1 / 2), shift=True)

    def step() -> tuple[Tensor, Tensor]:
        hidden = model(words)
        return token_loss(hidden, labels).loss, token_loss.losses(hidden, labels)

    def collect(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    expected_loss, expected = step()
    expected_gradients = gradients(model, expected_loss)
    loss, losses = torch.compile(step, backend=collect)()
    torch.compiler.reset()
    assert_equal(gradients(model, loss), expected_gradients, 1e-5)
    assert torch.equal(losses.isnan(), expected.isnan())
    assert len(graphs) == 1


class Products:
    """How many numbers the largest matrix product or tensor made in a call has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        product = torch.mm

        def counted(left: Tensor, right: Tensor, **options: Any) -> Tensor:
            self.rows.append(len(left))
            return product(left, right, **options)

        monkeypatch.setattr(torch, "mm", counted)


@pytest.mark.parametrize(
    ("rate", "chunk", "rows"),
    [
        (1.0, None, [40]),  # in one pass
        (0.25, None, [40]),  # those kept are not computed again
        (0.25, 39, [39, 1, 10]),  # too many to hold: those kept are computed again
        (0.25, 6, [6] * 6 + [4] + [6, 4]),
    ],
)
def test_the_head_computes_as_few_logits_as_it_can(rate, chunk, rows, monkeypatch) -> None:
    words, labels = small.batch()
    model = small.make()
    hidden = model(words)
    products = Products(monkeypatch)
    sb.TokenLoss(model.head, sb.TokenSelection(rate), chunk=chunk)(hidden, labels)
    assert products.rows == rows
    kept = (labels != MASKED) & (words % 4 == 0)
    products.rows.clear()
    sb.TokenLoss(model.head, sb.TokenSelection(rate))(hidden, labels, kept=kept)
    assert products.rows == [kept.sum()]


def percentile(beta: float = 1.0, **options: Any) -> sb.TokenSelection:
    return sb.TokenSelection(selector=sb.selectors.Percentile(beta, **options))


@pytest.mark.parametrize("chunk", [None, 4])
def test_entropies_choose_the_tokens_whose_prediction_is_the_most_open(chunk) -> None:
    model, (words, labels) = small.make(), small.batch()
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(0.3), entropy=True, chunk=chunk)
    chances = torch.distributions.Categorical(logits=model.head(model(words)))
    expected = sb.TokenSelection(0.3)(chances.entropy(), labels).kept
    selected = token_loss(model(words), labels)
    assert selected.kept.equal(expected)
    losses = plain_losses(model(words), model.head, labels)
    assert selected.loss.item() == pytest.approx(losses[expected].mean().item())
    torch.testing.assert_close(selected.losses[labels != MASKED], losses[labels != MASKED])


def test_tokens_are_ranked_by_their_excess_over_a_reference() -> None:
    model, (words, labels) = small.make(), small.batch()
    torch.manual_seed(5)
    other = small.Transformer()
    reference = sb.TokenLoss(other.head, shift=True).losses(other(words), labels)
    assert not reference.requires_grad
    assert reference.isnan().equal(shifted(labels) == MASKED)
    selection = sb.TokenSelection(1 / 3)
    selected = sb.TokenLoss(model.head, selection, shift=True)(
        model(words), labels, reference=reference
    )
    losses = plain_losses(model(words), model.head, shifted(labels))
    expected = selection(losses, shifted(labels), reference=reference.nan_to_num())
    assert selected.kept.equal(expected.kept)
    assert not selected.kept.equal(selection(losses, shifted(labels)).kept)


def test_a_percentile_ranks_tokens_against_those_of_recent_batches() -> None:
    head = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    labels = torch.zeros(1, 200, dtype=torch.int64)  # a loss is log(1 + exp(feature))
    low, high = (torch.linspace(*ends, 200).view(1, 200, 1) for ends in ((-3, 0), (1, 4)))
    kept = {}
    for remembered in (200, 1000):
        selection = percentile(3.0, draw="bernoulli", history=remembered)
        token_loss = sb.TokenLoss(head, selection)
        for hidden in (low, low, low, high):
            selected = token_loss(hidden, labels)
        kept[remembered] = selected.kept.sum().item() / 200
    # q ** 3 with q uniform in [0, 1], against q uniform in [3/4, 1]
    assert kept[200] == pytest.approx(1 / 4, abs=0.1)
    assert kept[1000] == pytest.approx((1 - 0.75**4) / 4 / 0.25, abs=0.1)


@pytest.mark.parametrize(
    "selector",
    [
        sb.selectors.Percentile(1.0),
        sb.selectors.Uniform(0.5),
        sb.selectors.BelowMean(0.5),
        sb.selectors.Proportional(2.0),
    ],
    ids=repr,
)
def test_a_selector_draws_the_same_of_ready_losses_and_goes_on_from_its_state(selector) -> None:
    torch.manual_seed(3)
    model, (words, labels) = small.make(), small.batch()
    hidden = model(words)
    losses = plain_losses(hidden, model.head, labels)
    ready, within = (sb.TokenSelection(selector=selector) for _ in range(2))
    for _ in range(3):
        expected = ready(losses, labels)
        found = sb.TokenLoss(model.head, within)(hidden, labels)
        assert found.kept.equal(expected.kept)
        assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-5)
        assert_equal(
            list(torch.autograd.grad(found.loss, [hidden], retain_graph=True)),
            list(torch.autograd.grad(expected.loss, [hidden], retain_graph=True)),
            2e-6,
        )
    torch.manual_seed(4)
    later = sb.TokenSelection(selector=selector)
    later.load_state_dict(ready.state_dict())
    for _ in range(3):
        assert later(losses, labels).kept.equal(ready(losses, labels).kept)


def test_a_draw_that_needs_no_losses_scores_nothing(monkeypatch) -> None:
    words, labels = small.batch()
    model = small.make()
    hidden = model(words)
    products = Products(monkeypatch)
    selection = sb.TokenSelection(selector=sb.selectors.Uniform(0.25))
    selected = sb.TokenLoss(model.head, selection)(hidden, labels)
    assert products.rows == [10] == [selected.kept.sum()]
    assert selected.losses.isnan().equal(~selected.kept)


def test_what_is_computed_is_reported_and_nothing_else() -> None:
    model, (words, labels) = small.make(), small.batch()
    hidden = model(words)
    losses = plain_losses(hidden, model.head, labels).detach()
    selected = sb.TokenLoss(model.head, sb.TokenSelection(1 / 4))(hidden, labels)
    assert selected.losses.isnan().equal(labels == MASKED)
    torch.testing.assert_close(selected.losses[labels != MASKED], losses[labels != MASKED])
    known = sb.TokenLoss(model.head)(hidden, labels, kept=selected.kept)
    assert known.kept.equal(selected.kept)
    assert known.losses.isnan().equal(~selected.kept)
    assert known.loss.item() == pytest.approx(selected.loss.item())
    wished = torch.ones_like(labels, dtype=torch.bool)  # also what does not count
    assert sb.TokenLoss(model.head)(hidden, labels, kept=wished).kept.equal(labels != MASKED)


def test_tokens_are_chosen_before_the_pass_by_what_is_remembered_of_them() -> None:
    labels = torch.tensor([[1, 2, 3, 4], [MASKED, MASKED, 3, 4]])
    head = nn.Linear(2, 5)
    token_loss = sb.TokenLoss(head, sb.TokenSelection(1 / 2), shift=True)
    counts = [[True, True, True, False], [False, True, True, False]]
    assert token_loss.choose(labels).tolist() == counts
    unknown = torch.nan
    scores = torch.tensor([[1.0, 2.0, unknown, 9.0], [9.0, 3.0, 0.5, 9.0]])
    # of 5 that count 2 are kept: first what is unknown, then the highest
    assert token_loss.choose(labels, scores).nonzero().tolist() == [[0, 2], [1, 1]]
    reference = torch.tensor([[0.0, 0.5, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]])
    chosen = token_loss.choose(labels, scores, reference=reference)
    assert chosen.nonzero().tolist() == [[0, 1], [0, 2]]


def test_a_mask_of_tokens_that_have_weights_is_refused() -> None:
    selection = sb.TokenSelection(selector=sb.selectors.Proportional(3.0))
    with pytest.raises(sb.ConfigurationError, match=r"Proportional.*weights.*without kept="):
        sb.TokenLoss(nn.Linear(8, 5), selection).choose(WORDS, torch.rand(2, 3))


@pytest.mark.cuda
def test_labels_on_the_host_spare_the_wait_for_the_device() -> None:
    model = small.make().cuda()
    words, labels = small.batch()
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1 / 2), shift=True)
    hidden = model(words.cuda())
    token_loss(hidden, labels).loss.backward(retain_graph=True)
    with no_waiting():
        token_loss(hidden, labels).loss.backward()


class Scaled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) / 10


def hooked() -> nn.Linear:
    head = nn.Linear(8, 5)
    head.register_forward_hook(lambda module, inputs, output: output / 10)
    return head


def replaced() -> nn.Linear:
    head = nn.Linear(8, 5)
    head.forward = lambda hidden: hidden  # ty: ignore[invalid-assignment]
    return head


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (nn.Sequential(nn.Linear(8, 5)), "head=Sequential.*nn.Linear.*head.weight"),
        (nn.Embedding(5, 8), "head=Embedding.*head.weight = embedding.weight"),
        (Scaled(8, 5), r"forward pass of its own \(Scaled\).*TokenSelection"),
        (hooked(), "has hooks"),
        (replaced(), r"forward pass of its own \(Linear\)"),
    ],
    ids=["sequence", "embedding", "subclass", "hook", "replaced"],
)
def test_a_head_that_does_more_than_its_weight_tells_is_refused(head, said) -> None:
    with pytest.raises(sb.ConfigurationError, match=said):
        sb.TokenLoss(head)


def test_a_head_that_changes_later_is_refused_then() -> None:
    head = nn.Linear(8, 5)
    token_loss = sb.TokenLoss(head)
    head.register_forward_pre_hook(lambda module, inputs: None)
    with pytest.raises(sb.ConfigurationError, match="hooks"):
        token_loss(torch.randn(1, 3, 8), torch.zeros(1, 3, dtype=torch.int64))


WORDS = torch.zeros(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("hidden", "labels", "options", "said"),
    [
        ((2, 3, 5), WORDS, {}, r"\(2, 3, 5\).*\(2, 3\).*\[row, token, 8\].*logits"),
        ((6, 8), WORDS, {}, r"\(6, 8\).*flattened"),
        ((2, 2, 8), WORDS, {}, "shifted"),
        ((2, 3, 8), WORDS.float(), {}, "labels are torch.float32"),
        ((2, 3, 8), WORDS + 5, {}, "from 5 to 5.*5 tokens.*0 to 4.*-100"),
        ((2, 3, 8), WORDS - 1, {}, "from -1"),
        ((2, 3, 8), WORDS, {"kept": WORDS}, "kept is torch.int64"),
        ((2, 3, 8), WORDS, {"kept": torch.ones(2, 2, dtype=torch.bool)}, r"\(2, 2\).*\(2, 3\)"),
        ((2, 3, 8), WORDS, {"reference": torch.ones(2, 2)}, r"reference .*\(2, 2\)"),
        (
            (2, 3, 8),
            WORDS,
            {"reference": torch.ones(2, 3), "kept": WORDS == 0},
            "nothing is chosen by scores",
        ),
    ],
)
def test_what_does_not_fit_is_refused(hidden, labels, options, said) -> None:
    token_loss = sb.TokenLoss(nn.Linear(8, 5), sb.TokenSelection(1 / 2))
    with pytest.raises(sb.LossError, match=said):
        token_loss(torch.randn(hidden), labels, **options)


def test_a_reference_needs_a_choice_by_scores() -> None:
    hidden = torch.randn(2, 3, 8)
    with pytest.raises(sb.LossError, match="rate below 1"):
        sb.TokenLoss(nn.Linear(8, 5))(hidden, WORDS, reference=torch.ones(2, 3))
    with pytest.raises(sb.LossError, match="scores="):
        sb.TokenLoss(nn.Linear(8, 5)).choose(WORDS, reference=torch.ones(2, 3))
