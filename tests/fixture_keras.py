"""Small Keras models and real data to train them on; skips where Keras is not installed."""

import os

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

os.environ.setdefault("KERAS_BACKEND", "torch")  # before Keras is first imported
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("Keras was imported with another backend", allow_module_level=True)

# What Keras says of itself where NumPy is newer than it.
QUIET = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)


def digits(count=160):
    """Return the first images of handwritten digits, `[count, 64]`, and their classes."""
    images, classes = load_digits(return_X_y=True)
    return (images[:count] / 16).astype("float32"), classes[:count]


def make_model(
    seed=0, *, units=16, noise=3, loss="sparse_categorical_crossentropy", rate=0.3, **compiled
):
    """Return a compiled net with dropout and batch normalisation, always the same.

    Without a seed, `noise=None`, dropout draws from torch's global stream, not from Keras's seeds.
    """
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(rate, seed=noise),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(**{"optimizer": optimizer, "loss": loss, "metrics": ["accuracy"], **compiled})
    return model


def make_loader(images, classes, batch_size=8, **options):
    """Return a torch loader of arrays."""
    data = torch.utils.data.TensorDataset(torch.as_tensor(images), torch.as_tensor(classes))
    return torch.utils.data.DataLoader(data, batch_size=batch_size, **options)


def values(model):
    """Return all that a model holds, seeds included, and its optimiser's."""
    variables = [*model.variables, *model.optimizer.variables]
    return [variable.value.detach().clone().numpy() for variable in variables]


def same(one, other):
    """Whether two lists of arrays are equal bit for bit."""
    return len(one) == len(other) and all(map(np.array_equal, one, other))
