"""The adapter for Keras. Importing any part of it checks Keras's version."""

from selective_backprop.integrations._versions import require

require("keras", "3.6")
