"""Real text and small models for the Trainer: imported only where transformers is installed."""

import functools
import re

import numpy as np
import torch
import transformers
from sklearn import datasets

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer

NAMES = ("iris", "diabetes", "digits", "wine", "breast_cancer")
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}

transformers.logging.set_verbosity_error()


@functools.cache
def sentences() -> list[tuple[str, int]]:
    """What scikit-learn says of its data sets, and of which."""
    found = []
    for label, name in enumerate(NAMES):
        text = getattr(datasets, f"load_{name}")().DESCR
        parts = re.split(r"(?<=[.:])\s+|\n\n+", text)
        found += [(part[:48], label) for part in parts if len(part) > 12]
    return found


def as_bytes(text: str) -> list[int]:
    return [1 + byte % 127 for byte in text.encode()]


def classified(count: int | None = None) -> list[dict]:
    return [{"input_ids": as_bytes(text), "labels": label} for text, label in sentences()[:count]]


def spoken(count: int | None = None) -> list[dict]:
    return [{"input_ids": as_bytes(text)} for text, _ in sentences()[:count]]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    """Pad to the longest row; a text without a class is its own target."""
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
    mask = (ids > 0).long()
    if "labels" in rows[0]:
        labels = torch.tensor([row["labels"] for row in rows])
    else:
        labels = ids.masked_fill(ids == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def classifier(**options) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=128,
        intermediate_size=16,
        max_position_embeddings=64,
        **SIZE,
        **({"num_labels": len(NAMES)} | options),
    )
    return transformers.BertForSequenceClassification(config)


def speaker(**options) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        **({"vocab_size": 128, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}),
        **{"bos_token_id": None, "eos_token_id": None},
        **options,
    )
    return transformers.GPT2LMHeadModel(config)


def arguments(folder, **options) -> transformers.TrainingArguments:
    chosen = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **(chosen | options))


def trainer(folder, strategy=None, *, model=None, data=None, options=None, **arguments_):
    """Return a Trainer, plain where there is no strategy."""
    model = classifier() if model is None else model
    data = classified(48) if data is None else data
    common = {
        "model": model,
        "args": arguments(folder, **arguments_),
        "data_collator": collate,
        "train_dataset": data,
        "callbacks": [],
        **(options or {}),
    }
    if strategy is None:
        made = transformers.Trainer(**common)
    else:
        made = SelectiveTrainer(**common, strategy=strategy)
    made.remove_callback(transformers.PrinterCallback)
    return made


def weights(made) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in made.model.parameters()])


def selective(rate=1 / 2, warmup_epochs=0, **options) -> sb.Strategy:
    return sb.selective_backprop(rate=rate, warmup_epochs=warmup_epochs, **options)


def held_out_loss(model, data) -> float:
    model.eval()
    with torch.no_grad():
        return float(np.mean([model(**collate([row])).loss.item() for row in data]))
