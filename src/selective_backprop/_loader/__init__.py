"""`SelectiveLoader`, which most users start from; read `selective_loader.py` first."""
