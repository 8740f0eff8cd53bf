"""The recipe for TRL's GRPOTrainer trains as the Trainer does, on fewer completions."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl")

import fixture_text as text
import tokenizers
import transformers
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import selective_backprop as sb

# What TRL itself still asks of Transformers.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")

PAGE = Path(__file__).parents[2] / "docs" / "zero-gradients.md"


def recipe():
    """The class on the page, and the rows that it gives to TRL's own loss, batch by batch."""
    code = PAGE.read_text(encoding="utf-8").partition("## GRPO of TRL")[2]
    [shown] = re.findall(r"```python\n(.*?)```", code, re.DOTALL)
    rows = []

    class Noting(GRPOTrainer):
        def compute_loss(self, model, inputs, *args, **options):
            rows.append(len(inputs["advantages"]))
            return super().compute_loss(model, inputs, *args, **options)

    names = {"GRPOTrainer": Noting, "sb": sb}
    exec(shown, names)
    return names["NonzeroGRPOTrainer"], rows


def tokenizer():
    letters = {chr(ord("0") + number): number for number in range(128)}  # as many as the model's
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="0", eos_token="0", unk_token="0", padding_side="left"
    )


def has_one_twice(completions, **_):
    """A reward that most of the short answers miss."""
    letters = [each.replace(" ", "") for each in completions]
    return [float(len(set(each)) < len(each)) for each in letters]


def train(kind, folder, **options):
    prompts = [{"prompt": "abcdefgh"[n : n + 3]} for n in range(6)] * 4
    chosen = {
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 0.5,
        "activation_checkpointing": False,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "logging_strategy": "no",
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    made = kind(
        model=text.speaker(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
        reward_funcs=has_one_twice,
        args=GRPOConfig(str(folder), **chosen | options),
        train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer(),
    )
    before = text.weights(made)
    made.train()
    return before, text.weights(made)


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo"])
def test_the_policy_is_that_of_the_trainer_to_rounding(tmp_path, loss_type):
    options = {"loss_type": loss_type, "num_iterations": 2}
    kind, rows = recipe()
    before, plain = train(GRPOTrainer, tmp_path, **options)
    _, fewer = train(kind, tmp_path, **options)
    assert len(rows) == 4
    assert min(rows) < 8
    assert (plain - before).abs().max() > 1e-3
    torch.testing.assert_close(fewer, plain, rtol=0, atol=1e-6)


@pytest.mark.parametrize("option", [{"top_entropy_quantile": 0.5}, {"entropy_coef": 0.1}])
def test_what_gives_every_completion_a_gradient_is_refused(tmp_path, option):
    kind, _ = recipe()
    with pytest.raises(ValueError, match="have a gradient"):
        train(kind, tmp_path, **option)
