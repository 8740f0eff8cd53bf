"""The random streams that an epoch's order is drawn from, so that it can be drawn once more."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.saved_state import Saved


class SamplerRngState:
    """Where torch's global stream and a sampler's own generators stand at one moment.

    Args:
        stream: state of the global stream.
        own: states of the sampler's generators.
    """

    def __init__(self, stream: Tensor, own: tuple[Tensor, ...]) -> None:
        self.stream = stream
        self.own = own

    @classmethod
    def of(cls, sampler: Any) -> "SamplerRngState":
        """Note where they stand now."""
        own = tuple(generator.get_state() for generator in generators_of(sampler))
        return cls(torch.get_rng_state(), own)

    @contextmanager
    def again(self, sampler: Any) -> Generator[None]:
        """Let the sampler draw from here in the body; its generators stay where that leaves them.

        It has as many of them as when this was noted.
        """
        for generator, state in zip(generators_of(sampler), self.own, strict=True):
            generator.set_state(state)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.stream)
            yield

    def pack(self) -> dict[str, Any]:
        """Return the states in plain containers."""
        return {"stream": self.stream, "own": list(self.own)}

    @classmethod
    def unpack(cls, saved: Saved, sampler: Any) -> "SamplerRngState":
        """Return what `pack()` was called on.

        Raises:
            ConfigurationError: if it is damaged, or the sampler has another number of generators.
        """
        stream, own = saved.fields("stream", "own")
        generators, states = generators_of(sampler), own.items()
        if len(generators) != len(states):
            raise ConfigurationError(
                f"the state is of a loader whose sampler draws from {len(states)} generators of "
                f"its own, this one's has {len(generators)}. Build the loader as it was."
            )
        return cls(
            stream.random_state(),
            tuple(
                state.random_state(generator.device)
                for generator, state in zip(generators, states, strict=True)
            ),
        )


def generators_of(sampler: Any) -> list[torch.Generator]:
    """Return the generators that a sampler holds, or that the samplers inside it hold."""
    found: list[torch.Generator] = []
    while sampler is not None:
        held = vars(sampler).values() if hasattr(sampler, "__dict__") else ()
        for value in held:
            if isinstance(value, torch.Generator) and not any(value is each for each in found):
                found.append(value)
        sampler = getattr(sampler, "sampler", None)
    return found
