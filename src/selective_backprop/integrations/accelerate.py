"""Selection under Hugging Face Accelerate.

    loader = AcceleratedLoader(accelerator, loader, model, loss_fn, strategy)

`accelerator.prepare` changes torch's loaders only. So this loader itself tells Accelerate what a
prepared loader would. It says when it yields its last batch, because `accelerator.accumulate` must
step then. It also adds its state to a saved state.
"""

from selective_backprop.integrations._accelerate._loader import AcceleratedLoader

__all__ = ["AcceleratedLoader"]
