"""The runs of a figure: data, net and length (a setting), and the strategies (arms)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import cycle
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
from selective_backprop_lab.training.probes import Probe
from selective_backprop_lab.training.run_config import RunConfig

# Training examples of the data sets as they are published.
EXAMPLES = {
    "digits": 1437,
    "mnist": 60_000,
    "mnist-parity": 60_000,
    "fashion-mnist": 60_000,
    "cifar10": 50_000,
    "cifar10-animals": 50_000,
    "cifar100": 50_000,
    "cifar100-coarse": 50_000,
    "svhn": 73_257,
    "svhn-extra": 604_388,
}
_CLASSES = {"cifar100": 100, "cifar100-coarse": 20, "cifar10-animals": 2, "mnist-parity": 2}
STALE = 3
# Kath18 as the paper ran it: by loss, unweighted, from when its variance says so.
STRATEGIES = {
    "traditional": ("Traditional", BASELINE),
    "random": ("Random-Backprop", "random-backprop"),
    "scored": ("Random, scored", "random-scored"),
    "sb": ("SB", "selective-backprop"),
    "stale": ("Stale-SB", "stale-sb"),
    "stale-2": ("Stale-SB, n = 2", "stale-sb"),
    "released": ("Stale-SB, as released", "stale-sb-released"),
    "predicted": ("Predicted, mean", "predicted-sb"),
    "predicted-gp": ("Predicted, process", "predicted-sb-gp"),
    "kath18": ("Kath18", "kath18-loss-gated"),
    "auto": ("auto", "auto"),
    "easy-skip": ("easy-skip", "easy-skip"),
}
AT_COST = ("auto", "easy-skip")  # the paper does not have them: as long as SB's cost allows
# Traditional training with its schedule shortened to a part of the run, None: to what SB costs; and
# how it is dashed.
SHORTENED: Mapping[str, tuple[float | None, str]] = {
    "shortened": (None, "dash"),
    "half": (1 / 2, "dashdot"),
    "third": (1 / 3, "dot"),
    "quarter": (1 / 4, "longdash"),
}
USUAL = ("traditional", "shortened", "random", "scored", "sb", "stale", "released", "kath18")
_KEYS = {name: key for key, (_, name) in reversed(STRATEGIES.items())}  # the first of several
# Of lines that are no strategies: Okabe and Ito's colours, dark and light alternating.
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("solid", "dash", "dashdot", "longdash", "dot", "longdashdot")
STYLES = tuple(
    Style(colour, dash, 2.2 if dash == "dot" else 2.0)
    for colour, dash in zip(_COLOURS, _DASHES, strict=True)
)


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
        return 100.0 * (1.0 - 1.0 / _CLASSES.get(self.recipe.data, 10))

    @property
    def warmup(self) -> float:
        """The share of the run that trains on everything: its first epoch."""
        return 1.0 / self.recipe.epochs

    @property
    def length(self) -> Budget:
        """The length of every run."""
        if self.hours is not None:
            return Budget("seconds", 3600 * self.hours)
        return Budget("epochs", float(self.recipe.epochs))

    @property
    def real(self) -> bool:
        """Whether the runs train on the data set of the source."""
        data = self.recipe.data.removesuffix("-extra").replace("-", "")
        return self.published.data.lower().replace("-", "") == data

    @property
    def changes(self) -> dict[str, str]:
        """The differences from the source's setting, in words, by name."""
        source, recipe, found = self.published, self.recipe, {}
        if not self.real:
            name = self.title.partition(",")[0]
            found["data"] = (
                f"{self.title if name == source.data else name} instead of {source.data}"
            )
        ours = self.limit or EXAMPLES.get(recipe.data, 0)
        for name, mine, theirs, words in (
            ("net", recipe.model, source.model, "{} instead of {}"),
            ("epochs", recipe.epochs, source.epochs, "{} epochs instead of {}"),
            ("examples", ours, source.examples, "{:,} examples instead of {:,}"),
            ("batch size", recipe.batch_size, source.batch_size, "batches of {} instead of {}"),
        ):
            if theirs not in (None, mine):
                found[name] = words.format(mine, theirs)
        if source.cutout and not recipe.augmentation.cutout:
            found["cutout"] = f"no cutout instead of {source.cutout} pixels"
        if source.rates not in (None, recipe.rates):
            found["schedule"] = f"a learning rate that falls instead of a {source.rates} one"
        if source.nesterov not in (None, recipe.nesterov):
            names = {True: "Nesterov's momentum", False: "plain momentum"}
            found["momentum"] = f"{names[recipe.nesterov]} instead of {names[source.nesterov]}"
        if recipe.precision is not Precision.FP32:
            found["precision"] = f"{recipe.precision} instead of {Precision.FP32}"
        return found


@dataclass(frozen=True)
class Scale:
    """The settings of each group of figures."""

    name: str
    main: tuple[Setting, ...]  # of the comparisons of strategies
    inside: Setting  # whose losses and gradients are probed
    redundant: Setting  # whose time figure 1 takes apart
    noisy: Setting  # of the runs with flipped labels
    rated: tuple[Setting, ...]  # trained with several learning rates, or with the best of them
    swept: tuple[Setting, ...]  # of figure 14: strategies, selectivities and schedules combined
    sweep: tuple[float, ...]  # the selectivities of figure 14
    batches: tuple[Setting, ...]  # one data set with several batch sizes
    nets: tuple[Setting, ...]  # one data set with several nets
    poster: tuple[Setting, ...]  # of the Selective-Backprop poster
    timed: tuple[Recipe, ...]  # recipes whose steps are timed
    pruned: Setting  # of the Diet-SB poster
    scored: tuple[Setting, Setting]  # two nets early in training whose EL2N scores are compared
    remarked: Setting | None = None  # of the other data set of the Diet-SB poster
    selectivities: tuple[float, ...] = (0.2, 1 / 4, 1 / 3, 1 / 2, 0.65)  # of SB, compared
    lineup: tuple[str, ...] = USUAL  # the keys of the strategies that are compared
    gated: tuple[Setting, ...] = ()  # in which the gate of Kath18 opens, if in others it does not
    tuned: tuple[float, ...] = ()  # learning rates that each strategy is tried at
    seeds: tuple[int, ...] = ()  # the seeds of runs, in order of use; () for 0, 1, 2 …
    figures: tuple[str, ...] | None = None  # by name; None for all
    jobs: int | None = None  # runs at a time by default; None: as many as there is room for
    arms: tuple[str, ...] = ()  # the strategies that are asked for, by `Arm.strategy`; () for all
    only: tuple[str, ...] = ()  # the data sets that are asked for; () for all

    @property
    def part(self) -> str:
        """The strategies and data that `--arms` and `--only` ask for, in words; "" for all."""
        return " on ".join(", ".join(names) for names in (self.arms, self.only) if names)

    def has(self, arm: "Arm") -> bool:
        """Return whether an arm is asked for."""
        return not self.arms or arm.strategy in self.arms

    def ending_after(self, hours: float | None) -> "Scale":
        """Return a scale whose runs end after so many hours of training; None changes nothing.

        They follow the schedule of the recipe's epochs, as far as they come. Runs of the Diet-SB
        poster keep their epochs.
        """
        return self._with(lambda each: replace(each, hours=hours), "pruned", "scored", "remarked")

    def lasting(self, epochs: int | None) -> "Scale":
        """Return a scale of runs of so many epochs, but for young nets; None changes nothing."""
        if epochs is None:
            return self
        return self._with(lambda each: changed(each, epochs=epochs), "scored")

    def _with(self, change: Callable[[Setting], Setting], *kept: str) -> "Scale":
        def new(found: Any) -> Any:
            if isinstance(found, tuple):
                return tuple(map(new, found))
            return change(found) if isinstance(found, Setting) else found

        names = {each.name for each in fields(self)}.difference(kept)
        return replace(self, **{name: new(getattr(self, name)) for name in names})


def changed(setting: Setting, **recipe: Any) -> Setting:
    """Return a setting with some fields of its recipe changed."""
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
    setting: Setting,
    arm: str,
    *,
    rate: float | None = None,
    stale: int = STALE,
    noise: float = 0.0,
    recipe: Recipe | None = None,
) -> RunConfig:
    """Return one strategy's run in a setting, as the paper ran it.

    Each candidate is drawn by its own coin, and all runs have equally many epochs.
    """
    return RunConfig(
        recipe=recipe or setting.recipe,
        arm=arm,
        settings=StrategyOptions(
            rate=setting.rate if rate is None else rate,
            draw=sb.selectors.Draw.BERNOULLI,
            warmup=setting.warmup,
            random_warmup=setting.warmup,
            stale=max(2, stale),  # ignored by arms that do not remember scores
        ),
        seed=0,
        length=setting.length,
        lr_follows=ScheduleBasis.RUN if setting.hours is None else ScheduleBasis.CANDIDATES,
        evaluations=setting.evaluations,
        limit=setting.limit,
        composition=Composition(noise=noise),
    )


def make_arm(key: str, setting: Setting, **options: Any) -> Arm:
    """Return a strategy of `STRATEGIES` in a setting; the options are those of `plan`.

    If it has a learning rate of its own, its label says so.
    """
    rate = setting.learning_rates.get(key)
    if rate is not None:
        recipe = replace(options.get("recipe", setting.recipe), learning_rate=rate)
        arm = make_arm(key, replace(setting, learning_rates={}), **options | {"recipe": recipe})
        return replace(arm, label=f"{arm.label}, at {rate:g}")
    if key in SHORTENED:
        return _shortened(key, setting, **options)
    label, name = STRATEGIES[key]
    if key == "kath18":
        options = {"rate": setting.kath18_rate} | options
    if key == "stale-2":
        options = {"stale": 2} | options
    dash = "dash" if key == "stale-2" else "solid"
    run = plan(setting, name, **options)
    if key in AT_COST:
        run = replace(run, length=Budget("cost", round(cost_of_sb(setting), 2)))
    return styled(label, key, run, dash=dash)


def _shortened(key: str, setting: Setting, **options: Any) -> Arm:
    (share, dash), epochs = SHORTENED[key], setting.recipe.epochs
    budget = cost_of_sb(setting) if share is None else share * epochs
    run = replace(plan(setting, BASELINE, **options), length=Budget("cost", round(budget, 2)))
    label = "Traditional, shortened"
    return styled(label if share is None else f"{label} to {percent(share)}", key, run, dash=dash)


def cost_of_sb(setting: Setting) -> float:
    """Return the expected cost of SB's epochs, in passes of traditional training."""
    epochs = float(setting.recipe.epochs)
    selective = epochs * (1.0 - setting.warmup)  # the warm-up trains on everything, unscored
    return cost_of(selective, epochs * setting.warmup + setting.rate * selective)


def probed(arm: Arm, *probes: Probe) -> Arm:
    """Return an arm whose runs are probed."""
    return replace(arm, plan=replace(arm.plan, probes=probes))


def variants(arms: Sequence[tuple[str, Arm]]) -> tuple[Arm, ...]:
    """Return arms under names, colours and dashes of their own."""
    both = zip(arms, cycle(STYLES), strict=False)
    return tuple(replace(arm, label=name, key=name, style=style) for (name, arm), style in both)


def styled(label: str, key: str, run: RunConfig, *, dash: str = "solid") -> Arm:
    """Return an arm in the colour of its strategy."""
    name = "kath18" if run.arm.startswith("kath18") else run.arm
    colour, width = strategy_colours([name])[name], 2.4 if name == BASELINE else 2.0
    return Arm(label, run, Style(colour, dash, width), key)
