"""`SelectiveLoader`, which most users start from; read `selective_loader.py` first.

This package imports neither `_step` nor `_pruning`.
"""
