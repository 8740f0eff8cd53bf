"""Check TRL's options: with some, completions with an advantage of 0 still have a gradient."""

from typing import Any

from datasets import Dataset

from selective_backprop import ConfigurationError, RestingPrompts
from selective_backprop.integrations._kit import check_band, check_whole, refuse, warn

# What each loss is divided by. Rows that move to another micro-batch are scaled accordingly.
BY_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo", "rloo"})
BY_TOKENS = frozenset({"bnpo"})  # of the micro-batch
BY_ALL_TOKENS = frozenset({"cispo", "dapo", "vespo"})  # of all generated completions

# How TRL corrects log-probabilities of vLLM.
MODES = ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate")

# Further terms of the loss, with the value that turns each off.
OFF = {
    "beta": 0.0,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "router_aux_loss_coef": 0.0,
}


def find_loss(trainer: Any) -> str:
    """Return the name of the loss. RLOO has a single loss, and no option for it."""
    return getattr(trainer, "loss_type", "rloo")


def needs_every_completion(trainer: Any, given: dict[str, Any], beta_on: str) -> bool:
    """Return whether a term of the loss depends on every completion, and warn if so.

    Options in `given`, which choose completions, are refused then.
    """
    chosen = [f"{name}=" for name, value in given.items() if value not in (None, 0, "all")]
    for name, off in OFF.items():
        found = getattr(trainer, name, off)
        if found == off or (name == "beta" and beta_on == "trained"):
            continue
        why = f"with {name}={found} every completion has a gradient or changes another's"
        if chosen:
            raise ConfigurationError(
                f"{why}, so {', '.join(chosen)} cannot be used. Set {name}={off}, or leave it out."
            )
        warn(f"{why}, so none is left out. Set {name}={off} to leave out those with no gradient.")
        return True
    return False


def check_trainer(trainer: Any) -> None:
    """Refuse options with which leaving out completions would change training."""
    loss, known = find_loss(trainer), BY_ROWS | BY_TOKENS | BY_ALL_TOKENS
    mode = getattr(trainer, "vllm_importance_sampling_mode", MODES[0])
    refuse(
        {
            f"this adapter does not know what loss_type={loss!r} divides by. It knows "
            f"{', '.join(sorted(known - {'rloo'}))}": loss not in known,
            f"this adapter does not know vllm_importance_sampling_mode={mode!r}. It knows "
            f"{', '.join(MODES)}": mode not in MODES,
        }
    )


def check_options(
    trainer: Any, given: dict[str, Any], replay_age: Any, beta_on: Any
) -> tuple[int | None, tuple[float, float] | None, int, int, int]:
    """Return the checked `keep`, `pass_rate`, `refills`, `replay` and `replay_age`."""
    rest, answers, args = given["rest"], trainer.num_generations, trainer.args
    keep = check_whole("keep", given["keep"], least=2, most=answers, optional=True)
    band = None if given["pass_rate"] is None else check_band(given["pass_rate"])
    refills = int(check_whole("refills", given["refills"], least=0))
    replay = int(check_whole("replay", given["replay"], least=0))
    age = int(check_whole("replay_age", replay_age, least=1))
    for name, value in (("beta_on", beta_on), ("mean", given["mean"])):
        refuse({f"{name}={value!r}: write 'all' or 'trained'": value not in ("all", "trained")})
    if not isinstance(rest, RestingPrompts | None):
        raise ConfigurationError(f"rest={rest!r:.60}: pass RestingPrompts(len(train_dataset))")
    loss, data, draws = find_loss(trainer), trainer.train_dataset, refills or rest is not None
    rows = args.per_device_train_batch_size * args.steps_per_generation
    together: dict[str, Any] = {"scale_rewards": "batch", "normalize_advantages": True}
    together |= {"multi_objective_aggregation": "normalize_then_sum"}
    refuse(
        {
            "RLOO adds its KL penalty to the rewards, which makes them differ, so no answer can be "
            "left out. Set beta=0.0.": trainer.beta and beta_on == "trained" and loss == "rloo",
            f"loss_type={loss!r} divides by the tokens of a micro-batch, of which keep= may leave "
            "out all. Set loss_type='dapo' or 'grpo'.": loss in BY_TOKENS and keep is not None,
            **{
                f"{name}={found!r} compares all answers that are generated together, but "
                f"refills={refills} generates fewer at a time. Set another value, or refills=0.": (
                    refills and getattr(trainer, name, None) == found
                )
                for name, found in together.items()
            },
            "refills= and replay= need all answers to a prompt in one process, but each process "
            f"generates {rows}, which is no multiple of num_generations={answers}. Change "
            "per_device_train_batch_size or steps_per_generation.": (
                (refills or replay) and args.world_size > 1 and rows % answers
            ),
            "refills and rest draw prompts by index, so train_dataset must be a datasets.Dataset, "
            f"not a {type(data).__name__}": draws and not isinstance(data, Dataset),
            "refills and rest draw prompts in random order, but shuffle_dataset is False": (
                draws and not trainer.shuffle_dataset
            ),
        }
    )
    if rest is not None and len(rest.odds) != len(data):
        raise ConfigurationError(
            f"rest is for {len(rest.odds)} prompts, but train_dataset has {len(data)}"
        )
    return keep, band, refills, replay, age
