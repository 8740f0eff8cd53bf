"""An experiment that hardly was shown to save time: scoring ahead of training.

It may change or be removed, and nothing else imports it. `Pipelined` approximates the scorer that
it wraps. A check compares the two now and then: read `_approximate.py` first.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._pipelined import Pipelined

__all__ = ["Check", "Pipelined"]
