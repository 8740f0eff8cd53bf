"""`SelectiveLoader`, which most users start from, built from the pipeline's stages.

`validation.py` checks the arguments, `assembly.py` builds the stages, and `checkpoint.py` reads
and writes saved states. This package imports neither `_step` nor `_pruning`. Read
`selective_loader.py` first.
"""
