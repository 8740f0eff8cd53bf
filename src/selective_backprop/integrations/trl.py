"""Rollouts without a gradient are left out of TRL's GRPOTrainer and RLOOTrainer.

    trainer = NonzeroGRPOTrainer(model, reward_funcs, args=args, train_dataset=prompts)

All completions are generated and rewarded as before. Those without a gradient are then left out of
the pass for the old log-probabilities and of training, and the others are dealt out anew over the
micro-batches of their update, which are fewer.
"""

from selective_backprop.integrations._trl._trainers import (
    NonzeroGRPOTrainer,
    NonzeroRLOOTrainer,
    NonzeroRollouts,
)

__all__ = ["NonzeroGRPOTrainer", "NonzeroRLOOTrainer", "NonzeroRollouts"]
