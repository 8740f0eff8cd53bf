"""The parts of the adapter for Keras; importing any of them checks Keras and its backend."""

from selective_backprop.integrations._versions import require

require("keras", "3.6")
