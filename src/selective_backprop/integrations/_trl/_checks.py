"""Options of TRL's trainers with which completions of advantage 0 are not without a gradient."""

from typing import Any

from selective_backprop._core.errors import ConfigurationError

# What each loss is divided by, and so how rows are weighed that change their micro-batch.
BY_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo", "rloo"})
BY_TOKENS = frozenset({"bnpo"})  # of the micro-batch
BY_ALL_TOKENS = frozenset({"cispo", "dapo", "vespo"})  # of all that was generated

# Other terms of the loss, with their values at which they are off.
OFF = {
    "beta": 0.0,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "router_aux_loss_coef": 0.0,
}


def find_loss(trainer: Any) -> str:
    """Return the name of the loss; RLOO has one, and no option for it."""
    return getattr(trainer, "loss_type", "rloo")


def check_trainer(trainer: Any) -> None:
    """Refuse options with which leaving out completions would change training.

    Raises:
        ConfigurationError: if a term of the loss depends on every completion, it is not known what
            the loss is divided by, or the engine counts micro-batches itself.
    """
    for name, off in OFF.items():
        found = getattr(trainer, name, off)
        if found != off:
            raise ConfigurationError(
                f"with {name}={found} every completion has a gradient or changes another one's, so "
                f"none can be left out. Set {name}={off}, or use TRL's own trainer."
            )
    loss = find_loss(trainer)
    if loss not in BY_ROWS | BY_TOKENS | BY_ALL_TOKENS:
        raise ConfigurationError(
            f"this adapter does not know what loss_type={loss!r} divides by. It knows "
            f"{', '.join(sorted((BY_ROWS | BY_TOKENS | BY_ALL_TOKENS) - {'rloo'}))}"
        )
    for name in ("deepspeed", "fsdp"):
        if getattr(trainer, f"is_{name}_enabled", False):
            raise ConfigurationError(
                f"{name} has not been tested with updates of fewer micro-batches. Use DDP, or "
                "TRL's own trainer."
            )


def check_rollouts(rollouts: dict[str, Any]) -> None:
    """Refuse rollouts whose rows cannot be dealt out anew.

    Raises:
        ConfigurationError: if they hold images.
    """
    if images := sorted(rollouts.keys() & {"pixel_values", "num_images"}):
        raise ConfigurationError(
            f"the rollouts hold images ({', '.join(images)}), which this adapter cannot regroup. "
            "Use TRL's own trainer."
        )
