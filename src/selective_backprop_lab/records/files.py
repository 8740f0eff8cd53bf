"""How the lab writes files."""

from selective_backprop._core.files import replacing

__all__ = ["replacing"]
