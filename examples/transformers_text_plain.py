"""Train the network of transformers_text.py without selection."""

import ast
import importlib
import inspect
import re
import tempfile

import numpy as np
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

MODULES = ["turtle", "statistics", "logging", "unittest.mock", "ipaddress", "email.message"]


def sentences(name: str) -> list[str]:
    """Return the sentences of a module's docstrings, each once."""
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    documented = ast.Module, ast.ClassDef, ast.FunctionDef
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
    parts = re.split(r"(?<=[.:])\s+|\n\n+", "\n\n".join(filter(None, found)))
    return sorted({part for part in parts if len(part.split()) > 4})


transformers.set_seed(0)
pairs = [(text, label) for label, name in enumerate(MODULES) for text in sentences(name)]
test, train = pairs[::5], [pair for place, pair in enumerate(pairs) if place % 5]
words = Tokenizer(models.WordLevel(unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
teacher = trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["_", "?"])
words.train_from_iterator([text for text, _ in train], teacher)
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="_", unk_token="?", model_max_length=24
)
data, held_out = (
    [tokenizer(text, truncation=True) | {"labels": label} for text, label in part]
    for part in (train, test)
)

size = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
config = transformers.BertConfig(
    vocab_size=3000, num_labels=len(MODULES), intermediate_size=128, **size
)
model = transformers.BertForSequenceClassification(config)
speed = {"num_train_epochs": 8, "per_device_train_batch_size": 32, "learning_rate": 2e-3}
args = transformers.TrainingArguments(tempfile.mkdtemp(), save_strategy="no", **speed)
collate = transformers.DataCollatorWithPadding(tokenizer)
trainer = transformers.Trainer(model, args, collate, data)
trainer.train()

guesses = trainer.predict(held_out)
error = np.mean(guesses.predictions.argmax(1) != guesses.label_ids)
print(f"{trainer.state.global_step} steps, test error {error:.1%}")
