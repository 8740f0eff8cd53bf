"""The page of a stage: what `auto` gained in each job, where it lost, and what else there is."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

import pandas as pd

from reproductions.auto.protocol import (
    ADDED,
    ARMS,
    INSTEAD,
    NETS,
    NOBODY,
    NULL,
    OURS,
    TEXT_ARMS,
)
from reproductions.auto.results import Judged, Results, judged
from selective_backprop_lab.analysis.estimates import VERDICTS, estimate, holm
from selective_backprop_lab.analysis.facts import listed, seeds_of
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.analysis.tables import Table, escaped, with_interval
from selective_backprop_lab.strategies import TREATMENTS

HOW = (
    f"The *gain* is the final error less that of the best {BASELINE} training of any length up to "
    "the same cost, paired by seed, with its 95 % interval. The jobs of a strategy are judged "
    "together, with Holm's correction, so that in 19 of 20 tables without any difference nothing "
    "*gains* or *loses*: all is *level*. Learning rates and the length of the best plain training "
    "were chosen on other seeds. Test classes are about as "
    "frequent as each other; where training classes are skewed, the gain with each class weighed "
    "by its share of the training data stands beside."
)
BOUNDS = (
    f"*{NULL}* is {BASELINE} training with other seeds, at its own best length up to the cost and "
    "judged as the others are: what chance does. The *oracle* trains on the right labels alone, "
    "and on what is there several times once, for as many updates. The *share* is what a strategy "
    "gains of what the oracle gains; jobs in which that gains nothing are left out. *Passes* "
    f"is how many times as long {BASELINE} training takes to the same error, said where a strategy "
    "gains."
)
CHANGE = "change in points: median, from, to"
POINTS = "%"  # the unit of an error
ORDER = tuple(dict.fromkeys((*ARMS[:-1], *TEXT_ARMS[:-1], *INSTEAD, *NETS)))
"""All strategies of the study, as tables have them."""


def compose(results: Sequence[Results]) -> str:
    """Return all that is on record of a stage, in Markdown."""
    shown = [each for each in results if len(each.runs)]
    absent = [each.workload.title for each in results if not len(each.runs)]
    parts = [f"Not on record yet: {'; '.join(absent)}."] if absent else []
    if shown:
        arms = _arms(shown)
        tables = [gains(shown)]
        for part in (False, True):
            chosen = [arm for arm in arms if _adds(arm) is part]
            tables += [others(shown, chosen)] if chosen else []
        tables += [shares(shown)] if NOBODY in arms else []
        tables += [counts(shown)] + ([added(shown)] if any("+" in arm for arm in arms) else [])
        text = [HOW, *([BOUNDS] if NULL in arms else [])]
        parts += [*text, *(table.to_markdown().rstrip() for table in tables), made_of(shown)]
    return "\n\n".join(parts) + "\n"


def gains(results: Sequence[Results]) -> Table:
    """Return where plain training and `auto` end in each job, and the gain."""
    rows = []
    for job in judged(results):
        each, length = job.results, job.length
        rival = each.rival(length)
        assert rival is not None  # or the length would not be there
        skewed = each.workload.composition.skew
        as_they_come = each.gain_as_classes_come(length) if skewed else estimate([])
        rows.append(
            (
                job.title,
                each.workload.unit,
                f"{with_interval(each.error(BASELINE, rival))} ({rival:g})",
                with_interval(each.error(OURS, length)),
                with_interval(job.gain, signed=True),
                job.verdict,
                with_interval(as_they_come, signed=True) if skewed else "",
                passes_in_words(job),
            )
        )
    head = ("job, at a cost in passes", "unit", f"best {BASELINE}, after passes", OURS, "gain")
    head += ("verdict", "gain as classes come", "passes")
    return Table(head, rows, f"Final error of {BASELINE} training and of {OURS}")


def passes_in_words(job: Judged, arm: str = OURS) -> str:
    """Return how many times as long plain training takes to the same error, of a job that gains."""
    if job.verdict != "gains":
        return ""
    found = job.results.passes(arm, job.length)
    longest = job.results.workload.lengths[-1]
    return f"not within {longest:g}" if found is None else f"{found:.1f}"


def by_kind(results: Sequence[Results]) -> Table:
    """Return how often `auto` gains, is level and loses, by kind of data."""
    every = judged(results)
    kinds: dict[str, list[Judged]] = {}
    for job in sorted(every, key=lambda job: job.results.workload.kind):
        kinds.setdefault(job.results.workload.kind, []).append(job)
    if every:
        kinds["all"] = every
        new = [job for job in every if job.results.workload.is_new]
        if 0 < len(new) < len(every):
            kinds["of these, data on which no rule was tried"] = new
    rows = [(kind, *_counted(jobs), _change(jobs)) for kind, jobs in kinds.items()]
    if chance := judged(results, NULL):
        name = f"all, {BASELINE} with other seeds: what chance does"
        rows.append((name, *_counted(chance), _change(chance)))
    head = ("data", "jobs", "gains", "level", "loses", CHANGE)
    return Table(head, rows, f"What {OURS} gains by kind of data")


def others(results: Sequence[Results], arms: Sequence[str]) -> Table:
    """Return the gain of some strategies in each job; in bold where it is no tie."""
    found = {arm: {job.title: job for job in judged(results, arm)} for arm in arms}
    with_ours = all(map(_adds, arms))
    title = f"Gain of {OURS} with each treatment" if with_ours else "Gain of every strategy"
    titles = [f"{each.workload.title} at {at:g}" for each in results for at in each.lengths]
    rows = [(title, *(_in_bold(found[arm].get(title)) for arm in arms)) for title in titles]
    return Table(("gain of", *arms), rows, f"{title}, in bold where it gains or loses")


def shares(results: Sequence[Results]) -> Table:
    """Return what each strategy gains of the oracle's gain, in each job where the oracle gains."""
    oracle = {job.title: job for job in judged(results, NOBODY) if job.verdict == "gains"}
    arms = [arm for arm in _arms(results) if arm != NOBODY]
    found = {arm: {job.title: job for job in judged(results, arm)} for arm in arms}
    rows = [
        (
            title,
            with_interval(most.gain, signed=True),
            *(
                f"{_whole(100.0 * own[title].gain.mean / most.gain.mean)} %"
                if title in own
                else "–"
                for own in found.values()
            ),
        )
        for title, most in oracle.items()
    ]
    return Table(("share of", "the oracle's gain", *arms), rows, "Share of what the oracle gains")


def counts(results: Sequence[Results]) -> Table:
    """Return in how many jobs each strategy gains, is level and loses."""
    rows = []
    for arm in _arms(results):
        jobs = judged(results, arm)
        rows.append((arm, *_counted(jobs), _change(jobs)))
    head = ("strategy", "jobs", "gains", "level", "loses", CHANGE)
    return Table(head, rows, "Jobs in which each strategy gains, is level and loses")


def added(results: Sequence[Results]) -> Table:
    """Return in how many jobs `auto` ends lower with a rival than that rival alone."""
    rows = []
    for treatment in TREATMENTS:
        pair = f"{OURS}+{treatment}", f"{BASELINE}+{treatment}"
        jobs = [(each, length) for each in results for length in each.lengths]
        found = [each.added(*pair, length) for each, length in jobs]
        found = [each for each in found if each.seeds]
        if found:
            sides = Counter(VERDICTS.get(side, "–") for side in holm(found))
            rows.append((treatment, str(len(found)), *(str(sides[v]) for v in VERDICTS.values())))
    head = ("treatment", "jobs", "lower", "level", "higher")
    return Table(head, rows, f"{OURS} with a treatment, against the treatment alone at equal cost")


def adds_up(results: Sequence[Results]) -> Table:
    """Return what strategies, treatments and their combinations gain, where `ADDED` is tried.

    Each is judged over all its jobs, as in the other tables.
    """
    chosen = [each for each in results if each.workload.adds]
    titles = [f"{each.workload.title} at {at:g}" for each in chosen for at in each.lengths]
    rows = []
    for arm in dict.fromkeys((*INSTEAD, *ADDED)):
        jobs = {job.title: job for job in judged(results, arm)}
        cells = [_in_bold(jobs.get(title)) for title in titles]
        if arm not in (BASELINE, "random-backprop") and {*cells} != {"–"}:
            rows.append((arm, *cells))
    return Table(("gain of", *titles), rows, "What adds up, in bold where it gains or loses")


def made_of(results: Sequence[Results]) -> str:
    """Return which runs a page is made of, and where and how long they ran."""
    tuning, ran = pd.concat([r.tuning for r in results]), pd.concat([r.runs for r in results])
    runs = pd.concat([tuning, ran])
    missing = sum(each.missing for each in results)
    return escaped(
        f"{len(ran):,} runs of seeds {seeds_of(sorted({*ran.seed}))}, and {len(tuning):,} "
        f"that found learning rates; {missing} are missing or diverged. They took "
        f"{runs.cpu_seconds.sum() / 3600:.1f} CPU hours on {listed(dict.fromkeys(runs.machine))}; "
        f"code {listed(dict.fromkeys(runs.code))}."
    )


def _in_bold(job: Judged | None) -> str:
    """Return a job's gain, in bold where it is no tie."""
    if job is None:
        return "–"
    said = with_interval(job.gain, signed=True)
    return f"**{said}**" if job.verdict in {"gains", "loses"} else said


def _adds(arm: str) -> bool:
    """Return whether an arm is `auto` with a treatment."""
    return arm.startswith(OURS) and "+" in arm


def _arms(results: Sequence[Results]) -> list[str]:
    there = {arm for each in results for arm in each.runs.arm}
    return [arm for arm in ORDER if arm in there and arm != BASELINE]


def _counted(jobs: Sequence[Judged]) -> tuple[str, ...]:
    found = Counter(job.verdict for job in jobs)
    return str(len(jobs)), *(str(found[verdict]) for verdict in VERDICTS.values())


def _change(jobs: Sequence[Judged]) -> str:
    """Return by how many points of error jobs change, of those that are judged by errors."""
    means = [job.gain.mean for job in jobs if job.results.workload.unit == POINTS]
    if not means:
        return "–"
    return ", ".join(
        f"{mean:+.2f}".replace("-", "−") for mean in (median(means), min(means), max(means))
    )


def _whole(number: float) -> str:
    return f"{number:.0f}".replace("-", "−")
