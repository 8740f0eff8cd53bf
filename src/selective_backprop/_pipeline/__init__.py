"""The stages of an epoch, from indices to training batches. Read `stages.py` first."""
