"""`SelectiveLoader`, which most users start from, built from the pipeline's stages.

`validation.py` checks what it accepts, `assembly.py` builds the stages, and `checkpoint.py` reads
and writes saved states. This room knows neither `_step` nor `_pruning`. Read `selective_loader.py`
first.
"""
