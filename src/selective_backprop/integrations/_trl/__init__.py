"""The adapter for TRL. Importing any part of it checks TRL's version."""

from selective_backprop.integrations._kit import require

require("trl", "1.16")
