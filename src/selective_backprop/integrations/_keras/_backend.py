"""Import Keras, after checking that it is installed, new enough, and computes with torch."""

import importlib
from typing import Any

from selective_backprop._core.errors import ConfigurationError, installing
from selective_backprop.integrations._versions import release

OLDEST = "3.6"


def load_keras() -> Any:
    """Return the module `keras`.

    Raises:
        ModuleNotFoundError: if it is not installed.
        ConfigurationError: if it is too old, or its backend is not torch.
    """
    needed = "set the environment variable KERAS_BACKEND=torch before Keras is first imported"
    try:
        keras = importlib.import_module("keras")
    except ModuleNotFoundError as error:
        if error.name == "keras":
            raise ModuleNotFoundError(
                f"Keras is not installed; {installing('keras')}", name="keras"
            ) from None
        raise ConfigurationError(
            f"Keras cannot be imported with the backend it is set to ({error}), and selection "
            f"needs torch; {needed}"
        ) from error
    if release(keras.__version__) < release(OLDEST):
        raise ConfigurationError(
            f"Keras is {keras.__version__}, and {OLDEST} or newer is needed; {installing('keras')}"
        )
    backend = keras.backend.backend()
    if backend != "torch":
        raise ConfigurationError(
            f"Keras's backend is {backend}, and selection needs torch; {needed}"
        )
    return keras


keras = load_keras()
