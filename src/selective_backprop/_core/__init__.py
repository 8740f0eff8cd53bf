"""Types and tools that every room uses, and that know nothing of training.

Errors and the one way to warn, shaped types, checks of arguments and of saved states, counters,
a stopwatch, and contexts that restore a model and the random streams. Knows no other room.
Read `errors.py` first.
"""
