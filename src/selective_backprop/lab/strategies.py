"""The strategies that can be compared, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import selective_backprop as sb
from selective_backprop.lab.preparation import (
    PROXY,
    Outfit,
    Task,
    proxy_outfit,
    pruned_outfit,
    reference_outfit,
)


@dataclass(frozen=True)
class Settings:
    """What the arms of one comparison have in common.

    Attributes:
        rate: share of the candidates that selective arms train on, in (0, 1].
        draw: how they draw: a fixed number per window, or a coin per candidate.
        warmup: fraction of a run, in [0, 1), that selection by loss trains on everything first.
        history: recent losses that a loss is ranked among.
        stale: for how many epochs a score is good where it is reused or predicted from, from 2.
        keep: share of the data set that pruning leaves, in (0, 1].
        models: young models that pruning scores by, at least 1.
        young: fraction of the run, in (0, 1), for which each young model, and a reference over
            its half of the data, is trained.

    Raises:
        ConfigurationError: if a value is out of its range, whether an arm uses it or not.
    """

    rate: float = 1 / 3
    draw: sb.selectors.Draw = sb.selectors.Draw.EXACT
    warmup: float = 0.1
    history: int = 1024
    stale: int = 3
    keep: float = 0.7
    models: int = 2
    young: float = 0.1

    def __post_init__(self) -> None:
        for name, what in (("rate", "to train on"), ("keep", "that pruning leaves")):
            value = getattr(self, name)
            if not 0.0 < value <= 1.0:
                raise sb.ConfigurationError(
                    f"{name}={value}: the share of the examples {what} must be in (0, 1]; "
                    "1/3 keeps a third"
                )
        if not 0.0 <= self.warmup < 1.0:
            raise sb.ConfigurationError(
                f"warmup={self.warmup}: the fraction of a run before selection by score must be "
                "in [0, 1); 0.1 is a tenth"
            )
        if not 0.0 < self.young < 1.0:
            raise sb.ConfigurationError(
                f"young={self.young}: the fraction of a run that young models train for must be "
                "in (0, 1); 0.1 is a tenth"
            )
        for name, least in (("stale", 2), ("models", 1)):
            value = getattr(self, name)
            if value < least or value % 1:
                raise sb.ConfigurationError(
                    f"{name}={value}: a whole number is needed, at least {least}"
                )

    @property
    def schedule(self) -> sb.Schedule:
        """When selection by loss acts: after the warm-up."""
        return sb.Schedule(start=self.warmup)


@dataclass(frozen=True)
class Arm:
    """A strategy with its settings, and with what it needs before it can train.

    Attributes:
        make: returns the strategy.
        outfit: makes what it needs, and says what that cost; None where it needs nothing.
        needs: the same in words, for the record.
        young: whether other models train for a share of the run's epochs before it.
    """

    make: Callable[[Settings, Outfit], sb.Strategy]
    outfit: Callable[[Task, Settings], Outfit] | None = None
    needs: Callable[[Settings], str] | None = None
    young: bool = False

    def words(self, settings: Settings) -> str:
        """Say all that decides how the arm trains."""
        if self.needs is not None:
            return self.needs(settings)
        return repr(self.make(settings, Outfit()))


def _sb(settings: Settings) -> sb.Strategy:
    return sb.selective_backprop(
        settings.rate,
        draw=settings.draw,
        history=settings.history,
        warmup_epochs=0,
        start=settings.warmup,
    )


def _simple(make: Callable[[Settings], sb.Strategy]) -> Arm:
    return Arm(lambda settings, outfit: make(settings))


def _auto(settings: Settings) -> sb.Strategy:
    # A run of an epoch or two is no longer than its first epoch and what that leaves unknown.
    return sb.auto() if settings.warmup < 0.5 else sb.auto(schedule=sb.Schedule())


def _family(make: Callable[..., sb.Strategy], **more: object) -> Arm:
    """An arm of Selective-Backprop's family, which ranks losses after the warm-up."""

    def strategy(settings: Settings) -> sb.Strategy:
        schedule = settings.schedule
        return make(settings.rate, draw=settings.draw, schedule=schedule, **more)

    return _simple(strategy)


def _remembering(make: Callable[..., sb.Strategy], **more: object) -> Arm:
    """The same, of those that use a score for several epochs."""

    def strategy(settings: Settings) -> sb.Strategy:
        return make(
            settings.rate,
            epochs=settings.stale,
            draw=settings.draw,
            history=settings.history,
            schedule=settings.schedule,
            **more,
        )

    return _simple(strategy)


def _pruned(make: Callable[[Settings], sb.Strategy], *, gradients: bool = False) -> Arm:
    """An arm that trains on what pruning leaves."""

    def strategy(settings: Settings, outfit: Outfit) -> sb.Strategy:
        return replace(make(settings), subset=outfit.subset)

    def outfit(task: Task, settings: Settings) -> Outfit:
        return pruned_outfit(
            task,
            keep=settings.keep,
            models=settings.models,
            share=settings.young,
            gradients=gradients,
        )

    def words(settings: Settings) -> str:
        score = "GraNd" if gradients else "EL2N"
        return (
            f"{make(settings)!r} of the {settings.keep!r} of the examples that score highest by "
            f"{score}, {settings.models} models trained for {settings.young!r} of the run each"
        )

    return Arm(strategy, outfit, words, young=True)


def _reference_words(settings: Settings) -> str:
    return (
        f"rho_loss(rate={settings.rate!r}, schedule={settings.schedule!r}), each example's "
        "reference loss by a model trained on the other half of the data for "
        f"{settings.young!r} of the run's epochs"
    )


def _proxy_words(settings: Settings) -> str:
    return (
        f"proxy_sb(rate={settings.rate!r}, draw={str(settings.draw)!r}, "
        f"history={settings.history}, schedule={settings.schedule!r}), scored by {PROXY}"
    )


def _rho_loss(settings: Settings, outfit: Outfit) -> sb.Strategy:
    assert outfit.reference is not None
    return sb.rho_loss(outfit.reference, settings.rate, schedule=settings.schedule)


def _proxy(settings: Settings, outfit: Outfit) -> sb.Strategy:
    assert outfit.make_proxy is not None
    assert outfit.make_optimizer is not None
    return sb.proxy_sb(
        outfit.make_proxy,
        outfit.make_optimizer,
        rate=settings.rate,
        draw=settings.draw,
        history=settings.history,
        schedule=settings.schedule,
    )


ARMS: Mapping[str, Arm] = {
    "traditional": _simple(lambda settings: sb.traditional()),
    "random-backprop": _simple(lambda s: sb.random_backprop(s.rate, draw=s.draw)),
    "random-scored": _simple(lambda s: sb.random_scored(s.rate, draw=s.draw)),
    "selective-backprop": _simple(_sb),
    "stale-sb": _remembering(sb.stale_sb),
    "stale-sb-spread": _remembering(sb.stale_sb, spread=True),
    "predicted-sb": _remembering(sb.predicted_sb),
    "predicted-sb-gp": _remembering(sb.predicted_sb, predictor=sb.scorers.GaussianProcess()),
    "predicted-sb-crossing": _simple(
        lambda s: sb.predicted_sb(
            s.rate,
            predictor=sb.scorers.Crossing(s.rate),
            epochs=s.stale,
            draw=s.draw,
            history=s.history,
            schedule=s.schedule,
        )
    ),
    "recorded-sb": _family(sb.recorded_sb),
    "proxy-sb": Arm(_proxy, lambda task, settings: proxy_outfit(task), _proxy_words),
    "diet-sb": _pruned(lambda settings: replace(_sb(settings), name="diet-sb")),
    "el2n": _pruned(lambda settings: replace(sb.traditional(), name="el2n")),
    "el2n-random": _pruned(
        lambda s: replace(sb.random_backprop(s.rate, draw=s.draw), name="el2n-random")
    ),
    "grand": _pruned(lambda settings: replace(sb.traditional(), name="grand"), gradients=True),
    "kath18": _simple(lambda settings: sb.kath18(1 / settings.rate)),
    # As its authors ran it on CIFAR: 640 candidates for batches of 128, tau from 1.5 on.
    "kath18-published": _simple(
        lambda s: sb.kath18(5.0, schedule=sb.Schedule(gate=sb.VarianceGate(threshold=1.5)))
    ),
    "kath18-loss": _simple(
        lambda s: sb.kath18(1 / s.rate, measure="loss", bias=0.0, schedule=s.schedule)
    ),
    "kath18-loss-gated": _simple(lambda s: sb.kath18(1 / s.rate, measure="loss", bias=0.0)),
    "top-k": _simple(lambda s: sb.top_k(s.rate, schedule=s.schedule)),
    "low-k": _simple(lambda s: sb.low_k(s.rate, schedule=s.schedule)),
    "rho-loss": Arm(
        _rho_loss,
        lambda task, s: reference_outfit(task, share=s.young),
        _reference_words,
        young=True,
    ),
    "infobatch": _simple(lambda settings: sb.infobatch()),
    "kakurenbo": _simple(lambda s: sb.kakurenbo(schedule=s.schedule)),
    "easy-skip": _simple(lambda settings: sb.easy_skip()),
    "auto": _simple(_auto),
}

ALIASES: Mapping[str, str] = {"random-k": "random-scored"}
"""Other names of the same arm, which is run once."""

DEFAULT_ARMS = ("traditional", "random-backprop", "random-scored", "selective-backprop", "auto")


def find_arm(name: str) -> Arm:
    """Return the arm of a name.

    Raises:
        ConfigurationError: if there is none.
    """
    name = ALIASES.get(name, name)
    if name not in ARMS:
        raise sb.ConfigurationError(f"there is no strategy {name!r}; there are {', '.join(ARMS)}")
    return ARMS[name]


def unused(name: str, settings: Settings, usual: Settings) -> list[str]:
    """Return what of the settings is not as usual and makes no difference to an arm."""
    words = find_arm(name).words
    return [
        field.name
        for field in fields(Settings)
        if getattr(settings, field.name) != getattr(usual, field.name)
        and words(settings) == words(replace(settings, **{field.name: getattr(usual, field.name)}))
    ]


def parse_arms(names: str) -> tuple[str, ...]:
    """Return the arms of a comma-separated list, or all of them for `all`.

    Raises:
        ConfigurationError: if one of them does not exist, or none is named.
    """
    if names.strip() == "all":
        return tuple(ARMS)
    given = (name.strip() for name in names.split(",") if name.strip())
    chosen = tuple(dict.fromkeys(ALIASES.get(name, name) for name in given))
    if not chosen:
        raise sb.ConfigurationError(f"no strategy is named; there are {', '.join(ARMS)}")
    for name in chosen:
        find_arm(name)
    return chosen
