"""Experiments, not shown to save time: cheaper scoring, and training without a second forward.

They may change or be removed, and nothing else imports them. Each scorer here approximates another
one, which it wraps. A check compares the two now and then: read `_approximate.py` first. `_reuse/`
saves the second forward pass of selected rows.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._int8 import Int8
from selective_backprop.experimental._pipelined.scorer import Pipelined
from selective_backprop.experimental._reuse.reuse_activations import ReuseActivations

__all__ = ["Check", "Int8", "Pipelined", "ReuseActivations"]
