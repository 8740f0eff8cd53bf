"""Selection in the Trainer of Hugging Face Transformers.

    trainer = SelectiveTrainer(model, args, strategy=sb.selective_backprop(rate=1 / 3), ...)

The Trainer's own loop runs, on batches of selected rows. Two extra keys of each batch hold the
rows' weights and indices, and `compute_loss` removes these keys.
"""

from selective_backprop.integrations._transformers._trainer import SelectiveTrainer

__all__ = ["SelectiveTrainer"]
