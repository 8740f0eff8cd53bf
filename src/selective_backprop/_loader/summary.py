"""The line that is printed at the first batch of a training."""

from selective_backprop._pipeline.rows import Shape
from selective_backprop._pipeline.source import Source
from selective_backprop.strategies import Strategy


def summarise(strategy: Strategy, shape: Shape, source: Source) -> str:
    """Return one line: what is selected, from when on, and how many steps to expect."""
    size = f"batches of {shape.batch_size}" if shape.batch_size else ""
    found = f"{strategy.name}: {_selection(strategy)}", size, _steps(strategy, shape, source)
    return " · ".join(filter(None, found))


def _selection(strategy: Strategy) -> str:
    terms, schedule, subset = strategy.selector.terms, strategy.schedule, strategy.subset
    examples = "everything" if subset is None else f"{len(subset)} examples"
    if terms.keeps_everything:
        return f"trains on {examples}"
    text = "selects" + (f" {terms.rate:.0%}" if terms.promises else "")
    if subset is not None:
        text += f" {'of' if terms.promises else 'among'} {examples}"
    if schedule.gate is not None:
        return f"{text} while that pays"
    if schedule.start:
        return f"{text} later on"
    return f"{text} from epoch {schedule.warmup_epochs + 1}" if schedule.warmup_epochs else text


def _steps(strategy: Strategy, shape: Shape, source: Source) -> str:
    """Return how many steps an epoch with selection has; an empty string if that is unknown."""
    terms, most = strategy.selector.terms, source.batches
    if not shape.unchanged and most is not None:
        rows = None if source.batch_size is None else most * source.batch_size
        most = None if rows is None or shape.batch_size is None else -(-rows // shape.batch_size)
    if most is None:
        return ""
    if terms.keeps_everything:
        return f"{most} steps an epoch"
    if not terms.promises:
        return f"at most {most} steps an epoch"
    least = f"{most * terms.rate:.0f}"
    if strategy.schedule.gate is not None:  # while it is shut, an epoch trains on everything
        return f"{least} to {most} steps an epoch"
    return f"about {least} of {most} steps an epoch"
