"""Import Keras, after checking that it computes with torch."""

import importlib
from typing import Any

from selective_backprop._core.errors import ConfigurationError

NEEDED = "set the environment variable KERAS_BACKEND=torch before Keras is first imported"


def load_keras() -> Any:
    """Return the module `keras`.

    Raises:
        ConfigurationError: if its backend is not torch.
    """
    try:
        keras = importlib.import_module("keras")
    except ModuleNotFoundError as error:  # Keras's backend is not installed
        raise ConfigurationError(
            f"Keras's backend cannot be imported ({error}). Selection needs the backend torch: "
            f"{NEEDED}"
        ) from error
    if (backend := keras.backend.backend()) != "torch":
        raise ConfigurationError(
            f"Keras's backend is {backend}, but selection needs torch: {NEEDED}"
        )
    return keras


keras = load_keras()
