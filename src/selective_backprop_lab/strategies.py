"""The strategies that can be compared, by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.names import find_name, find_object, is_import_path
from selective_backprop_lab.preparation import (
    Loss,
    Preparation,
    TrainingSetup,
    focal,
    generalised,
    prepare_cleaned,
    prepare_oracle,
    prepare_proxy,
    prepare_pruned,
    prepare_reference,
    trimmed,
)
from selective_backprop_lab.released import stale_sb_as_released


@dataclass(frozen=True)
class StrategyOptions:
    """The options that the strategies of one comparison share."""

    rate: float = 1 / 3  # share of the candidates that selective strategies train on
    draw: sb.selectors.Draw = sb.selectors.Draw.EXACT  # a fixed number per window, or at random
    warmup: float = 0.1  # first fraction of a run in which selection by loss keeps everything
    # The same for random selection. It needs no warm-up, but a comparison may give all arms one.
    random_warmup: float = 0.0
    # Whether `auto` trains on everything in its first epoch. It follows from a run's length.
    warmup_epoch: bool = True
    history: int = 1024  # number of recent losses that a loss is ranked among
    stale: int = 3  # for how many epochs a score is reused or predicted from
    keep: float = 0.7  # share of the data set that pruning keeps
    models: int = 2  # number of models that pruning computes scores with
    # Fraction of the run for which these models, or a reference model on its half of the data, are
    # trained. It is small, because EL2N and GraNd are scores of young models.
    young: float = 0.1
    epochs: int | None = None  # of the run; None if its length is in passes or seconds

    def __post_init__(self) -> None:
        for name, fits, wanted in (
            ("rate", 0.0 < self.rate <= 1.0, "a share in (0, 1]; 1/3 trains on a third"),
            ("keep", 0.0 < self.keep <= 1.0, "a share in (0, 1]; 1/3 keeps a third"),
            ("warmup", 0.0 <= self.warmup < 1.0, "a fraction of a run in [0, 1); 0.1 is a tenth"),
            ("random_warmup", 0.0 <= self.random_warmup < 1.0, "a fraction of a run in [0, 1)"),
            ("young", 0.0 < self.young < 1.0, "a fraction of a run in (0, 1); 0.1 is a tenth"),
            ("stale", self.stale >= 2 and not self.stale % 1, "a whole number, at least 2"),
            ("models", self.models >= 1 and not self.models % 1, "a whole number, at least 1"),
        ):
            if not fits:
                raise sb.ConfigurationError(f"{name}={getattr(self, name)}: it must be {wanted}")


@dataclass(frozen=True)
class LabStrategy:
    """A strategy of the lab: how it is made, and what it needs before it can train."""

    make: Callable[[StrategyOptions, Preparation], sb.Strategy]
    options: tuple[str, ...] = ()  # the fields of `StrategyOptions` that affect it
    # Prepares what the strategy needs, and returns the cost too; None if it needs nothing.
    prepare: Callable[[TrainingSetup, StrategyOptions], Preparation] | None = None
    trains_models: bool = False  # whether it trains models first, for a share of the run's epochs
    classifies: bool = False  # whether it needs one class for each example, so text does not work
    # Its version, so that records of an older one are not mistaken for records of this one.
    revision: int = 1
    reseeded: bool = False  # whether a run has other weights and another order than its seed's
    # The loss of training; None for the cross-entropy. Selection always uses the cross-entropy.
    loss: Loss | None = None
    smoothing: float = 0.0  # the label smoothing, in [0, 1]
    # Whether classes count alike: weights as of `CrossEntropyLoss(weight=1 / sizes)`.
    weighs_classes: bool = False
    thinned: float = 1.0  # the share of the largest class that each epoch draws
    leftovers: sb.Leftovers = sb.Leftovers.CARRY  # what becomes of a batch that is not full
    # The first fraction of a run in which images have half their side; a pass then costs a quarter.
    halved: float = 0.0
    averaged: float = 0.0  # the last fraction of a run, over which weights are averaged
    batches: int = 1  # size of a batch, as a multiple of the recipe's
    trainings: int = 1  # number of trainings that share the cost of the preparation equally


# What may be done instead of selection, or with it, as in `auto+smoothing-0.1+progressive`: the
# strategy's fields that change. `find_strategy` or `RunConfig` refuses what cannot be combined.
TREATMENTS: Mapping[str, Mapping[str, Any]] = {
    "smoothing-0.1": {"smoothing": 0.1},
    "smoothing-0.3": {"smoothing": 0.3},
    "smoothing-0.5": {"smoothing": 0.5},
    "robust-loss": {"loss": partial(generalised, q=0.3), "classifies": True},
    "focal-loss": {"loss": focal, "classifies": True},
    "class-weights": {"weighs_classes": True, "classifies": True},
    **{f"thinned-{by}": {"thinned": by, "classifies": True} for by in (0.05, 0.1, 0.3)},
    "trimming": {"loss": partial(trimmed, share=0.2), "classifies": True},
    "progressive": {"halved": 1 / 3},
    "averaging": {"averaged": 0.25},
    "larger-batches": {"batches": 4},
}
_OF_THE_LOSS = {"smoothing", "loss", "weighs_classes"}  # fields that say how it is computed

_RANKED = ("rate", "draw", "warmup", "history")
_RANDOM = ("rate", "draw", "random_warmup")


def _arm(make: Callable[[StrategyOptions], sb.Strategy], *options: str, **more: Any) -> LabStrategy:
    return LabStrategy(lambda given, preparation: make(given), options, **more)


def _after(given: StrategyOptions) -> sb.Schedule:
    return sb.Schedule(start=given.warmup)


def _ranked(given: StrategyOptions) -> dict[str, Any]:
    return {"draw": given.draw, "history": given.history, "schedule": _after(given)}


def _scheduled(make: Callable[..., sb.Strategy]) -> LabStrategy:
    return _arm(lambda given: make(given.rate, schedule=_after(given)), "rate", "warmup")


def _remembering(make: Callable[..., sb.Strategy], **more: object) -> LabStrategy:
    def made(given: StrategyOptions) -> sb.Strategy:
        return make(given.rate, epochs=given.stale, **_ranked(given), **more)

    return _arm(made, *_RANKED, "stale")


def _plain(given: StrategyOptions) -> sb.Strategy:
    return sb.traditional()


def _on_part(
    name: str, make: Callable[[StrategyOptions], sb.Strategy], *options: str, **more: Any
) -> LabStrategy:
    def made(given: StrategyOptions, preparation: Preparation) -> sb.Strategy:
        return replace(make(given), name=name, subset=preparation.subset)

    return LabStrategy(made, options, **more)


def _pruned(
    name: str, make: Callable[[StrategyOptions], sb.Strategy], *options: str, **more: bool
) -> LabStrategy:
    def prepare(setup: TrainingSetup, given: StrategyOptions) -> Preparation:
        return prepare_pruned(
            setup, keep=given.keep, models=given.models, share=given.young, **more
        )

    known = {"prepare": prepare, "trains_models": True, "classifies": True}
    return _on_part(name, make, *options, "keep", "models", "young", **known)


def _sb(given: StrategyOptions) -> sb.Strategy:
    return sb.selective_backprop(
        given.rate, draw=given.draw, history=given.history, warmup_epochs=0, start=given.warmup
    )


def _auto(given: StrategyOptions, *, trim: bool = False) -> sb.Strategy:
    return sb.auto(trim=trim, schedule=sb.Schedule(warmup_epochs=int(given.warmup_epoch)))


def _brief(given: StrategyOptions) -> sb.Strategy:
    usual = _auto(given)
    scorer: Any = usual.scorer
    return replace(usual, name="auto-brief", scorer=replace(scorer, fades=1.5))


def _crossing(rate: float, **more: Any) -> sb.Strategy:
    return sb.predicted_sb(rate, predictor=sb.experimental.Crossing(rate), **more)


def _rho_loss(given: StrategyOptions, preparation: Preparation) -> sb.Strategy:
    assert preparation.reference is not None
    return sb.rho_loss(preparation.reference, given.rate, schedule=_after(given))


def _proxy(given: StrategyOptions, preparation: Preparation) -> sb.Strategy:
    assert preparation.proxy is not None
    return sb.proxy_sb(*preparation.proxy, rate=given.rate, **_ranked(given))


def _random(
    given: StrategyOptions, make: Callable[..., sb.Strategy] = sb.random_backprop
) -> sb.Strategy:
    return make(given.rate, draw=given.draw, schedule=sb.Schedule(start=given.random_warmup))


def _without_copies(setup: TrainingSetup, given: StrategyOptions) -> Preparation:
    return Preparation(subset=sb.guide.find_copies(setup.in_order).subset)  # costs no passes


_BY_LOSS: dict[str, Any] = {"measure": "loss", "bias": 0.0}
_RHO_LOSS = LabStrategy(
    _rho_loss,
    ("rate", "warmup", "young"),
    lambda setup, given: prepare_reference(setup, share=given.young),
    trains_models=True,
)

STRATEGIES: Mapping[str, LabStrategy] = {
    "traditional": _arm(_plain),
    # What chance does: plain training with another seed, compared with plain training.
    "reseeded": _arm(lambda given: replace(_plain(given), name="reseeded"), reseeded=True),
    # A bound, because it uses what nobody can know: the right labels, and what is a copy.
    "oracle": _on_part(
        "oracle", _plain, prepare=lambda setup, _: prepare_oracle(setup), classifies=True
    ),
    # What a person would do with a list of labels that look wrong, and with a list of copies.
    "cleaned": _on_part(
        "cleaned",
        _plain,
        "young",
        prepare=lambda setup, given: prepare_cleaned(setup, share=given.young),
        trains_models=True,
        classifies=True,
    ),
    "unique": _on_part("unique", _plain, prepare=_without_copies),
    "random-backprop": _arm(_random, *_RANDOM),
    "random-scored": _arm(partial(_random, make=sb.random_scored), *_RANDOM),
    "selective-backprop": _arm(_sb, *_RANKED),
    "stale-sb": _remembering(sb.stale_sb),
    "stale-sb-spread": _remembering(sb.stale_sb, spread=True),
    "stale-sb-released": _arm(
        lambda given: stale_sb_as_released(given.rate, epochs=given.stale, history=given.history),
        *("rate", "history", "stale"),
        leftovers=sb.Leftovers.FLUSH,
    ),
    "predicted-sb": _remembering(sb.predicted_sb),
    "predicted-sb-gp": _remembering(sb.predicted_sb, predictor=sb.scorers.GaussianProcess()),
    "predicted-sb-crossing": _remembering(_crossing),
    "recorded-sb": _arm(
        lambda given: sb.recorded_sb(given.rate, draw=given.draw, schedule=_after(given)),
        *("rate", "draw", "warmup"),
    ),
    "proxy-sb": LabStrategy(
        _proxy, _RANKED, lambda setup, _: prepare_proxy(setup), classifies=True
    ),
    "diet-sb": _pruned("diet-sb", _sb, *_RANKED),
    "el2n": _pruned("el2n", _plain),
    "el2n-random": _pruned("el2n-random", _random, *_RANDOM),
    "grand": _pruned("grand", _plain, gradients=True),
    "kath18": _arm(lambda given: sb.kath18(1 / given.rate), "rate", classifies=True),
    # As its authors ran it on CIFAR: 640 candidates for batches of 128, tau from 1.5 on.
    "kath18-published": _arm(
        lambda _: sb.kath18(5.0, schedule=sb.Schedule(gate=sb.VarianceGate(threshold=1.5))),
        classifies=True,
    ),
    "kath18-loss": _arm(
        lambda given: sb.kath18(1 / given.rate, **_BY_LOSS, schedule=_after(given)),
        *("rate", "warmup"),
    ),
    # In revision 1, the gate's looks at losses were counted as cost.
    "kath18-loss-gated": _arm(
        lambda given: sb.kath18(1 / given.rate, **_BY_LOSS), "rate", revision=2
    ),
    "top-k": _scheduled(sb.top_k),
    "low-k": _scheduled(sb.low_k),
    "rho-loss": _RHO_LOSS,
    # Five trainings on the same data, such as those of a search, share one reference.
    "rho-loss-shared": replace(_RHO_LOSS, trainings=5),
    "infobatch": _arm(lambda _: sb.infobatch()),
    "kakurenbo": _arm(lambda given: sb.kakurenbo(schedule=_after(given)), "warmup"),
    "easy-skip": _arm(lambda _: sb.easy_skip()),
    "tail-sft": _scheduled(sb.tail_sft),
    # Revision 1 never stopped selecting, weighted rows, and waited for two losses of each example.
    "auto": _arm(_auto, revision=2),
    "auto-trim": _arm(partial(_auto, trim=True)),
    # Its selection ends when the average example was trained on 2.5 times, not nine times.
    "auto-brief": _arm(_brief),
}

BOUNDS = ("reseeded", "oracle")  # for all other strategies; nobody would use them
TIMED = ("random-backprop", "recorded-sb", "selective-backprop")  # by `bench`, unless told
DEFAULT_STRATEGIES = "traditional,random-backprop,random-scored,selective-backprop,auto"


def find_strategy(name: str) -> LabStrategy:
    """Return the strategy of a name."""
    base, *treatments = _canonical(name).split("+")
    found = _own(base) if is_import_path(base) else STRATEGIES[base]
    if len({*treatments}) < len(treatments):
        raise sb.ConfigurationError(f"{name}: give each treatment only once")
    for each in treatments:
        found = replace(found, **TREATMENTS[each])
    changing = [each for each in treatments if TREATMENTS[each].keys() & _OF_THE_LOSS]
    if len(changing) > 1:
        raise sb.ConfigurationError(
            f"{name}: {' and '.join(changing)} cannot be combined, because each changes "
            "the loss of training in its own way; compare them as two strategies"
        )
    return found


@cache
def _own(path: str) -> LabStrategy:
    needed = "an sb.Strategy, or a function that makes one,"
    found = find_object(path, kind="strategy", needed=needed, also=(sb.Strategy,))
    if isinstance(found, sb.Strategy):
        return _arm(lambda given: found)
    known, signature = [each.name for each in fields(StrategyOptions)], inspect.signature(found)
    options = [name for name in signature.parameters if name in known]

    def make(given: StrategyOptions) -> sb.Strategy:
        values = {name: value for name in options if (value := getattr(given, name)) is not None}
        try:
            signature.bind(**values)
        except TypeError as error:
            raise sb.ConfigurationError(
                f"the strategy {path!r}: {error}. It can have {', '.join(known)} (only with "
                "--epochs); give other parameters a default"
            ) from error
        made = found(**values)
        if not isinstance(made, sb.Strategy):
            raise sb.ConfigurationError(
                f"the strategy {path!r} is {made!r:.80}, not an sb.Strategy; return one"
            )
        return made

    return _arm(make, *options)


@cache
def _canonical(name: str) -> str:
    typed, *treatments = name.split("+")
    own, more = is_import_path(typed), "; module:name is your own"
    base = typed if own else find_name("strategy", typed, STRATEGIES, more=more)
    added = [find_name("treatment", each, TREATMENTS) for each in treatments]
    return "+".join([base, *added])


def parse_strategies(names: str) -> tuple[str, ...]:
    """Return the strategies of a comma-separated list; `all` means all except `BOUNDS`."""
    if names.strip() == "all":
        return tuple(name for name in STRATEGIES if name not in BOUNDS)
    given = (name.strip() for name in names.split(",") if name.strip())
    chosen = tuple(dict.fromkeys(map(_canonical, given)))
    if not chosen:
        raise sb.ConfigurationError(f"no strategy is named; there are {', '.join(STRATEGIES)}")
    return chosen
