"""The processes (ranks) that train together, and the messages that they exchange.

This package uses only `_core`; it knows nothing of batches or selection. Read `group.py` first.
"""
