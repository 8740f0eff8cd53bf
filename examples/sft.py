"""Train a small language model on Python's standard library with TRL, with and without selection.

Selective training takes fewer steps than plain training. The third run is plain training with as
few steps, which selection has to beat.
"""

import math
import re
import sysconfig
import tempfile
from pathlib import Path

import transformers
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer

PASSES = 3
OPTIONS = {"num_train_epochs": PASSES, "packing": True, "max_length": 256, "learning_rate": 3e-3}
OPTIONS |= {"per_device_train_batch_size": 4, "bf16": False, "gradient_checkpointing": False}
OPTIONS |= {"save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}


class SelectiveSFTTrainer(SelectiveTrainer, SFTTrainer):
    pass


def paragraphs(packages: list[str]) -> Dataset:
    """Return the paragraphs of the source files, each cut to 250 characters."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(file for name in packages for file in (library / name).glob("*.py"))
    parts = [part for file in files for part in re.split(r"\n\s*\n", file.read_text("utf-8"))]
    return Dataset.from_dict({"text": [part[:250] for part in parts if len(part) > 40]})


def run(name: str, kind: type[SFTTrainer], steps: int, **options: sb.Strategy) -> int:
    transformers.set_seed(0)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(vocab_size=259, num_attention_heads=4, **size)
    trainer = kind(
        transformers.LlamaForCausalLM(config),
        SFTConfig(tempfile.mkdtemp(), max_steps=steps, **OPTIONS),
        train_dataset=paragraphs(["json", "wsgiref"]),
        eval_dataset=paragraphs(["html"]),
        processing_class=transformers.ByT5Tokenizer(extra_ids=0),  # a token for each byte
        **options,
    )
    trainer.train()
    bits = trainer.evaluate()["eval_loss"] / math.log(2)
    print(f"{name}: {trainer.state.global_step} steps, {bits:.3f} bits per byte held out")
    return trainer.state.global_step


whole = run("plain", SFTTrainer, -1)
fewer = whole * (1 + (PASSES - 1) // 2) // PASSES  # all of the first epoch, half of each other
run("selective", SelectiveSFTTrainer, fewer, strategy=sb.recorded_sb(rate=1 / 2))
run("shortened", SFTTrainer, fewer)
