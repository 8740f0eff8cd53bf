"""Adapters for frameworks that run the training loop for you.

Import each adapter by its name. It needs its framework; `import selective_backprop` does not.
"""
