"""What no record shows to pay: cheaper scoring passes, and training without a second forward.

It may change or be removed. Nothing else imports this room. Its scorers wrap another one, which
they approximate and may be compared with now and then: read `_approximate.py` first. `_reuse/`
spares the second forward pass of selected rows.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._int8 import Int8
from selective_backprop.experimental._pipelined.scorer import Pipelined
from selective_backprop.experimental._reuse.reuse_activations import ReuseActivations

__all__ = ["Check", "Int8", "Pipelined", "ReuseActivations"]
