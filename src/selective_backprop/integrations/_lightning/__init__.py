"""The parts of the adapter for Lightning; importing any of them checks Lightning's version."""

from selective_backprop.integrations._versions import require

require("lightning", "2.6")
