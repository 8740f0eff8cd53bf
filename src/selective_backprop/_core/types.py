"""Tensor types with shapes, for scores, odds and rows, and the types of the user's callables.

Only tests check the shapes, with jaxtyping, which they import first. Else they are mere notes.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from torch import Tensor, nn

if not TYPE_CHECKING and sys.modules.get("jaxtyping"):
    from jaxtyping import Bool, Float, Float32, Float64, Int, Int32, Int64, Num, UInt8
else:
    Bool = Float = Float32 = Float64 = Int = Int32 = Int64 = Num = UInt8 = Annotated

# The score of a row without a target: lower than any loss, but finite, and exact in bfloat16.
NO_TARGET = -(2.0**100)

Scores: TypeAlias = Float[Tensor, " candidate"]
Odds: TypeAlias = Float64[Tensor, " candidate"]
RowIndices: TypeAlias = Int64[Tensor, " row"]
RowMask: TypeAlias = Bool[Tensor, " row"]
RowWeights: TypeAlias = Float[Tensor, " row"]

LossesOf: TypeAlias = Callable[[nn.Module, Any], Tensor]
OutputsOf: TypeAlias = Callable[[nn.Module, Any], tuple[Any, Any]]
