"""TRL's GRPOTrainer and RLOOTrainer, which here leave out rollouts without a gradient.

    trainer = NonzeroGRPOTrainer(model, reward_funcs, args=args, train_dataset=prompts)

All completions are generated and rewarded as before. Completions without a gradient are then left
out of training, and of the pass for the old log-probabilities. The others are regrouped into fewer
micro-batches per update.
"""

from selective_backprop.integrations._trl._trainers import (
    NonzeroGRPOTrainer,
    NonzeroRLOOTrainer,
    NonzeroRollouts,
)

__all__ = ["NonzeroGRPOTrainer", "NonzeroRLOOTrainer", "NonzeroRollouts"]
