"""The seconds that may be spent, and what did not fit into them."""

import math
import time
from collections.abc import Callable

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number


class Budget:
    """Wall seconds that run out.

    Args:
        seconds: from now on.
        now: returns wall seconds.

    Attributes:
        left_out: what did not fit, in words.

    Raises:
        ConfigurationError: if there are none.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = check_number("budget", seconds, "3600 is an hour", above=0)
        self.left_out: list[str] = []
        self._now, self._begun = now, now()

    @property
    def spent(self) -> float:
        """Seconds that are over."""
        return self._now() - self._begun

    @property
    def left(self) -> float:
        """Seconds that are left; negative where it took longer."""
        return self.seconds - self.spent

    def fits(self, what: str, seconds: float) -> bool:
        """Return whether so many seconds are left; take note of what does not fit."""
        if seconds <= self.left:
            return True
        self.left_out.append(f"{what}: about {seconds:.3g} s, and {max(0.0, self.left):.3g} s left")
        return False

    def needs(self, seconds: float, step: float) -> None:
        """Refuse a budget into which not even the shortest answer fits.

        Args:
            seconds: that the shortest answer takes from here on.
            step: seconds of a training step.

        Raises:
            ConfigurationError: if they are not left.
        """
        if seconds > self.left:
            raise ConfigurationError(
                f"budget={self.seconds:g}: a training step takes {step:.3g} s here, and the "
                f"shortest answer {seconds:.3g} s more than the {self.spent:.3g} s spent so far; "
                f"give budget={_rounded_up(2 * (self.spent + seconds))}"
            )


def _rounded_up(seconds: float) -> int:
    """Return whole seconds, of two digits and zeros."""
    whole = math.ceil(seconds)
    unit = 10 ** max(0, len(str(whole)) - 2)
    return math.ceil(whole / unit) * unit
