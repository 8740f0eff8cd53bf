"""TRL's GRPOTrainer and RLOOTrainer without rollouts that have no gradient.

`NonzeroGRPOTrainer(model, reward_funcs, args=args, train_dataset=prompts)` is such a trainer.
"""

from selective_backprop.integrations._trl._trainers import (
    NonzeroGRPOTrainer,
    NonzeroRLOOTrainer,
    NonzeroRollouts,
)

__all__ = ["NonzeroGRPOTrainer", "NonzeroRLOOTrainer", "NonzeroRollouts"]
