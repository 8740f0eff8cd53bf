"""Run as users do: without the annotation checks that tests run under."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def unhooked() -> Iterator[None]:
    """Let the package's own messages be seen where a checked annotation would speak first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
