"""What every test runs under: checked annotations, one thread, and repeatable random cases."""

import os

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Types and shapes are checked against what is really passed, an int being a float as for type
# checkers. This must come before the package's first import.
install_import_hook(
    "selective_backprop",
    "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",
)

torch.set_num_threads(1)

settings.register_profile("local", deadline=None, max_examples=30)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
