"""Checks of activation reuse that refuse a scorer or a model before training starts."""

from dataclasses import replace
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from selective_backprop._core.errors import ConfigurationError
from selective_backprop.scorers import AbstractScorer, Forward


def check_reusable_scorer(scorer: AbstractScorer | None) -> Forward:
    """Return the scorer in the modes of training; refuse one that computes something else."""
    if not isinstance(scorer, Forward):
        raise ConfigurationError(
            f"reused activations need a strategy that scores by a forward pass of the model "
            f"itself, Forward(), and this one has {scorer!r}"
        )
    return replace(scorer, training=True)


def check_reusable_model(model: Any, *, candidate_statistics: bool) -> None:
    """Refuse a model whose training forward cannot reuse its selection pass's activations."""
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"a model is needed whose activations are reused, got {model!r}")
    for name, module in model.named_modules():
        place = f"{name or 'the model'} ({type(module).__name__})"
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None):
            raise ConfigurationError(
                f"{place} is compiled, and operations inside a compiled model are not seen. Pass "
                "the model that is not, or leave out reuse=."
            )
        if module.training and _drops_out(module):
            raise ConfigurationError(
                f"{place} has dropout: it would drop other activations when training than when "
                "selecting, so that they cannot be reused. Set it to 0, or "
                "leave out reuse=."
            )
        takes_statistics = isinstance(module, _BatchNorm) and (
            module.training or module.running_mean is None
        )
        if takes_statistics and not candidate_statistics:
            raise ConfigurationError(
                f"{place} normalises by the statistics of its batch, which are not the same for "
                "candidates and for the rows selected of them. candidate_statistics=True "
                "normalises the rows by the candidates' statistics, taken as constants; else "
                "put it in eval mode, or leave out reuse=."
            )


def _drops_out(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.RReLU)
