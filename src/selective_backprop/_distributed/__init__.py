"""The processes that train together: who they are, and what they tell one another.

Knows `_core` alone: nothing of batches or of selection. Read `group.py` first.
"""
