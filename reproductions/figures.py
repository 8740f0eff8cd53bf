"""What a figure or table of a paper is made of: the runs of strategies, and what they show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

import selective_backprop as sb
from reproductions.quotes import Reported, read_reported
from reproductions.timing import StepTimes, StepTiming
from reproductions.training import EXAMPLES, cost
from selective_backprop_lab.analysis.grouping import BASELINE, RunGroup, counts
from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.analysis.verdict import Finding
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.recipe import Recipe
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.report.styles import Style, strategy_colours
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.lr_schedule import ScheduleBasis
from selective_backprop_lab.training.probes import Probe
from selective_backprop_lab.training.run_config import RunConfig

_CLASSES = {"cifar100": 100}  # of data sets that have more than ten
STALE = 3
# Kath18 as the paper ran it: by loss, unweighted, from when its variance says so.
STRATEGIES = {
    "traditional": ("Traditional", BASELINE),
    "random": ("Random-Backprop", "random-backprop"),
    "scored": ("Random, scored", "random-scored"),
    "sb": ("SB", "selective-backprop"),
    "stale": ("Stale-SB", "stale-sb"),
    "stale-2": ("Stale-SB, n = 2", "stale-sb"),
    "kath18": ("Kath18", "kath18-loss-gated"),
}
# Traditional training with its schedule shortened to a part of the run; None: to what SB costs.
SHORTENED: Mapping[str, float | None] = {
    "shortened": None,
    "half": 1 / 2,
    "third": 1 / 3,
    "quarter": 1 / 4,
}
USUAL = ("traditional", "shortened", "random", "scored", "sb", "stale", "kath18")
# Of one strategy's variants: Okabe and Ito's, dark and light alternating.
_VARIANTS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("solid", "dash", "dashdot", "dot", "longdash", "longdashdot")


@dataclass(frozen=True)
class Published:
    """What a source trained, as far as it says."""

    data: str  # as the source calls it
    model: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    examples: int | None = None
    cutout: int = 0


@dataclass(frozen=True)
class Setting:
    """A data set, a net and a length, the same for every strategy."""

    title: str  # what figures call it
    recipe: Recipe  # every run takes its epochs
    rate: float  # share of the examples that SB and Stale-SB train on
    kath18_rate: float
    published: Published  # what it is held against
    limit: int | None = None  # training examples, or None for all
    evaluations: int = 12  # per run
    accelerated: Recipe | None = None  # with the paper's accelerated schedule, where it has one
    static: Recipe | None = None  # with a learning rate that stays where it begins
    # The learning rate of a strategy that was tuned, by the strategy's key.
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    hours: float | None = None  # after which training ends; None: after the recipe's epochs

    @property
    def paper_data(self) -> str:
        """The source's data set."""
        return self.published.data

    @property
    def guessing(self) -> float:
        """The error of guessing, in percent: a target that is no lower says nothing."""
        return 100.0 * (1.0 - 1.0 / _CLASSES.get(self.recipe.data, 10))

    @property
    def warmup(self) -> float:
        """The first epoch, which trains on everything, as a share of the run."""
        return 1.0 / self.recipe.epochs

    @property
    def length(self) -> Budget:
        """Of every run."""
        if self.hours is not None:
            return Budget("seconds", 3600 * self.hours)
        return Budget("epochs", float(self.recipe.epochs))

    @property
    def changes(self) -> dict[str, str]:
        """What differs from the source's setting, ours for theirs; empty where nothing does."""
        said, recipe = self.published, self.recipe
        data = recipe.data.removesuffix("-extra")
        real = said.data.lower().replace("-", "") == data.replace("-", "")
        examples = EXAMPLES.get(recipe.data)
        ours = self.limit or (examples[0] if examples else None)
        cutout = recipe.augmentation.cutout
        return {
            what: f"{mine} for {theirs}"
            for what, mine, theirs, differs in (
                ("data", self.title.partition(",")[0], said.data, not real),
                ("net", recipe.model, said.model, said.model not in (None, recipe.model)),
                (
                    "epochs",
                    f"{recipe.epochs} epochs",
                    said.epochs,
                    said.epochs not in (None, recipe.epochs),
                ),
                (
                    "examples",
                    f"{ours or 0:,} examples",
                    f"{said.examples or 0:,}",
                    said.examples is not None and said.examples != ours,
                ),
                (
                    "batch size",
                    f"batches of {recipe.batch_size}",
                    said.batch_size,
                    said.batch_size not in (None, recipe.batch_size),
                ),
                (
                    "cutout",
                    "no cutout",
                    f"cutout of {said.cutout}",
                    cutout != said.cutout and not cutout,
                ),
            )
            if differs
        }


@dataclass(frozen=True)
class Scale:
    """Which settings each group of figures uses."""

    name: str
    main: tuple[Setting, ...]  # where the strategies are compared
    inside: Setting  # whose losses and gradients are looked into
    redundant: Setting  # of them, the one whose time figure 1 takes apart
    noisy: Setting  # where labels are flipped
    swept: tuple[Setting, ...]  # where strategies, selectivities and schedules are combined
    sweep: tuple[float, ...]  # the selectivities of that
    batches: tuple[Setting, ...]  # one data set with several batch sizes
    nets: tuple[Setting, ...]  # one data set with several nets
    poster: tuple[Setting, ...]  # what the poster trained on
    timed: tuple[Recipe, ...]  # recipes whose steps are timed
    pruned: Setting  # where a part of the data set is left out from the start
    scored: tuple[Setting, Setting]  # two young nets whose EL2N scores are compared
    remarked: Setting | None = None  # where the same is done on another data set
    selectivities: tuple[float, ...] = (0.2, 1 / 4, 1 / 3, 1 / 2, 0.65)  # of SB, compared
    lineup: tuple[str, ...] = USUAL  # the keys of the strategies that are compared
    tuned: tuple[float, ...] = ()  # learning rates that each strategy is tried at
    figures: tuple[str, ...] | None = None  # what can be redone, by name; None for everything


@dataclass(frozen=True)
class Entry:
    """One strategy in one setting, to be run with several seeds."""

    label: str  # what the figure calls it
    plan: RunConfig  # what to run, with seed 0
    style: Style
    key: str  # what judges know it by: the same in every panel
    seeds: tuple[int, ...] | None = None  # None for as many as the command is told

    def arm(self, runs: Iterable[Run]) -> RunGroup:
        """Return the entry with its runs."""
        ordered = sorted(runs, key=lambda run: run.header.seed)
        finished = tuple(run for run in ordered if counts(run))
        return RunGroup(
            name=self.plan.arm, label=self.label, length=self.plan.length, runs=finished
        )


@dataclass(frozen=True)
class PanelSpec:
    """Strategies that are compared with one another, in one setting."""

    title: str
    setting: Setting
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class PanelData:
    """A panel with the records of its runs, one arm for each entry."""

    panel: PanelSpec
    arms: tuple[RunGroup, ...]

    @property
    def title(self) -> str:
        """Of the panel."""
        return self.panel.title

    @property
    def pairs(self) -> list[tuple[Entry, RunGroup]]:
        """Each entry that has finished runs, with them."""
        both = zip(self.panel.entries, self.arms, strict=True)
        return [(entry, arm) for entry, arm in both if arm.runs]

    @property
    def runs(self) -> list[Run]:
        """All finished runs."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def only(self) -> RunGroup:
        """The arm of a panel with one entry."""
        ((_, arm),) = self.pairs
        return arm

    def find(self, key: str) -> RunGroup | None:
        """Return the arm of a key, where it has finished runs."""
        return next((arm for entry, arm in self.pairs if entry.key == key), None)


@dataclass(frozen=True)
class Found:
    """All that a figure or table can be made of."""

    scale: Scale
    panels: tuple[PanelData, ...] = ()
    timings: tuple[StepTimes, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be run, and what to do about it
    root: Path | None = None  # of the data sets' files, for figures that show images

    @property
    def runs(self) -> list[Run]:
        """Every record that is shown."""
        unique = {id(run): run for each in self.panels for arm in each.arms for run in arm.runs}
        return list(unique.values())


Judged = tuple[str, Finding]
"""The name of a quote, and what the records say of it."""
Judge = Callable[[PanelData], Iterable[Judged]]


@dataclass(frozen=True)
class Presentation:
    """A figure, tables, and what they say of the source's sentences."""

    figure: Drawing | None = None
    tables: Sequence[Table] = ()
    findings: Sequence[Judged] = ()


def presented(
    found: Found,
    figure: Drawing | None = None,
    table: Callable[[PanelData], Table] | None = None,
    judge: Judge | None = None,
) -> Presentation:
    """Return a figure with a table of each panel, and what is found in each."""
    return Presentation(
        figure,
        [table(each) for each in found.panels] if table else [],
        [finding for each in found.panels for finding in judge(each)] if judge else [],
    )


@dataclass(frozen=True)
class Figure:
    """One figure or table of a source."""

    name: str  # as the command knows it
    reported: Reported
    present: Callable[[Found], Presentation]
    panels: Callable[[Scale], Sequence[PanelSpec]]
    timings: Callable[[Scale], Sequence[StepTiming]] = lambda scale: ()

    @property
    def title(self) -> str:
        """What it shows."""
        return self.reported.title

    def needs(self, scale: Scale) -> bool:
        """Return whether there is something to train or to time for it at a scale."""
        runs = any(panel.entries for panel in self.panels(scale))
        return runs or bool(self.timings(scale))

    def form(self, scale: Scale) -> str:
        """Return in one line whether it is as its source captions it."""
        if self.reported.ours:
            return f"ours: {self.reported.ours}"
        changed = {what: None for words in self.changes(scale).values() for what in words}
        return f"compressed: {', '.join(changed)}" if changed else "as captioned"

    def changes(self, scale: Scale) -> dict[str, dict[str, str]]:
        """Return what differs from the source's settings, ours for theirs, by our setting."""
        found = {panel.setting.title: panel.setting.changes for panel in self.panels(scale)}
        timed = [timing.recipe.model for timing in self.timings(scale)]
        if timed and self.reported.model not in timed:
            found["Timed"] = {"net": f"{', '.join(timed)} for {self.reported.model}"}
        return {title: words for title, words in found.items() if words}


def figures_of(reported: Path, made: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return what is made of the figures that a file says the source reports.

    Args:
        reported: what the source says of each figure.
        made: the fields from `present` on, by name.
    """
    return tuple(Figure(name, said, *made[name]) for name, said in read_reported(reported).items())


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

    Candidates are drawn each on its own coin, and everything trains for the same epochs, at a
    learning rate that follows them.
    """
    return RunConfig(
        recipe=recipe or setting.recipe,
        arm=arm,
        settings=StrategyOptions(
            rate=setting.rate if rate is None else rate,
            draw=sb.selectors.Draw.BERNOULLI,
            warmup=setting.warmup,
            random_warmup=setting.warmup,
            # Arms that do not remember scores are the same run whatever it says.
            stale=max(2, stale),
        ),
        seed=0,
        length=setting.length,
        lr_follows=ScheduleBasis.RUN if setting.hours is None else ScheduleBasis.CANDIDATES,
        evaluations=setting.evaluations,
        limit=setting.limit,
        composition=Composition(noise=noise),
    )


def entry(key: str, setting: Setting, **options: Any) -> Entry:
    """Return a strategy of `STRATEGIES` in a setting; the options are those of `plan`."""
    if key in setting.learning_rates:
        recipe = options.get("recipe", setting.recipe)
        options["recipe"] = replace(recipe, learning_rate=setting.learning_rates[key])
    if key in SHORTENED:
        return _shortened(key, setting, **options)
    label, arm = STRATEGIES[key]
    if key == "kath18":
        options = {"rate": setting.kath18_rate} | options
    if key == "stale-2":
        options = {"stale": 2} | options
    dash = "dash" if key == "stale-2" else "solid"
    return styled(label, key, plan(setting, arm, **options), dash=dash)


def _shortened(key: str, setting: Setting, **options: Any) -> Entry:
    """Return traditional training that is shorter, its schedule shortened with it."""
    share = SHORTENED[key]
    budget = cost(plan(setting, "selective-backprop"))
    if share is not None:
        budget = share * setting.recipe.epochs
    it = replace(plan(setting, BASELINE, **options), length=Budget("cost", round(budget, 2)))
    label = "Traditional, shortened"
    return styled(label if share is None else f"{label} to {share:.0%}", key, it, dash="dash")


def probed(entry: Entry, *probes: Probe) -> Entry:
    """Return an entry whose runs are looked into."""
    return replace(entry, plan=replace(entry.plan, probes=probes))


def variants(entries: Sequence[tuple[str, Entry]]) -> tuple[Entry, ...]:
    """Return entries under names, colours and dashes of their own."""
    return tuple(
        replace(
            entry, label=label, key=label, style=Style(_VARIANTS[i % 6], _DASHES[i % 6], width=2.0)
        )
        for i, (label, entry) in enumerate(entries)
    )


def styled(label: str, key: str, it: RunConfig, *, dash: str = "solid") -> Entry:
    """Return an entry in the colour of its strategy."""
    arm = "kath18" if it.arm.startswith("kath18") else it.arm
    colour, width = strategy_colours([arm])[arm], 2.4 if arm == BASELINE else 2.0
    return Entry(label, it, Style(colour, dash, width), key)
