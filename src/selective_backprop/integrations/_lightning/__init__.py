"""The adapter for Lightning. Importing any part of it checks Lightning's version."""

from selective_backprop.integrations._kit import require

require("lightning", "2.6")
