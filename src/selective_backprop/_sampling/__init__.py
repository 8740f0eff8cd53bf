"""Which rows are kept, with which weights, and when: draws, schedules, gates and subsets.

Also the `Context` that scorers and selectors are started in. Knows `_core` alone. Read `draws.py`
first.
"""
