"""Train a small language model on Python's own library with TRL: plainly, selectively, shortened.

The selective training takes fewer steps than the plain one; the third is the plain one again,
shortened to as many steps, which is what selection has to beat.
"""

import math
import re
import sysconfig
import tempfile
import time
from pathlib import Path

import datasets
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from trl import SFTConfig, SFTTrainer

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer

PACKAGES = ("html", "json", "wsgiref")
PASSES = 3


class SelectiveSFTTrainer(SelectiveTrainer, SFTTrainer):
    pass


def blocks(files: list[Path]) -> datasets.Dataset:
    """Return what stands between empty lines, in pieces of up to 250 characters."""
    found = [
        block[:250]
        for file in files
        for block in re.split(r"\n\s*\n", file.read_text(encoding="utf-8"))
        if len(block) > 40
    ]
    return datasets.Dataset.from_dict({"text": found})


def make_model() -> transformers.PreTrainedModel:
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config)


transformers.logging.set_verbosity_error()
datasets.disable_progress_bars()
library = Path(sysconfig.get_path("stdlib"))
files = sorted(file for name in PACKAGES for file in (library / name).glob("*.py"))
train, held_out = blocks([f for n, f in enumerate(files) if n % 4]), blocks(files[::4])

letters = sorted(pre_tokenizers.ByteLevel.alphabet())  # a token for each byte
vocabulary = {letter: number for number, letter in enumerate(["<pad>", "<end>", *letters])}
bytes_ = Tokenizer(models.BPE(vocabulary, []))
bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bytes_.decoder = decoders.ByteLevel()
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=bytes_, pad_token="<pad>", eos_token="<end>"
)


def run(name: str, steps: int, strategy: sb.Strategy | None = None) -> int:
    args = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        num_train_epochs=PASSES,
        max_steps=steps,
        packing=True,
        max_length=256,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=3e-3,
        bf16=False,
        activation_checkpointing=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    parts = {"train_dataset": train, "eval_dataset": held_out, "processing_class": tokenizer}
    if strategy is None:
        trainer = SFTTrainer(make_model(), args, **parts)
    else:
        trainer = SelectiveSFTTrainer(make_model(), args, strategy=strategy, **parts)
    trainer.remove_callback(transformers.PrinterCallback)
    begun = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begun
    bits = trainer.evaluate()["eval_loss"] / math.log(2)
    taken = trainer.state.global_step
    print(f"{name}: {taken} steps, {seconds:.0f} s, {bits:.3f} bits per byte held out")
    return taken


whole = run("plain", steps=-1)
fewer = whole * (1 + (PASSES - 1) // 2) // PASSES  # the first pass is whole, the others are halves
run("selective", fewer, sb.recorded_sb(rate=1 / 2))
run("shortened", fewer)
