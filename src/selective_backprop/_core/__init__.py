"""Words and tools that every room uses, and that know nothing of training.

Errors and the one way to warn, shaped types, checks of arguments and of saved states, counters,
a stopwatch, and what keeps a model and the random streams as they were. Knows no other room.
Read `errors.py` first.
"""
