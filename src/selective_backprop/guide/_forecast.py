"""What an epoch of each strategy would cost, computed from loops that were timed."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._mixes import BASELINE, Mix
from selective_backprop.guide._rounds import Median, summarise
from selective_backprop.guide._spending import Spent
from selective_backprop.guide._worth import WorthForecast, forecast_worth

Round = Mapping[str, Spent]


@dataclass(frozen=True)
class Forecast:
    """What an epoch of a strategy would cost while it selects, loading included.

    Attributes:
        seconds: the seconds of an epoch.
        relative: the cost of an epoch, relative to one of traditional training.
        phases: seconds of an epoch by phase, which add up to about `seconds`.
        scored: candidates of an epoch that passes score, on average over epochs.
        loaded: examples of an epoch that are loaded, on average over epochs.
        trained: examples of an epoch that are trained on.
        share: those, of all.
        varies: whether these depend on the losses, and so change as the model learns.
        training: the cost of a whole training, relative to a traditional one of as many epochs.
            Before and after selection, training is traditional. None if its length is unknown.
        worth: what it was worth on data like these, at equal passes; None if there is none such.
        code: how a user writes the strategy.
    """

    seconds: Median
    relative: Median
    phases: Mapping[str, float]
    scored: float
    loaded: float
    trained: float
    share: float
    varies: bool
    training: float | None
    worth: WorthForecast | None
    code: str

    @property
    def pays(self) -> WorthForecast | None:
        """The worth at equal seconds: less what an epoch takes beyond the rows it trains on."""
        if self.worth is None:
            return None
        faster = self.share / max(self.relative.median, 1e-9)
        return replace(
            self.worth,
            times=self.worth.times * faster,
            low=self.worth.low * faster,
            high=self.worth.high * faster,
        )


@dataclass(frozen=True)
class Ingredients:
    """The figures from which an epoch's cost is computed, besides the timed rounds.

    Attributes:
        batch_size: rows of a training batch.
        window: candidates that a training batch is drawn from.
        examples: candidates of an epoch.
        starts: by loop, how many seconds longer an epoch's first batch takes than any other.
        beside: by scorer, the forward passes per candidate that it takes besides, now and then.
        loading: seconds per candidate batch from the user's workers at full speed, and seconds
            until their first one; None if the process that trains also loads.
    """

    batch_size: int
    window: int
    examples: int
    starts: Mapping[str, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)
    loading: tuple[float, float] | None = None

    @property
    def windows(self) -> float:
        """Windows of an epoch."""
        return self.examples / self.window

    def epoch(self, mix: Mix, found: Round) -> dict[str, float]:
        """Return the seconds of an epoch by phase, from what one round found."""
        phases: dict[str, float] = {}
        for loop, share in mix.parts.items():
            steps = share * self.windows
            if loop == BASELINE:
                # The plain loop trains on all of a window, the others on one batch from it.
                steps *= self.window / self.batch_size
            each = dict(found[loop].phases)
            if mix.scorer is not None and loop == "scored":
                each["score"] = self._scoring(mix.scorer, found) * found[loop].steps
            for phase, seconds in each.items():
                more = seconds / found[loop].steps * steps
                phases[phase] = phases.get(phase, 0.0) + more
            # A loop that runs in some epochs only starts in those only.
            begun = self.starts.get(loop, 0.0) * min(1.0, share)
            phases["start"] = phases.get("start", 0.0) + begun
        if self.loading is not None:
            each, first = self.loading
            # Workers load while the process is busy; it waits for the rest alone.
            busy = sum(phases.values()) - phases.pop("load", 0.0)
            batches = self.loaded(mix) / self.batch_size
            phases["load"] = first + max(0.0, each * batches - busy)
        return {phase: seconds for phase, seconds in phases.items() if seconds > 0.0}

    def _scoring(self, scorer: str, found: Round) -> float:
        """Return the seconds in which a scorer scores a window.

        Its cost relative to exact scoring comes from timing both by themselves; the seconds of
        exact scoring come from the loop, in which caches are as they are in training.
        """
        spent, exact = found[f"scorer {scorer}"], found["scorer forward"]
        cost = (spent.seconds / spent.scored) / (exact.seconds / exact.scored)
        inside = found["scored"].phases["score"] / found["scored"].steps
        return inside * (cost + self.beside.get(scorer, 0.0))

    def scored(self, mix: Mix) -> float:
        """Return the candidates of an epoch that passes score."""
        return self.examples * mix.scored

    def loaded(self, mix: Mix) -> float:
        """Return the examples of an epoch that are loaded."""
        whole = mix.parts.get(BASELINE, 0.0) + mix.scored
        drawn = mix.parts.get("random", 0.0) + mix.parts.get("recalled", 0.0)
        return self.examples * whole + self.batch_size * self.windows * drawn

    def trained(self, mix: Mix) -> float:
        """Return the examples of an epoch that are trained on."""
        selected = sum(share for loop, share in mix.parts.items() if loop != BASELINE)
        whole = mix.parts.get(BASELINE, 0.0)
        return self.examples * whole + self.batch_size * self.windows * selected


def foresee(
    mixes: Mapping[str, Mix],
    ingredients: Ingredients,
    rounds: Sequence[Round],
    epochs: int | None,
    traits: DataTraits,
) -> dict[str, Forecast]:
    """Return what an epoch of each strategy would cost.

    Args:
        mixes: how each strategy's epochs are made up, including traditional training's.
        ingredients: the figures that epochs are computed from.
        rounds: the timed rounds, at least one.
        epochs: epochs of the whole training, or None if that is unknown.
        traits: what the data are made up of.
    """
    found = {name: [ingredients.epoch(mix, each) for each in rounds] for name, mix in mixes.items()}
    sums = {name: [sum(each.values()) for each in epoch] for name, epoch in found.items()}
    forecasts = {}
    for name, mix in mixes.items():
        pairs = zip(sums[name], sums[BASELINE], strict=True)
        relative = summarise([mine / max(whole, 1e-9) for mine, whole in pairs])
        names = dict.fromkeys(phase for each in found[name] for phase in each)
        forecasts[name] = Forecast(
            seconds=summarise(sums[name]),
            relative=relative,
            phases={
                phase: statistics.median(each.get(phase, 0.0) for each in found[name])
                for phase in names
            },
            scored=ingredients.scored(mix),
            loaded=ingredients.loaded(mix),
            trained=ingredients.trained(mix),
            share=ingredients.trained(mix) / ingredients.examples,
            varies=mix.varies,
            training=_whole(mix, relative.median, epochs),
            worth=forecast_worth(name, traits, epochs),
            code=mix.code,
        )
    return forecasts


def _whole(mix: Mix, relative: float, epochs: int | None) -> float | None:
    if epochs is None:
        return None
    schedule = mix.strategy.schedule
    # The middle of an epoch stands for all of it.
    moments = [(epoch, (epoch + 0.5) / epochs) for epoch in range(epochs)]
    selects = sum(schedule.selects(epoch, progress) for epoch, progress in moments) / epochs
    return 1.0 - selects + selects * relative
