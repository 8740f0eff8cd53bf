"""The small nets, by name, and how a model of the user's own is found. Read `models.py` first."""
