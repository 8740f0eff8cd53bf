"""What ran and what has to be said about it: the words around every table and figure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selective_backprop_lab.analysis.grouping import (
    BASELINE,
    DATA,
    OF_THE_GROUP,
    Comparison,
    as_text,
    counts,
    differences,
    flat,
)
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.training.lr_schedule import schedule_note

_NOT_THE_RECIPE = OF_THE_GROUP | {*DATA, "model"}
_PLURAL = {
    "epochs": "{} epochs",
    "cost": "budgets of {} traditional epochs",
    "seconds": "budgets of {} seconds",
}


def headline(comparison: Comparison) -> str:
    """Say on one line what ran: data, model, length, seeds, hardware and code."""
    found = facts(comparison)
    seeds = f"seed{'s' if ' ' in found['seeds'] else ''} {found['seeds']}"
    parts = (found["data"], found["model"], found["length"], seeds, found["hardware"])
    return " · ".join([*parts, f"code {found['code']}"])


def facts(comparison: Comparison) -> dict[str, str]:
    """Say what ran, name by name, with the part of the recipe that all runs share."""
    runs = comparison.runs
    first = runs[0].header
    found = {
        "data": ", ".join(_data(first.config)),
        "model": _name_of(first.config.get("model")),
        "length": _lengths(comparison.lengths),
        "seeds": seeds_of(sorted({run.header.seed for run in runs})),
        "runs": f"{sum(map(counts, runs))} finished of {len(runs)}",
        "hardware": listed(dict.fromkeys(machine_of(run.header.hardware) for run in runs)),
        "code": listed(dict.fromkeys(run.header.code_version for run in runs)),
        "versions": ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        "started": min(run.header.started for run in runs),
    }
    different = differences(runs, ignore=OF_THE_GROUP)
    recipe = [
        f"{_spoken(key)} {as_text(value)}"
        for key, value in flat(first.config, ignore=_NOT_THE_RECIPE).items()
        if key not in different and value is not None
    ]
    return found | ({"recipe": ", ".join(recipe)} if recipe else {})


def notes(comparison: Comparison) -> list[str]:
    """Say what differs between the runs, what is missing or unusual, and what was left out."""
    runs = comparison.runs
    paced = dict.fromkeys(as_text(run.header.config.get("schedules_follow")) for run in runs)
    return [
        *_differing(runs),
        *origins(runs),
        *filter(None, map(schedule_note, paced)),
        *_prepared(comparison),
        *_missing(comparison),
    ]


def listed(parts: Iterable[str]) -> str:
    """Return parts as a sentence lists them."""
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last


def seeds_of(seeds: Sequence[int]) -> str:
    """Return rising seeds in words: `0 to 2`, or `0 and 3`."""
    consecutive = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else listed(map(str, seeds))


def machine_of(hardware: Mapping[str, Any]) -> str:
    """Describe a machine as a header holds it."""

    def counted(noun: str) -> str | None:
        number = hardware.get(f"{noun}s")
        return f"{number} {noun}{'' if number == 1 else 's'}" if number else None

    memory = f"{hardware['memory_gib']:.0f} GiB" if hardware.get("memory_gib") else None
    names = [hardware.get(name) for name in ("gpu", "cpu", "capability")]
    parts = [*names, counted("core"), counted("thread"), memory]
    return ", ".join(str(part) for part in parts if part) or "hardware unknown"


def origins(runs: Sequence[Run]) -> Iterable[str]:
    """Say what of the runs' code, libraries and hardware differs, or is not pinned down."""
    headers = [run.header for run in runs]
    codes = dict.fromkeys(header.code_version for header in headers)
    if len(codes) > 1:
        yield f"The runs come from different code: {listed(codes)}."
    if any("uncommitted" in code for code in codes):
        yield "The code had uncommitted changes, so its version does not pin it down."
    if len({as_text(header.versions) for header in headers}) > 1:
        yield "The runs used different versions of Python or of libraries."
    if len({header.model_file for header in headers} - {None}) > 1:
        yield "The file of the model was changed between the runs."
    if len({as_text(header.hardware) for header in headers}) > 1:
        yield (
            "The runs come from different hardware or thread counts: seconds do not compare, and "
            "the same seed trains to other errors."
        )


def _data(config: Mapping[str, Any]) -> Iterable[str]:
    yield _name_of(config.get("data"))
    if config.get("limit"):
        yield f"{config['limit']} training examples"
    if config.get("pretrained"):
        yield f"the net trained on {config['pretrained']} beforehand"
    if noise := config.get("noise"):
        share = f"{100 * noise:.3g} %" if isinstance(noise, float) else as_text(noise)
        kind = (config.get("composition") or {}).get("noise_kind")
        yield f"{share} of the training labels flipped" + (f" ({kind})" if kind else "")
    for name, value in (config.get("composition") or {}).items():
        if name != "noise_kind":
            yield f"{_spoken(name)} {as_text(value)}"


def _name_of(value: Any) -> str:
    """Return how data or a model is called: its name, where it is described by a mapping."""
    if isinstance(value, Mapping):
        return str(value.get("name", as_text(value)))
    return "–" if value is None else str(value)


def _differing(runs: Sequence[Run]) -> Iterable[str]:
    for key in sorted(differences(runs, ignore=OF_THE_GROUP)):
        found = (flat(run.header.config, ignore=OF_THE_GROUP).get(key) for run in runs)
        values = dict.fromkeys("unset" if value is None else as_text(value) for value in found)
        yield f"The runs do not share one recipe: {_spoken(key)} is {listed(values)}."


def _prepared(comparison: Comparison) -> Iterable[str]:
    for group in comparison.groups:
        costs = [float(run.meters.get("prepared_cost", 0.0)) for run in group.runs]
        if any(costs):
            yield (
                f"{group.label}: {sum(costs) / len(costs):.3g} of its cost epochs were spent on "
                "preparing, before training."
            )


def _missing(comparison: Comparison) -> Iterable[str]:
    for group in comparison.groups:
        for run in group.unfinished:
            share = run.points[-1].progress if run.points else 0
            why = f"is unfinished, at {share:.0%} of its length"
            if run.finished:
                why = "has no evaluation"
            yield f"{group.label}, seed {run.header.seed}, {why}; it is not counted."
    if comparison.baseline is None:
        yield f"There is no finished {BASELINE} run, so nothing can be said about speed-ups."
    if len({frozenset(group.seeds) for group in comparison.groups if group.runs}) > 1:
        yield "The arms do not have the same seeds; differences use the seeds both have."


def _spoken(key: str) -> str:
    return key.removeprefix("recipe.").replace("_", " ").replace(".", " ")


def _lengths(lengths: Sequence[Budget]) -> str:
    words = []
    for unit in dict.fromkeys(length.unit for length in lengths):
        same = [length for length in lengths if length.unit == unit]
        numbers = listed(f"{length.value:g}" for length in same)
        words.append(str(same[0]) if len(same) == 1 else _PLURAL[unit].format(numbers))
    return listed(words)
