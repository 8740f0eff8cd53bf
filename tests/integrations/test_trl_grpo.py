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


def use_tool(prompts, trainer):
    """Completions of several lengths, in which some of the tokens are a tool's."""
    draw = torch.Generator().manual_seed(trainer.state.global_step)
    lengths = torch.randint(2, 7, (len(prompts),), generator=draw).tolist()
    tokens = [torch.randint(1, 20, (length,), generator=draw).tolist() for length in lengths]
    own = [torch.randint(2, (length,), generator=draw).tolist() for length in lengths]
    ids = trainer.processing_class(prompts)["input_ids"]
    return {"prompt_ids": ids, "completion_ids": tokens, "logprobs": None, "env_mask": own}


def experts():
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        **text.SIZE,
        vocab_size=128,
        intermediate_size=16,
        num_key_value_heads=1,
        num_local_experts=4,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.MixtralForCausalLM(config)


def train(kind, folder, *, model=None, tool=None, **options):
    prompts = [{"prompt": "abcdefgh"[n : n + 3]} for n in range(6)] * 4
    chosen = {
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "num_iterations": 2,
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
        model=model or text.speaker(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
        reward_funcs=has_one_twice,
        args=GRPOConfig(str(folder), **chosen | options),
        train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer(),
        rollout_func=tool,
    )
    before = text.weights(made)
    made.train()
    return before, text.weights(made)


@pytest.mark.parametrize("tool", [None, use_tool], ids=["text", "tool"])
@pytest.mark.parametrize(
    "loss_type", ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
)
def test_the_policy_is_that_of_the_trainer_to_rounding(tmp_path, monkeypatch, loss_type, tool):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # of its rollouts
    kind, rows = recipe()
    options = {"loss_type": loss_type, "tool": tool}
    before, plain = train(GRPOTrainer, tmp_path, **options)
    _, fewer = train(kind, tmp_path, **options)
    assert len(rows) == 4
    assert min(rows) < 8
    assert (plain - before).abs().max() > 1e-3
    torch.testing.assert_close(fewer, plain, rtol=0, atol=1e-6)


def test_a_batch_in_which_all_tokens_are_the_tool_s_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def use_tool_alone(prompts, trainer):
        found = use_tool(prompts, trainer)
        return found | {"env_mask": [[0] * len(own) for own in found["env_mask"]]}

    kind, rows = recipe()
    before, after = train(kind, tmp_path, loss_type="bnpo", tool=use_tool_alone)
    assert rows == [1, 1, 1, 1]
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("beta", 0.1),
        ("top_entropy_quantile", 0.5),
        ("entropy_coef", 0.1),
        ("use_adaptive_entropy", True),
        ("router_aux_loss_coef", 0.1),
    ],
)
def test_a_loss_in_which_every_completion_counts_is_refused(tmp_path, option, value):
    kind, _ = recipe()
    experts().save_pretrained(tmp_path)  # from where TRL takes the reference model of `beta`
    model = transformers.MixtralForCausalLM.from_pretrained(tmp_path)
    chosen = {"router_aux_loss_coef": 0.0} | {option: value}
    with pytest.raises(ValueError, match=f"{option}={value} "):
        train(kind, tmp_path, model=model, **chosen)


def test_a_mixture_of_experts_without_a_router_s_loss_trains_alike(tmp_path):
    kind, rows = recipe()
    with pytest.raises(ValueError, match=r"router_aux_loss_coef=0\.001 "):  # the model's own
        train(kind, tmp_path, model=experts())
    _, plain = train(GRPOTrainer, tmp_path, model=experts(), router_aux_loss_coef=0.0)
    _, fewer = train(kind, tmp_path, model=experts(), router_aux_loss_coef=0.0)
    assert min(rows) < 8
    torch.testing.assert_close(fewer, plain, rtol=0, atol=1e-6)
