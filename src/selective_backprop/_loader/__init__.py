"""The door of most users: `SelectiveLoader`, built from the pipeline's stages.

What it accepts is checked in `validation.py`, the stages are put together in `assembly.py`, and
what a saved state holds is in `checkpoint.py`. Knows neither `_step` nor `_pruning`. Read
`selective_loader.py` first.
"""
