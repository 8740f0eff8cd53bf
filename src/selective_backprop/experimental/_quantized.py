"""Score with a quantised copy of the model, made by torchao."""

import copy
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, final

from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError, installing
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.experimental import _pipelined as copies
from selective_backprop.experimental._approximate import Check, check_wrapper, model_of
from selective_backprop.scorers._abstract import AbstractScorer, Needs, RunningScorer, start_scorer

INT8, FLOAT8 = "Int8DynamicActivationInt8WeightConfig", "Float8DynamicActivationFloat8WeightConfig"
CONFIGS = {"int8": INT8, "float8": FLOAT8}


@final
@dataclass(frozen=True)
class Quantized(AbstractScorer):
    """Experimental: score candidates with a quantised copy of the model.

    `nn.Linear` layers are quantised, on a GPU only those whose sides are multiples of 16. The copy
    is made anew once in `every` scored batches. Memory holds another copy, which is not quantised.

    Needs torchao: `pip install 'selective-backprop[quantized]'`.

    Args:
        scorer: the scorer that uses the copy, such as `Forward()`.
        every: number of scored batches from one copy to the next, at least 1.
        kind: `"int8"`, or `"float8"` on a GPU that computes in it.
        check: when to compare the scores with those of the model itself; None for never.

    Raises:
        ConfigurationError: if a value is out of its range, torchao is not installed, or `scorer`
            remembers scores or has a model of its own. At the first batch: if nothing fits.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3: "inference acceleration approaches, such
        as reduced precision or quantization".
    """

    scorer: AbstractScorer
    every: int = 8
    kind: Literal["int8", "float8"] = "int8"
    check: Check | None = Check()
    ahead: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "every")
        if self.kind not in CONFIGS:
            raise ConfigurationError(f'kind={self.kind!r}: write "int8" or "float8"')
        if importlib.util.find_spec("torchao") is None:
            raise ConfigurationError(
                f"Quantized() needs torchao, which is not installed; run {installing('quantized')}"
            )

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        return copies.start_ahead(self, context, partial(_QuantizedBackend, self, context))


class _QuantizedBackend:
    """A copy of the model, and a quantised copy of this copy, which scores."""

    def __init__(self, spec: Quantized, context: Context) -> None:
        self._spec, self._context = spec, context
        self._model = model_of(spec, context)
        self._twin = copies.copy_model(self._model)
        self._inner = self._quantised()

    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        if renew:
            copies.update(self._twin, self._model)
            self.resume(None, self.state_dict())
        scores = self._inner.score(batch, indices)
        return lambda: scores

    def weights(self) -> dict[str, Tensor]:
        return copies.cloned(copies.tensors_of(self._twin))

    def state_dict(self) -> dict[str, Any]:
        return self._inner.state_dict()

    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any]) -> None:
        if weights is not None:
            copies.overwrite(copies.tensors_of(self._twin), weights)
        self._inner = self._quantised()
        self._inner.load_state_dict(state)

    def _quantised(self) -> RunningScorer:
        from torchao import quantization

        kind, twin = self._spec.kind, copy.deepcopy(self._twin)
        layers = [each for each in twin.modules() if isinstance(each, nn.Linear)]
        # On a GPU, torchao would compute layers of other sizes on the CPU.
        sizes = {each: (each.in_features % 16, each.out_features % 16) for each in layers}
        chosen = {each for each in layers if not (each.weight.is_cuda and any(sizes[each]))}
        if not chosen:
            raise ConfigurationError(f"the model has no nn.Linear that can be quantised to {kind}")
        try:
            config = getattr(quantization, CONFIGS[kind])()
            quantization.quantize_(twin, config, lambda module, _: module in chosen)
        except (AssertionError, RuntimeError) as error:  # such as a device without this type
            raise ConfigurationError(f"torchao cannot quantise to {kind}: {error}") from error
        return start_scorer(self._spec.scorer, replace(self._context, model=twin))
