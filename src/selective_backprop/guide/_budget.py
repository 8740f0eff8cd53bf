"""The seconds that may be spent, and the measurements that did not fit into them."""

import math
import time
from collections.abc import Callable

from selective_backprop._core.errors import ConfigurationError


class Budget:
    """A limited number of wall seconds, counted from construction.

    Args:
        seconds: how many may be spent, above 0; infinitely many for no limit.
        now: returns wall seconds.

    Attributes:
        left_out: what did not fit, in words.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = seconds
        self.left_out: list[str] = []
        self._now, self._begun = now, now()

    @property
    def spent(self) -> float:
        """Seconds spent so far."""
        return self._now() - self._begun

    @property
    def left(self) -> float:
        """Seconds that are left; negative once more was spent."""
        return self.seconds - self.spent

    def fits(self, what: str, seconds: float) -> bool:
        """Return whether so many seconds are left; if not, note `what` in `left_out`."""
        if seconds <= self.left:
            return True
        self.left_out.append(f"{what}: about {seconds:.3g} s, and {max(0.0, self.left):.3g} s left")
        return False

    def needs(self, seconds: float, step: float) -> None:
        """Refuse a budget that is too small for the shortest answer.

        Args:
            seconds: how many more the shortest answer takes.
            step: seconds of a training step.

        Raises:
            ConfigurationError: if fewer seconds are left.
        """
        if seconds > self.left:
            raise ConfigurationError(
                f"budget={self.seconds:g}: a training step takes {step:.3g} s here, and the "
                f"shortest answer {seconds:.3g} s more than the {self.spent:.3g} s spent so far; "
                f"give budget={_rounded_up(2 * (self.spent + seconds))}"
            )


def _rounded_up(seconds: float) -> int:
    """Return the seconds rounded up to a whole number of at most two significant digits."""
    whole = math.ceil(seconds)
    unit = 10 ** max(0, len(str(whole)) - 2)
    return math.ceil(whole / unit) * unit
