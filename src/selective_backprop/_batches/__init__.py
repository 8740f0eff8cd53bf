"""The rows of any nested batch, and one loss for each row. Read `structure.py` first."""
