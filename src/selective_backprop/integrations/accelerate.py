"""Selection under Hugging Face Accelerate.

    loader = AcceleratedLoader(accelerator, loader, model, loss_fn, strategy)

`accelerator.prepare` leaves loaders other than torch's unchanged. So this one itself tells
Accelerate what a prepared loader would: when it yields its last batch, at which
`accelerator.accumulate` must step, and what belongs to a saved state.
"""

from selective_backprop.integrations._accelerate._loader import AcceleratedLoader

__all__ = ["AcceleratedLoader"]
