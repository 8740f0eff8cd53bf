"""Selection in the Trainer of Hugging Face Transformers.

    trainer = SelectiveTrainer(model, args, strategy=sb.selective_backprop(rate=1 / 3), ...)

The Trainer's loader is wrapped where the Trainer makes it, and its training loop is unchanged. Two
extra keys of the batch hold the weights and indices of the selected rows. `compute_loss` removes
these keys.

    trainer = TokenLossTrainer(model, args, rate=0.6, ...)

This trains a causal language model on a share of each batch's tokens, and never holds all logits of
a batch.
"""

from selective_backprop.integrations._transformers._tokens import TokenLossTrainer
from selective_backprop.integrations._transformers._trainer import SelectiveTrainer

__all__ = ["SelectiveTrainer", "TokenLossTrainer"]
