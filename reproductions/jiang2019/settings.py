"""On what, how long and how selectively a scale trains."""

from dataclasses import dataclass

from selective_backprop.lab.recipe import Recipe

_CLASSES = {"cifar100": 100}  # of data sets that have more than ten


@dataclass(frozen=True)
class Setting:
    """A data set, a net and a length, the same for every strategy.

    Attributes:
        title: what figures call it.
        recipe: what is trained, and how; every run takes its epochs.
        rate: share of the examples that SB and Stale-SB train on.
        kath18_rate: the same of Kath18.
        limit: training examples, or None for all.
        evaluations: per run.
        accelerated: the recipe with the paper's accelerated schedule, where it has one.
        paper_data: the paper's data set that it is held against.
    """

    title: str
    recipe: Recipe
    rate: float
    kath18_rate: float
    paper_data: str
    limit: int | None = None
    evaluations: int = 12
    accelerated: Recipe | None = None

    @property
    def guessing(self) -> float:
        """The error of guessing, in percent: a target that is no lower says nothing."""
        return 100.0 * (1.0 - 1.0 / _CLASSES.get(self.recipe.data, 10))

    @property
    def warmup(self) -> float:
        """The first epoch, which trains on everything, as a share of the run."""
        return 1.0 / self.recipe.epochs


@dataclass(frozen=True)
class Scale:
    """Which settings each group of figures uses.

    Attributes:
        name: of the scale.
        main: where the strategies are compared.
        redundant: of them, the one whose time figure 1 takes apart.
        noisy: where labels are flipped.
        swept: where strategies, selectivities and schedules are combined.
        sweep: the selectivities of that.
        nets: one data set with several nets.
        poster: what the poster trained on.
        timed: recipes whose steps are timed.
        pruned: where a part of the data set is left out from the start.
        scored: two nets, young, whose EL2N scores of that data set's examples are compared.
        items: what can be redone at this scale, by name; None for everything.
    """

    name: str
    main: tuple[Setting, ...]
    redundant: Setting
    noisy: Setting
    swept: tuple[Setting, ...]
    sweep: tuple[float, ...]
    nets: tuple[Setting, ...]
    poster: tuple[Setting, ...]
    timed: tuple[Recipe, ...]
    pruned: Setting
    scored: tuple[Setting, Setting]
    items: tuple[str, ...] | None = None
