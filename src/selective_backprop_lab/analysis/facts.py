"""The words around every table and figure: what ran, and what the reader must know about it."""

from collections.abc import Iterable, Sequence

import pandas as pd

from selective_backprop_lab.analysis.comparison import DATA, OF_THE_ARM, arms, as_text, lengths
from selective_backprop_lab.analysis.queries import BASELINE, counted, metered
from selective_backprop_lab.budget import Budget, schedule_note
from selective_backprop_lab.records.frame import each_run, runs_of

_NOT_THE_RECIPE = OF_THE_ARM | {*DATA, "model"}
_SHARES = {0.1: "a tenth", 0.2: "a fifth", 0.25: "a quarter", 0.333: "a third", 0.5: "half"}


def headline(comparison: pd.DataFrame) -> str:
    """Say in one line what ran: data, model, length, seeds, hardware and code."""
    found = facts(comparison)
    seeds = f"seed{'s' if ' ' in found['seeds'] else ''} {found['seeds']}"
    parts = (found["data"], found["model"], found["length"], seeds, found["hardware"])
    return " · ".join([*parts, f"code {found['code']}"])


def facts(comparison: pd.DataFrame) -> dict[str, str]:
    """Return what ran, by name, with the part of the recipe that all runs share."""
    runs = runs_of(comparison).sort_index()  # in the order in which they were read
    first = runs.iloc[0]
    found = {
        "data": data_words(comparison),
        "model": first.model,
        "length": _lengths(lengths(comparison)),
        "seeds": seeds_of(sorted({*runs.seed.tolist()})),
        "runs": f"{len(counted(runs))} finished of {len(runs)}",
        "hardware": listed(runs.machine.unique()),
        "code": listed(runs.code.unique()),
        "versions": ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        "started": runs.started.min(),
    }
    different = _differing(runs)
    recipe = [
        f"{_spoken(key)} {as_text(value)}"
        for key, value in first.config.items()
        if _root(key) not in _NOT_THE_RECIPE and key not in different and value is not None
    ]
    return found | ({"recipe": ", ".join(recipe)} if recipe else {})


def data_words(comparison: pd.DataFrame) -> str:
    """Say in a few words what was trained on: `digits with a fifth of the labels wrong`."""
    run = runs_of(comparison).sort_index().iloc[0]
    config, made = run.config, list[str]()
    for key, value in config.items():
        if _root(key) == "composition" and value and not key.endswith("noise_kind"):
            name = _spoken(key.removeprefix("composition."))
            name = {"skew": "skewed classes", "frequent": "one frequent class"}.get(name, name)
            made.append(f"{name} ({as_text(value)})")
    if noise := config.get("noise"):
        share = as_text(noise)
        if isinstance(noise, float):
            share = _SHARES.get(round(noise, 3), f"{100 * noise:.3g} %")
        kind = config.get("composition.noise_kind")
        made.append(f"{share} of the labels wrong" + (f" ({kind})" if kind else ""))
    if config.get("pretrained"):
        made.append(f"a net trained on {config['pretrained']} beforehand")
    if config.get("held_out"):
        made.append("a part of the training examples held out to test on")
    if config.get("anew"):
        made.append("other examples for each seed")
    few = f"{config['limit']:,} training examples of " if config.get("limit") else ""
    return f"{few}{run.data}" + (f" with {listed(made)}" if made else "")


def notes(comparison: pd.DataFrame) -> list[str]:
    """Say what differs between the runs, what is missing or unusual, and what is left out."""
    runs = runs_of(comparison).sort_index()
    paced = dict.fromkeys(as_text(config.get("schedules_follow")) for config in runs.config)
    return [
        *(
            f"The runs do not share one recipe: {_spoken(key)} is {listed(values)}."
            for key, values in _differing(runs).items()
        ),
        *origins(runs),
        *filter(None, map(schedule_note, paced)),
        *_metered(comparison),
        *_missing(comparison),
    ]


def origins(runs: pd.DataFrame) -> Iterable[str]:
    """Say how the runs differ in code, libraries and hardware, or what is not known of these."""
    codes = runs.code.unique()
    if len(codes) > 1:
        yield f"The runs come from different code: {listed(codes)}."
    if any("uncommitted" in code for code in codes):
        yield "The code had uncommitted changes, so its version does not tell which code ran."
    if runs.versions.map(as_text).nunique() > 1:
        yield "The runs used different versions of Python or of libraries."
    for part in ("model", "data"):
        if runs[f"{part}_file"].nunique() > 1:
            yield f"The file of the {part} was changed between the runs."
    if runs.machine.nunique() > 1:
        yield (
            "The runs come from different hardware or thread counts: seconds cannot be compared, "
            "and the same seed trains to other errors."
        )
    elif lost := int(runs.seconds[runs.evaluations > 0].isna().sum()):
        yield (
            f"{lost} of {len(runs)} runs changed machines or shared a GPU with another run, so "
            "their seconds are left out."
        )


def listed(parts: Iterable[str]) -> str:
    """Return parts as a list in a sentence: `a, b and c`."""
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last


def seeds_of(seeds: Sequence[int]) -> str:
    """Return sorted seeds in words: `0 to 2`, or `0 and 3`."""
    consecutive = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else listed(map(str, seeds))


def _differing(runs: pd.DataFrame) -> dict[str, list[str]]:
    keys = sorted({key for config in runs.config for key in config if _root(key) not in OF_THE_ARM})
    known = [
        {name: as_text(v) for name, v in each.items() if v is not None} for each in runs.config
    ]
    values = {key: [*dict.fromkeys(each.get(key, "unset") for each in known)] for key in keys}
    return {key: own for key, own in values.items() if len(own) > 1}


def _metered(comparison: pd.DataFrame) -> Iterable[str]:
    for label, own in arms(counted(comparison)).items():
        costs = metered(own, "prepared_cost").fillna(0.0)
        if costs.any():
            yield (
                f"{label}: {costs.mean():.3g} of its passes were spent on preparing, "
                "before training."
            )
        shares = metered(own, "wrong_labels").dropna()
        if shares.median() > 0:
            yield (
                f"{label}: {shares.mean():.0%} of the labels looked wrong after the first epoch; "
                "selective-backprop audit lists them."
            )


def evaluation_note(comparison: pd.DataFrame) -> str:
    """Say how long testing took, if this was more than a third of the time; else nothing."""
    columns = ["folder", "run", "evaluations", "overhead", "seconds"]
    each = counted(comparison)[columns].dropna().groupby(["folder", "run"])
    first, last = each.first(), each.last()
    # Before the first evaluation, overhead also counts the setting up.
    spent = (last.overhead - first.overhead) * last.evaluations / (last.evaluations - 1)
    if 3 * spent.sum() <= (total := (spent + last.seconds).sum()):
        return ""
    share, count = spent.sum() / total, last.evaluations.sum()
    many = f"{count:,} evaluations; --evaluations sets how many a run has."
    return f"Testing took {share:.0%} of the wall time: {many}"


def _missing(comparison: pd.DataFrame) -> Iterable[str]:
    known = counted(comparison)
    for run in each_run(comparison.drop(known.index)):
        own = comparison.progress[(comparison.label == run.label) & (comparison.seed == run.seed)]
        why = f"is unfinished, at {own.fillna(0.0).iloc[-1]:.0%} of its length"
        if run.finished:
            why = "has no evaluation"
        yield f"{run.label}, seed {run.seed}, {why}; it is not counted."
    if BASELINE not in set(known.arm):
        yield f"There is no finished {BASELINE} run, so no gain is known."
    if len({frozenset(own.seed) for own in arms(known).values()}) > 1:
        yield "The strategies do not have the same seeds; gains use the seeds that both sides have."


def _root(key: str) -> str:
    return key.partition(".")[0]


def _spoken(key: str) -> str:
    return key.removeprefix("recipe.").replace("_", " ").replace(".", " ")


def _lengths(found: Sequence[Budget]) -> str:
    words = []
    for unit in dict.fromkeys(length.unit for length in found):
        same = [length for length in found if length.unit == unit]
        noun = max(same, key=lambda length: length.value != 1).noun
        words.append(f"{listed(f'{length.value:g}' for length in same)} {noun}")
    return listed(words)
