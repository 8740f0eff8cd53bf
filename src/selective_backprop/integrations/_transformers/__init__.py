"""The adapter for Transformers. Importing any part of it checks the version of Transformers."""

from selective_backprop.integrations._kit import require

require("transformers", "5.0")
