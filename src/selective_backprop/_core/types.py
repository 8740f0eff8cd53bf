"""Shaped tensor types of scores, odds and rows, and the types of the user's callables."""

from collections.abc import Callable
from typing import Any, TypeAlias

from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

Scores: TypeAlias = Float[Tensor, " candidate"]
Odds: TypeAlias = Float64[Tensor, " candidate"]
RowIndices: TypeAlias = Int64[Tensor, " row"]
RowMask: TypeAlias = Bool[Tensor, " row"]
RowWeights: TypeAlias = Float[Tensor, " row"]

LossesOf: TypeAlias = Callable[[nn.Module, Any], Tensor]
OutputsOf: TypeAlias = Callable[[nn.Module, Any], tuple[Any, Any]]
