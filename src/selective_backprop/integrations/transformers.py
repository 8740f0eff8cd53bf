"""Selection in the Trainer of Hugging Face Transformers.

    trainer = SelectiveTrainer(model, args, strategy=sb.selective_backprop(rate=1 / 3), ...)

The Trainer's own loader is wrapped where the Trainer makes it; its training loop is unchanged. The
batch carries weights and indices of the selected rows under two extra keys, which `compute_loss`
removes.

    trainer = TokenLossTrainer(model, args, rate=0.6, ...)

Trains a causal language model on a share of each batch's tokens, and holds no batch's logits.
"""

from selective_backprop.integrations._transformers._tokens import TokenLossTrainer
from selective_backprop.integrations._transformers._trainer import SelectiveTrainer

__all__ = ["SelectiveTrainer", "TokenLossTrainer"]
