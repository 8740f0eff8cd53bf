import copy

import pytest
import torch
from fixture_lab import few_digits
from torch import nn

from reproductions.jiang2019.net_probes import GradientAgreement, LossBands
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.training.callbacks import Scene


@pytest.fixture
def scene():
    data = few_digits()
    model = make_model("fixture_lab:small_net", data, seed=0).eval()
    return Scene(model, data, torch.device("cpu"))


def normalised(data, images):
    mean, std = torch.tensor(data.mean)[:, None, None], torch.tensor(data.std)[:, None, None]
    return (images.float() / 255 - mean) / std


def test_bands_hold_equally_many_from_the_lowest_loss_to_the_highest(scene):
    data = scene.data
    with torch.no_grad():
        outputs = scene.model(normalised(data, data.test_images[:40])).softmax(1)
    labels = data.test_labels[:40].tolist()
    confidence = [float(shares[label]) for shares, label in zip(outputs, labels, strict=True)]
    right = [int(shares.argmax()) == label for shares, label in zip(outputs, labels, strict=True)]
    order = sorted(range(40), key=lambda index: -confidence[index])
    bands = [order[start : start + 10] for start in range(0, 40, 10)]
    seen = LossBands(examples=40, bands=4).start(scene).look(0.5)
    for key, values in (("confidence", confidence), ("accuracy", right)):
        expected = [sum(100 * values[index] for index in band) / 10 for band in bands]
        assert seen[key] == pytest.approx(expected, abs=2e-3)


def test_a_batch_of_everything_points_where_everything_does(scene):
    seen = GradientAgreement(examples=60, batch_size=60, batches=1).start(scene).look(0.5)
    assert seen["cosine"]["random"] == pytest.approx(1, abs=1e-4)
    assert seen["sign"]["random"] == pytest.approx(100, abs=0.5)
    # An example with the lowest loss is never selected.
    assert seen["cosine"]["high-loss"] < 1


def test_agreement_is_the_cosine_with_the_gradient_of_all_and_the_share_of_equal_signs(scene):
    data = scene.data
    probe = GradientAgreement(examples=2, batch_size=1, batches=1, beta=50.0).start(scene)
    inputs = normalised(data, data.train_images[:2])
    gradients, losses = [], []
    for image, label in zip(inputs, data.train_labels, strict=False):
        loss = nn.functional.cross_entropy(scene.model(image[None]), label[None])
        parts = torch.autograd.grad(loss, list(scene.model.parameters()))
        gradients.append(torch.cat([part.flatten() for part in parts]))
        losses.append(float(loss.detach()))
    mine, whole = gradients[losses.index(max(losses))], gradients[0] + gradients[1]
    seen = probe.look(0.5)
    cosine = float(mine @ whole / (mine.norm() * whole.norm()))
    assert seen["cosine"]["high-loss"] == pytest.approx(cosine, abs=1e-4)
    some = whole != 0
    signs = 100 * float(((mine > 0) == (whole > 0))[some & (mine != 0)].sum() / some.sum())
    assert seen["sign"]["high-loss"] == pytest.approx(signs, abs=0.1)


def test_the_net_and_its_gradients_are_left_as_they_were(scene):
    scene.model.zero_grad()
    for parameter in scene.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy.deepcopy(scene.model.state_dict())
    GradientAgreement(examples=60, batch_size=20, batches=2).start(scene).look(0.5)
    assert all(bool((each.grad == 1).all()) for each in scene.model.parameters())
    for name, value in scene.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_same_net_gives_the_same_numbers(scene):
    probe = GradientAgreement(examples=60, batch_size=20, batches=2)
    seen = [probe.start(scene).look(0.5) for _ in range(2)]
    assert seen[0] == seen[1]
