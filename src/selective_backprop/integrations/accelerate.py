"""Selection under Hugging Face Accelerate.

`AcceleratedLoader(accelerator, loader, model, loss_fn, strategy)` acts as a prepared loader.
"""

from selective_backprop.integrations._accelerate._loader import AcceleratedLoader

__all__ = ["AcceleratedLoader"]
