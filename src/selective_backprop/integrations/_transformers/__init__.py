"""The parts of the adapter for Transformers; importing any of them checks its version."""

from selective_backprop.integrations._versions import require

require("transformers", "5.0")
