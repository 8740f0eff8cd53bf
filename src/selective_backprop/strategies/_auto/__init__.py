"""The rule of `auto`, this project's own (`auto` in `rule.py`), and the losses that it needs."""
