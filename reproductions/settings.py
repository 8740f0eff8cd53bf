"""The runs of a figure: data, net and length (a setting), and the strategies (arms)."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.budget import Budget, ScheduleBasis
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.meter import cost_of
from selective_backprop_lab.recipe import Precision, Rates, Recipe
from selective_backprop_lab.report.panels import Style, strategy_colours
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run_config import Probe, RunConfig

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EXAMPLES: Mapping[str, int] = _TABLES["examples"]
STRATEGIES: dict[str, tuple[str, str]] = _TABLES["strategies"]
SHORTENED: Mapping[str, tuple[float, str]] = _TABLES["shortened"]
STALE = 3
NOT_SB = ("auto", "easy-skip", "infobatch", "kakurenbo", "seta")  # as long as SB's cost allows
USUAL = ("traditional", "shortened", "random", "scored", "sb", "stale", "released", "kath18")
_KEYS = {name: key for key, (_, name) in reversed(STRATEGIES.items())}  # the first of several
STYLES = tuple(Style(*look, 2.2 if "dot" in look else 2.0) for look in _TABLES["looks"].items())


@dataclass(frozen=True)
class Published:
    """The training that a source reports, as far as it says."""

    data: str  # as the source calls it
    model: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    examples: int | None = None
    cutout: int = 0
    rates: Rates | None = None  # None: those of the recipe
    nesterov: bool | None = None


@dataclass(frozen=True)
class Setting:
    """A data set, a net and a length, the same for every strategy."""

    title: str  # in figures
    recipe: Recipe  # every run takes its epochs
    rate: float  # share of the examples that SB and Stale-SB train on
    kath18_rate: float
    published: Published  # the training that it repeats
    limit: int | None = None  # training examples, or None for all
    evaluations: int = 12  # per run
    falls: tuple[float, ...] = ()  # of the paper's accelerated schedule, if it has one
    learning_rates: Mapping[str, float] = field(default_factory=dict)  # of tuned strategies, by key
    hours: float | None = None  # after which training ends; None: after the recipe's epochs

    @property
    def guessing(self) -> float:
        """The error of guessing, in percent."""
        return 100.0 * (1.0 - 1.0 / _TABLES["classes"].get(self.recipe.data, 10))

    @property
    def warmup(self) -> float:
        """The share of the run that trains on everything: its first epoch."""
        return 1.0 / self.recipe.epochs

    @property
    def real(self) -> bool:
        """Whether the runs train on the data set of the source."""
        data = self.recipe.data.removesuffix("-extra").replace("-", "")
        return self.published.data.lower().replace("-", "") == data

    @property
    def changes(self) -> dict[str, str]:
        source, recipe = self.published, self.recipe
        plain, falls = "{} instead of {}", "a learning rate that falls instead of a {1} one"
        name = self.title.partition(",")[0]
        data = self.title if name == source.data else name
        examples = self.limit or EXAMPLES.get(recipe.data, 0)
        momenta = {True: "Nesterov's momentum", False: "plain momentum", None: None}
        cutout = None if recipe.augmentation.cutout else source.cutout or None
        rows = (
            ("data", data, None if self.real else source.data, plain),
            ("net", recipe.model, source.model, plain),
            ("epochs", recipe.epochs, source.epochs, "{} epochs instead of {}"),
            ("examples", examples, source.examples, "{:,} examples instead of {:,}"),
            ("batch size", recipe.batch_size, source.batch_size, "batches of {} instead of {}"),
            ("cutout", "no cutout", cutout, "{} instead of {} pixels"),
            ("schedule", recipe.rates, source.rates, falls),
            ("momentum", momenta[recipe.nesterov], momenta[source.nesterov], plain),
            ("precision", recipe.precision, Precision.FP32, plain),
        )
        return {
            what: words.format(mine, theirs)
            for what, mine, theirs, words in rows
            if theirs not in (None, mine)
        }


@dataclass(frozen=True)
class Scale:
    """The settings of each group of figures."""

    name: str
    groups: Mapping[str, tuple[Setting, ...]]  # by the names that `scales.toml` explains
    sweep: tuple[float, ...]  # the selectivities of figure 14
    selectivities: tuple[float, ...] = (0.2, 1 / 4, 1 / 3, 1 / 2, 0.65)  # of SB, compared
    lineup: tuple[str, ...] = USUAL  # the keys of the strategies that are compared
    controls: tuple[str, ...] = ()  # of those that are compared only at learning rates of their own
    tuned: tuple[float, ...] = ()  # learning rates that each strategy is tried at
    seeds: tuple[int, ...] = ()  # the seeds of runs, in order of use; () for 0, 1, 2 …
    figures: tuple[str, ...] = ()  # by name; () for all
    jobs: int | None = None  # runs at a time by default; None: as many as there is room for
    arms: tuple[str, ...] = ()  # the strategies that are asked for, by `Arm.strategy`; () for all
    only: tuple[str, ...] = ()  # the data sets that are asked for; () for all

    def __getitem__(self, group: str) -> tuple[Setting, ...]:
        return self.groups[group]

    @property
    def part(self) -> str:
        """The strategies and data that `--arms` and `--only` ask for, in words; "" for all."""
        return " on ".join(", ".join(names) for names in (self.arms, self.only) if names)

    def has(self, recipe: Recipe) -> bool:
        return not self.only or recipe.data in self.only

    def ending_after(self, hours: float | None) -> "Scale":
        """Return a scale whose runs end after so many hours; those of the Diet-SB poster stay."""
        return self._with(lambda each: replace(each, hours=hours), "pruned", "scored", "remarked")

    def lasting(self, epochs: int) -> "Scale":
        """Return a scale of runs of so many epochs, but for young nets."""
        return self._with(lambda each: changed(each, epochs=epochs), "scored")

    def _with(self, change: Callable[[Setting], Setting], *kept: str) -> "Scale":
        new = {k: tuple(map(change, own)) for k, own in self.groups.items() if k not in kept}
        return replace(self, groups={**self.groups, **new})


def changed(setting: Setting, **recipe: Any) -> Setting:
    return replace(setting, recipe=replace(setting.recipe, **recipe))


@dataclass(frozen=True)
class Arm:
    """One strategy in one setting, to be run with several seeds."""

    label: str  # in the figure
    plan: RunConfig  # with seed 0
    style: Style
    key: str  # its name in claims, the same in every panel
    seeds: tuple[int, ...] | None = None  # None for as many as the command asks for

    @property
    def strategy(self) -> str:
        """Its name for `--arms`: its key, or that of the strategy that it is a variant of."""
        known = self.key in STRATEGIES or self.key in SHORTENED
        return self.key if known else _KEYS.get(self.plan.arm, self.plan.arm)


def plan(
    setting: Setting, arm: str, *, noise: float = 0.0, probes: Sequence[Probe] = (), **options: Any
) -> RunConfig:
    """Return one strategy's run as the paper ran it: each candidate is drawn by its own coin.

    The options of strategies stand in place of the setting's.
    """
    length = Budget("epochs", float(setting.recipe.epochs))
    if setting.hours is not None:
        length = Budget("seconds", 3600 * setting.hours)
    usual: dict[str, Any] = dict.fromkeys(("warmup", "random_warmup"), setting.warmup)
    usual |= {"rate": setting.rate, "draw": sb.selectors.Draw.BERNOULLI, "stale": STALE}
    return RunConfig(
        recipe=setting.recipe,
        arm=arm,
        settings=StrategyOptions(**usual | options),
        seed=0,
        length=length,
        lr_follows=ScheduleBasis.RUN if setting.hours is None else ScheduleBasis.CANDIDATES,
        evaluations=setting.evaluations,
        limit=setting.limit,
        composition=Composition(noise=noise),
        probes=tuple(probes),
    )


def make_arm(key: str, setting: Setting, **options: Any) -> Arm:
    if key in SHORTENED:
        (share, dash), name = SHORTENED[key], BASELINE
        label = f"Traditional, shortened to {percent(share)}" if share else "Traditional, shortened"
        cost = share * setting.recipe.epochs or cost_of_sb(setting)
    else:
        (label, name), dash = STRATEGIES[key], "dash" if key == "stale-2" else "solid"
        cost = cost_of_sb(setting) if key in NOT_SB else None
    own: dict[str, Any] = {"kath18": {"rate": setting.kath18_rate}, "stale-2": {"stale": 2}}
    run = plan(setting, name, **own.get(key, {}) | options)
    if rate := setting.learning_rates.get(key):
        run = replace(run, recipe=replace(run.recipe, learning_rate=rate))
        label += f", at {rate:g}"
    if cost is not None:
        run = replace(run, length=Budget("cost", round(cost, 2)))
    return styled(label, key, run, dash=dash)


def cost_of_sb(setting: Setting) -> float:
    """Return the expected cost of SB's epochs, in passes of traditional training."""
    epochs = float(setting.recipe.epochs)
    selective = epochs * (1.0 - setting.warmup)  # the warm-up trains on everything, unscored
    return cost_of(selective, epochs * setting.warmup + setting.rate * selective)


def variants(arms: Sequence[tuple[str, Arm]]) -> tuple[Arm, ...]:
    both = zip(arms, cycle(STYLES), strict=False)
    return tuple(replace(arm, label=name, key=name, style=style) for (name, arm), style in both)


def styled(label: str, key: str, run: RunConfig, *, dash: str = "solid") -> Arm:
    name = "kath18" if run.arm.startswith("kath18") else run.arm
    colour, width = strategy_colours([name])[name], 2.4 if name == BASELINE else 2.0
    return Arm(label, run, Style(colour, dash, width), key)
