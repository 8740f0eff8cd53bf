"""TRL's GRPOTrainer and RLOOTrainer without rollouts that have no gradient.

    trainer = NonzeroGRPOTrainer(model, reward_funcs, args=args, train_dataset=prompts)

All completions are generated and rewarded as usual. Completions without a gradient are then left
out of training, and out of the pass that computes the old log-probabilities. The others are
regrouped into fewer micro-batches per update.
"""

from selective_backprop.integrations._trl._trainers import (
    NonzeroGRPOTrainer,
    NonzeroRLOOTrainer,
    NonzeroRollouts,
)

__all__ = ["NonzeroGRPOTrainer", "NonzeroRLOOTrainer", "NonzeroRollouts"]
