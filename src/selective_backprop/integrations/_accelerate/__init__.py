"""The parts of the adapter for Accelerate; importing any of them checks its version."""

from selective_backprop.integrations._versions import require

require("accelerate", "1.0.1")
