"""What every test runs under: checked annotations, one thread, and repeatable random cases."""

import os

import torch
from hook import install_hook
from hypothesis import settings

# Before the package's first import.
install_hook("selective_backprop")

torch.set_num_threads(1)

settings.register_profile("local", deadline=None, max_examples=30)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
