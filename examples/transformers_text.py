"""Tell from a sentence which module's documentation it is from, with the Trainer."""

import importlib
import inspect
import re
import tempfile

import numpy as np
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer

MODULES = ["turtle", "statistics", "logging", "unittest.mock", "ipaddress", "email.message"]


def sentences(name: str) -> list[str]:
    """Return the sentences of the docstrings of a module, its classes and their methods."""
    module = importlib.import_module(name)
    classes = [thing for thing in vars(module).values() if inspect.isclass(thing)]
    own = [thing for thing in classes if thing.__module__ == name]
    parts = [part for thing in own for part in vars(thing).values() if inspect.isroutine(part)]
    functions = [part for part in vars(module).values() if inspect.isfunction(part)]
    texts = {inspect.getdoc(thing) or "" for thing in (module, *own, *parts, *functions)}
    found = [part for text in sorted(texts) for part in re.split(r"(?<=[.:])\s+|\n\n+", text)]
    return [sentence for sentence in found if len(sentence.split()) > 4]


transformers.set_seed(0)
transformers.logging.set_verbosity_error()
pairs = [(text, label) for label, name in enumerate(MODULES) for text in sentences(name)]
words = Tokenizer(models.WordLevel(unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
test, train = pairs[::5], [pair for place, pair in enumerate(pairs) if place % 5]
words.train_from_iterator(
    [text for text, _ in train],
    trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["_", "?"]),
)
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="_", unk_token="?", model_max_length=24
)
data, held_out = (
    [tokenizer(text, truncation=True) | {"labels": label} for text, label in part]
    for part in (train, test)
)

config = transformers.BertConfig(
    vocab_size=3000,
    num_labels=len(MODULES),
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=128,
)
model = transformers.BertForSequenceClassification(config)
args = transformers.TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=8,
    per_device_train_batch_size=32,
    learning_rate=1e-3,
    save_strategy="no",
    logging_strategy="no",
    report_to="none",
    dataloader_pin_memory=False,
    disable_tqdm=True,
)
collate = transformers.DataCollatorWithPadding(tokenizer)
trainer = SelectiveTrainer(model, args, collate, data, strategy=sb.auto())
trainer.train()

guesses = trainer.predict(held_out)
error = np.mean(guesses.predictions.argmax(1) != guesses.label_ids)
print(f"{trainer.state.global_step} steps, test error {error:.1%}")
