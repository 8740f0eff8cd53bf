"""Selection in the Trainer of Hugging Face Transformers.

`SelectiveTrainer(model, args, strategy=sb.selective_backprop(rate=1 / 3))` is such a Trainer.
"""

from selective_backprop.integrations._transformers._trainer import SelectiveTrainer

__all__ = ["SelectiveTrainer"]
