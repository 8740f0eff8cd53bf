"""jaxtyping's shaped types: checked only in tests, and plain annotations without jaxtyping."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float
    from typing import Annotated as Float32
    from typing import Annotated as Float64
    from typing import Annotated as Int64
    from typing import Annotated as Num
    from typing import Annotated as Shaped
    from typing import Annotated as UInt8
else:
    try:
        from jaxtyping import Bool, Float, Float32, Float64, Int64, Num, Shaped, UInt8
    except ImportError:
        from typing import Annotated

        Bool = Float = Float32 = Float64 = Int64 = Num = Shaped = UInt8 = Annotated

__all__ = ["Bool", "Float", "Float32", "Float64", "Int64", "Num", "Shaped", "UInt8"]
