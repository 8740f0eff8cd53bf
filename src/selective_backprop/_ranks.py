"""What all processes of a training agree on; one process alone agrees with itself."""

from dataclasses import dataclass

from torch import distributed

from selective_backprop._errors import ConfigurationError


@dataclass(frozen=True)
class Alone:
    """The only process: rank 0 of 1."""

    rank: int = 0
    size: int = 1


def find_ranks() -> Alone:
    """Return who this process trains with.

    Raises:
        ConfigurationError: if a process group of several ranks is running. Each rank would
            select by itself, from a history of its own, and ranks could take different numbers
            of steps, which hangs them.
    """
    if distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
        if size > 1:
            raise ConfigurationError(
                f"a process group of {size} ranks is running; selection works in one process so "
                "far. Train in one process, or without SelectiveLoader."
            )
    return Alone()
