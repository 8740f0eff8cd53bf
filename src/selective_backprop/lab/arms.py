"""The strategies that can be compared, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import selective_backprop as sb


@dataclass(frozen=True)
class Settings:
    """What the arms of one comparison have in common.

    Attributes:
        rate: share of the candidates that selective arms train on, in (0, 1].
        draw: how they draw: a fixed number per window, or a coin per candidate.
        warmup: fraction of a run, in [0, 1), that selective-backprop trains on everything first.
        history: recent losses that a loss is ranked among.

    Raises:
        ConfigurationError: if `rate` or `warmup` is out of its range, whether an arm uses it or
            not.
    """

    rate: float = 1 / 3
    draw: sb.Draw = sb.Draw.EXACT
    warmup: float = 0.1
    history: int = 1024

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise sb.ConfigurationError(
                f"rate={self.rate}: the share of the examples to train on must be in (0, 1]; "
                "1/3 keeps a third"
            )
        if not 0.0 <= self.warmup < 1.0:
            raise sb.ConfigurationError(
                f"warmup={self.warmup}: the fraction of a run before selection by score must be "
                "in [0, 1); 0.1 is a tenth"
            )


ARMS: Mapping[str, Callable[[Settings], sb.Strategy]] = {
    "traditional": lambda settings: sb.traditional(),
    "random-backprop": lambda settings: sb.random_backprop(settings.rate, draw=settings.draw),
    "random-scored": lambda settings: sb.random_scored(settings.rate, draw=settings.draw),
    "selective-backprop": lambda settings: sb.selective_backprop(
        settings.rate,
        draw=settings.draw,
        history=settings.history,
        warmup_epochs=0,
        start=settings.warmup,
    ),
    "top-k": lambda settings: sb.Strategy(
        "top-k", sb.Forward(), sb.Top(settings.rate), sb.Schedule(start=settings.warmup)
    ),
    "low-k": lambda settings: sb.Strategy(
        "low-k", sb.Forward(), sb.Bottom(settings.rate), sb.Schedule(start=settings.warmup)
    ),
}

DEFAULT_ARMS = ("traditional", "random-backprop", "random-scored", "selective-backprop")


def make_strategy(name: str, settings: Settings) -> sb.Strategy:
    """Return the strategy that an arm's name stands for.

    Raises:
        ConfigurationError: if there is no such arm, or a setting is out of its range.
    """
    if name not in ARMS:
        raise sb.ConfigurationError(f"there is no strategy {name!r}; there are {', '.join(ARMS)}")
    return ARMS[name](settings)


def parse_arms(names: str) -> tuple[str, ...]:
    """Return the arms of a comma-separated list, or all of them for `all`.

    Raises:
        ConfigurationError: if one of them does not exist, or none is named.
    """
    if names.strip() == "all":
        return tuple(ARMS)
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise sb.ConfigurationError(f"no strategy is named; there are {', '.join(ARMS)}")
    for name in chosen:
        make_strategy(name, Settings())
    return chosen
