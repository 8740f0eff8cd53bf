"""What the paper names and nothing, or hardly anything, shows to save time.

These may change or be removed, and nothing else imports them. `Crossing` predicts which examples
will be selected. `Pipelined` and `Quantized` score with a copy of the model, so their scores are
approximate. A check compares them with exact scores now and then: read `_approximate.py` first.
`ReuseActivations` saves a part of the training forward.
"""

from selective_backprop.experimental._approximate import Check
from selective_backprop.experimental._crossing import Crossing
from selective_backprop.experimental._pipelined import Pipelined
from selective_backprop.experimental._quantized import Quantized

__all__ = ["Check", "Crossing", "Pipelined", "Quantized"]
