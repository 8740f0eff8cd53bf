"""Where to train, by the names that torch gives devices."""

import torch

import selective_backprop as sb


def find_device(name: str | None) -> str:
    """Return a device's name; of None, that of the GPU if there is one.

    Raises:
        ConfigurationError: if torch does not find the device here.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return "cuda" if gpus else "cpu"
    known = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name not in known:
        raise sb.ConfigurationError(
            f"--device {name}: torch {torch.__version__} finds {', '.join(known)} here"
        )
    return name
