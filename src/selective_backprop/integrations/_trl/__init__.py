"""The parts of the adapter for TRL; importing any of them checks its version."""

from selective_backprop.integrations._versions import require

require("trl", "1.16")
