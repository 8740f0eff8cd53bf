"""The adapter for Keras. Importing any part of it checks Keras's version and its backend."""

import importlib

from selective_backprop import ConfigurationError
from selective_backprop.integrations._kit import require

require("keras", "3.6")
try:
    keras = importlib.import_module("keras")
    backend = keras.backend.backend()
except ModuleNotFoundError as error:
    backend = f"not installed ({error})"
if backend != "torch":
    raise ConfigurationError(
        f"Keras's backend is {backend}, but selection needs torch: set the environment variable "
        "KERAS_BACKEND=torch before Keras is first imported"
    )
