"""The adapter for Accelerate. Importing any part of it checks Accelerate's version."""

from selective_backprop.integrations._kit import require

require("accelerate", "1.0.1")
