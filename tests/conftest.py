"""What every test runs under: checked annotations, one thread, and repeatable random cases."""

import os

import checked_types  # noqa: F401 (this must come before the package's first import)
import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("local", deadline=None, max_examples=40)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")
