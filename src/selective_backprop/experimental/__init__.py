"""Experiments, hardly shown to save time: scoring ahead, and training without a second forward.

They may change or be removed, and nothing else imports them. `Pipelined` approximates the scorer
that it wraps. A check compares the two now and then: read `_approximate.py` first. `_reuse/` saves
the second forward pass of selected rows.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._pipelined.scorer import Pipelined
from selective_backprop.experimental._reuse.reuse_activations import ReuseActivations

__all__ = ["Check", "Pipelined", "ReuseActivations"]
