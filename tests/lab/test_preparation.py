"""What some arms need before they train: made as said, and from the right examples."""

import pytest
import torch
from fixture_lab import EXAMPLES, few_digits, fixture_plan, name_model
from torch import nn
from torch.nn.functional import cross_entropy

from selective_backprop_lab import preparation as outfits
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.preparation import (
    TrainingSetup,
    forward_operations,
    prepare_proxy,
    prepare_pruned,
    prepare_reference,
)

CPU = torch.device("cpu")
PLAIN = {"augmentation": Augmentation()}


def task(*, epochs=2.0, seed=0, data=None, **plan):
    recipe = fixture_plan(**plan).recipe
    return TrainingSetup(recipe, few_digits() if data is None else data, seed, epochs, CPU)


class Memory(nn.Module):
    """A net that learns nothing, but remembers every image that it trained on."""

    def __init__(self, channels, classes, side):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))
        self.seen = set()

    def forward(self, images):
        pixels = images.flatten(1)
        keys = [tuple(row) for row in pixels.tolist()]
        if self.training:
            self.seen.update(keys)
        logits = pixels[:, 24:34].clone()
        logits[[key in self.seen for key in keys], 0] += 1000.0
        return logits + 0.0 * self.scale


def test_a_reference_loss_comes_from_a_model_that_never_trained_on_the_example(monkeypatch):
    data, models = few_digits(), []

    def memory(*shape):
        models.append(Memory(*shape))
        return models[-1]

    model = name_model(monkeypatch, "memory", memory)
    outfit = prepare_reference(task(model=model, recipe=PLAIN), share=1 / 2)
    (images, labels), *_ = make_loader(data, batch_size=EXAMPLES, seed=0, shuffle=False)
    unseen = cross_entropy(images.flatten(1)[:, 24:34], labels, reduction="none")
    assert torch.allclose(outfit.reference.losses, unseen)
    # though the two models together trained on all of them
    assert len(models) == 2
    assert [len(model.seen) for model in models] == [EXAMPLES / 2, EXAMPLES / 2]
    assert len(models[0].seen | models[1].seen) == EXAMPLES


@pytest.mark.parametrize("keep", [0.8, 0.9, 1.0])
def test_pruning_keeps_the_share_that_scores_highest(keep):
    outfit = prepare_pruned(task(), keep=keep, models=2, share=1 / 2)
    subset = outfit.subset
    assert len(subset) == round(keep * EXAMPLES)
    kept = subset.scores[subset.mask()]
    left = subset.scores[~subset.mask()]
    assert not len(left) or kept.min() >= left.max()
    assert outfit.price == outfits.Price()


def test_young_models_are_trained_and_differ_from_one_another_and_from_the_run_s_own():
    made = task()
    run = make_model(made.recipe.model, made.data, seed=0)
    young = [made.model(0), made.model(1), task(seed=1).model(0)]
    firsts = [next(model.parameters()) for model in (run, *young)]
    pairs = [(one, other) for n, one in enumerate(firsts) for other in firsts[n + 1 :]]
    assert not any(torch.equal(*pair) for pair in pairs)
    before = firsts[1].detach().clone()
    assert made.train(young[0], 0, epochs=1.0) == 1.0
    assert not torch.equal(before, firsts[1])


def by_hand(width, channels, classes, side):
    """Multiplications and additions of the small convolutional net, biases left out."""
    areas = side**2, (side // 2) ** 2, (side // 4) ** 2
    convolutions = (
        areas[0] * width * 9 * channels
        + areas[1] * 2 * width * 9 * width
        + areas[2] * 2 * width * 9 * 2 * width
    )
    return 2 * (convolutions + 2 * width * classes)


def test_a_proxy_is_priced_at_its_operations_over_the_model_s():
    data = few_digits()
    tiny, small = (by_hand(width, 1, 10, 8) for width in (8, 32))
    for name, operations in (("tiny_cnn", tiny), ("small_cnn", small)):
        model = make_model(name, data, seed=0)
        assert forward_operations(model, data.train_inputs.shape[1:]) == operations
    price = prepare_proxy(task(model="small_cnn")).price
    assert price.score == pytest.approx(tiny / small)
    assert price.learn == pytest.approx(3 * tiny / small)
    assert price.score < 0.1


def test_a_proxy_begins_anew_each_time_with_the_recipe_s_optimiser_at_a_fifth_of_its_rate():
    outfit = prepare_proxy(task(recipe={"learning_rate": 0.5, "momentum": 0.3}))
    one, other = outfit.proxy[0](), outfit.proxy[0]()
    assert one is not other
    assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
    [group] = outfit.proxy[1](one.parameters()).param_groups
    assert (group["lr"], group["momentum"]) == (pytest.approx(0.1), 0.3)
    assert outfit.cost == 0.0
