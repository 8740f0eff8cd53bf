"""Which rows are kept, with which weights, and when: draws, schedules with gates, and subsets.

Also the `Context` that scorers and selectors start from. Imports only `_core`. Read `draws.py`
first.
"""
