"""Scores, weights and records are of the compiled loss, and scoring leaves no trace."""

import numpy as np
import pytest
import torch
from fixture_keras import QUIET, digits, keras, make_loader, make_model
from torch import nn

import selective_backprop as sb
from selective_backprop.integrations._keras._losses import CompiledLoss
from selective_backprop.integrations.keras import SelectiveFit

pytestmark = QUIET

ROWS = 6
LOGITS = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(1))
CLASSES = torch.arange(ROWS) % 3


def compiled(loss, *, outputs=3):
    """Return the loss of a model that was compiled with it."""
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(outputs)])
    model.compile("sgd", loss=loss)
    return CompiledLoss(model)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        "categorical_crossentropy",
        ["sparse_categorical_crossentropy"],
        keras.losses.SparseCategoricalCrossentropy,
    ],
)
def test_cross_entropy_is_that_of_torch_for_each_example(loss):
    expected = nn.functional.cross_entropy(LOGITS, CLASSES, reduction="none")
    asked = compiled(loss)
    outputs = LOGITS if isinstance(loss, keras.losses.Loss) else LOGITS.softmax(1)
    one_hot = "sparse" not in str(loss).lower()
    targets = nn.functional.one_hot(CLASSES, 3).float() if one_hot else CLASSES
    weights = torch.arange(ROWS).float()
    for given, factor in ((None, 1.0), (weights, weights), (weights.unsqueeze(1), weights)):
        assert torch.allclose(asked.of(outputs, targets, given), factor * expected, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_excess_is_over_the_lowest_loss_that_the_targets_allow(smoothing):
    """At the best outputs it is 0, and everywhere as much higher as the loss, by label."""
    soft = nn.functional.one_hot(CLASSES, 3).float() * 0.8 + torch.tensor([0.2, 0.0, 0.0])
    several = (LOGITS > 0).float() * 0.9
    for kind, targets, labels in (
        (keras.losses.CategoricalCrossentropy, soft, 1),
        (keras.losses.BinaryCrossentropy, several, 3),
    ):
        asked = compiled(kind(from_logits=True, label_smoothing=smoothing))
        plain, found = (asked.of(LOGITS, targets, None, excess=each) for each in (False, True))
        best = targets * (1 - smoothing) + smoothing / (3 if labels == 1 else 2)
        ideal = (best.log() if labels == 1 else torch.logit(best)).clamp(-30, 30)
        assert torch.allclose(found, labels * (plain - asked.of(ideal, targets, None)), atol=1e-5)
        assert float(asked.of(ideal, targets, None, excess=True).max()) < 1e-5
    sparse = compiled(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    plain, found = (sparse.of(LOGITS, CLASSES, None, excess=each) for each in (False, True))
    assert torch.equal(found, plain)


def test_confidence_is_read_from_losses_without_smoothing_and_weights():
    images, classes = digits(40)
    one_hot = np.eye(10, dtype="float32")[classes]
    layers = [keras.layers.Input((64,)), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential(layers)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.4)
    model.compile(keras.optimizers.SGD(0.0), loss=loss)
    trainer = SelectiveFit(model, sb.auto())
    trainer.fit(images, one_hot, sample_weight=np.arange(40.0), epochs=2, verbose=0)
    found = torch.as_tensor(trainer.loader.ledger.recorded.observe().scores[0])
    targets = torch.as_tensor(one_hot)
    with torch.no_grad():
        smoothed = CompiledLoss(model).of(model(images), targets, None)
    best = targets * 0.6 + 0.04
    assert torch.allclose(found, smoothed + (best * best.log()).sum(1), atol=1e-5)


@pytest.mark.parametrize("masks", [True, False])
def test_positions_that_are_masked_or_ignored_count_for_nothing(masks):
    words = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 6]])
    keras.utils.set_random_seed(0)
    embedding = keras.layers.Embedding(9, 4, mask_zero=masks)
    model = keras.Sequential([embedding, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    model.compile("sgd", loss=loss)
    targets = torch.tensor([[0, 1, 2, -1], [2, -1, 1, 0]])
    losses = CompiledLoss(model)(model, (words, targets))
    each = nn.CrossEntropyLoss(reduction="none", ignore_index=-1)
    each = each(model(words).transpose(1, 2), targets)
    first, second = each[0, : 2 if masks else 3], each[1, [0, 2, 3]]
    assert torch.allclose(losses, torch.stack([first.mean(), second.mean()]), atol=1e-6)


def check_weighted_step(loss, inputs, targets, each, counted, *, outputs):
    """One weighted step of Keras's is that on the weighted sum of losses, by the number counted."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input(inputs.shape[1:]), keras.layers.Dense(outputs)])
    model.compile(keras.optimizers.SGD(0.5), loss=loss)
    before = [torch.tensor(weight, requires_grad=True) for weight in model.get_weights()]
    strategy = sb.kath18(2.0, measure="loss", schedule=sb.Schedule())
    torch.manual_seed(3)  # the seed of both draws
    options = {"batch_size": 8, "steps_per_epoch": 1, "shuffle": False, "verbose": 0}
    SelectiveFit(model, strategy).fit(inputs, targets, **options)

    def sums(batch):
        return each(batch[0] @ before[0] + before[1], batch[1]).flatten(1).sum(1)

    # The same rows, by the loader itself around a plain function of the weights.
    twin = sb.SelectiveLoader(
        make_loader(inputs, targets),
        *(nn.Linear(1, 1), None, strategy),
        losses=lambda _, batch: sums(batch) / counted(batch[1]).flatten(1).sum(1).clamp(min=1),
        with_selection=True,
    )
    batch, selection = next(iter(twin))
    assert len(selection.weights.unique()) > 1
    ((selection.weights * sums(batch)).sum() / counted(batch[1]).sum()).backward()
    for weight, start in zip(model.get_weights(), before, strict=True):
        assert np.allclose(weight, (start - 0.5 * start.grad).detach().numpy(), atol=1e-6)


def test_weights_multiply_the_losses_of_examples_and_positions_and_their_number_divides():
    for shape in ((32, 3), (32, 8, 3)):  # one loss for each example, and as many as rows
        inputs, targets = torch.randn(shape), torch.randn(*shape[:-1], 1)
        each = nn.MSELoss(reduction="none")
        check_weighted_step("mse", inputs, targets, each, torch.ones_like, outputs=1)
    targets = torch.arange(32 * 5).reshape(-1, 5) % 3
    targets[torch.rand(targets.shape) < 0.5] = -1
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    entropies = nn.CrossEntropyLoss(reduction="none", ignore_index=-1)
    each = lambda logits, classes: entropies(logits.movedim(-1, 1), classes)  # noqa: E731
    counted = lambda classes: classes != -1  # noqa: E731
    check_weighted_step(loss, torch.randn(32, 5, 3), targets, each, counted, outputs=3)


def test_recorded_losses_are_those_of_the_training_forward():
    """Dropout, batch statistics and all; those of selection passes and validation are not."""
    trained, recorded = [], []

    def loss(y_true, y_pred):
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        if torch.is_grad_enabled():
            trained.append(losses.detach().clone())
        return losses

    def keep(epoch, logs):
        recorded.append(torch.tensor(trainer.loader.ledger.recorded.observe().scores[0]))

    trainer = SelectiveFit(make_model(loss=loss), sb.recorded_sb(rate=1 / 2))
    options = {"batch_size": 8, "epochs": 2, "verbose": 0, "validation_data": digits(48)}
    noting = [keras.callbacks.LambdaCallback(on_epoch_end=keep)]
    trainer.fit(*digits(48), shuffle=False, callbacks=noting, **options)
    assert torch.equal(recorded[0].float(), torch.cat(trained[:6]))


def test_classes_may_be_given_as_floats_and_no_hook_stays_on_the_model():
    images, classes = digits()
    visits = []
    for targets in (classes, classes.astype("float32")):
        trainer = SelectiveFit(model := make_model(), sb.auto())
        trainer.fit(images, targets, epochs=2, verbose=0)
        visits.append(trainer.loader.class_visits)
        assert not model._forward_hooks
    assert visits[0] == visits[1]
    assert visits[0].classes == tuple(range(10))
