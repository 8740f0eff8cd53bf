"""Selection under Hugging Face Accelerate.

    loader = AcceleratedLoader(accelerator, loader, model, loss_fn, strategy)

This loader needs no `accelerator.prepare`: it already acts as a prepared loader. It tells
Accelerate which batch is the last, and adds its state to the states that Accelerate saves.
"""

from selective_backprop.integrations._accelerate._loader import AcceleratedLoader

__all__ = ["AcceleratedLoader"]
