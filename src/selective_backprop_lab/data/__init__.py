"""Read data sets, and change them before training. `datasets.py` finds data by name."""
