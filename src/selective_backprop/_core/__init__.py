"""Types and tools that every other package uses; they know nothing of training.

Errors and warnings, tensor types with shapes, checks of arguments and of saved states, counters, a
stopwatch, and contexts that restore a model and the random streams. Read `errors.py` first.
"""
