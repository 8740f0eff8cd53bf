"""Options that sources name, but hardly a record shows to gain anything.

They may change or be removed, and nothing else imports them. `Pipelined` and `Quantized` score with
a copy of the model; a check compares their scores with exact ones: read `_approximate.py` first.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._crossing import Crossing
from selective_backprop.experimental._grand import grand_scores
from selective_backprop.experimental._pipelined import Pipelined
from selective_backprop.experimental._quantized import Quantized
from selective_backprop.experimental._reuse import ReuseActivations

__all__ = ["Check", "Crossing", "Pipelined", "Quantized", "ReuseActivations", "grand_scores"]
