"""The page of a stage: what `auto` gained in each job, where it lost, and how the others did."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import pandas as pd

from reproductions.auto.protocol import ARMS, OURS, TEXT_ARMS
from reproductions.auto.results import VERDICTS, Results
from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.analysis.facts import listed, seeds_of
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.analysis.tables import Table, escaped, with_interval

Job = tuple[Results, float]
"""A workload at a length."""
HOW = (
    f"The *gain* is the final error less that of the best {BASELINE} training of any length up to "
    "the same cost, paired by seed, with its 95 % interval. A strategy *gains* where the interval "
    "lies below zero, *loses* where it lies above, and is *level* where it holds zero. Learning "
    "rates and the length of the best plain training were chosen on other seeds. Nothing is "
    "corrected for the number of comparisons: of 20 jobs without a difference, about one gains or "
    "loses by chance. Test classes are about as frequent as each other; where training classes are "
    "skewed, the gain with each class weighed by its share of the training data stands beside."
)
ORDER = tuple(dict.fromkeys((*ARMS[:-1], *TEXT_ARMS)))
"""All strategies of the study, as tables have them."""


def compose(results: Sequence[Results]) -> str:
    """Return all that is on record of a stage, in Markdown."""
    shown = [each for each in results if len(each.runs)]
    absent = [each.workload.title for each in results if not len(each.runs)]
    parts = [f"Not on record yet: {'; '.join(absent)}."] if absent else []
    if shown:
        tables = gains(shown), by_kind(shown), others(shown), counts(shown)
        parts += [HOW, *(table.to_markdown().rstrip() for table in tables), made_of(shown)]
    return "\n\n".join(parts) + "\n"


def jobs_of(results: Sequence[Results], arm: str = OURS) -> Iterator[Job]:
    """Yield the jobs at which there are runs of a strategy and of its rival."""
    for each in results:
        yield from ((each, length) for length in each.lengths if each.gain(arm, length).seeds)


def title_of(job: Job) -> str:
    """Return the workload and the length of a job."""
    return f"{job[0].workload.title} at {job[1]:g}"


def gains(results: Sequence[Results]) -> Table:
    """Return where plain training and `auto` end in each job, and the gain."""
    rows = []
    for each, length in jobs_of(results):
        rival = each.rival(length)
        assert rival is not None  # or the length would not be there
        skewed = each.workload.composition.skew
        as_they_come = each.gain_as_classes_come(length) if skewed else estimate([])
        rows.append(
            (
                title_of((each, length)),
                each.workload.unit,
                f"{with_interval(each.error(BASELINE, rival))} ({rival:g})",
                with_interval(each.error(OURS, length)),
                with_interval(each.gain(OURS, length), signed=True),
                each.verdict(OURS, length),
                with_interval(as_they_come, signed=True) if skewed else "",
            )
        )
    head = ("job, at a cost in passes", "unit", f"best {BASELINE}, after passes", OURS, "gain")
    head += ("verdict", "gain as classes come")
    return Table(head, rows, f"Final error of {BASELINE} training and of {OURS}")


def by_kind(results: Sequence[Results]) -> Table:
    """Return how often `auto` gains, is level and loses, by kind of data."""
    every = [*jobs_of(results)]
    kinds: dict[str, list[Job]] = {}
    for job in sorted(every, key=lambda job: job[0].workload.kind):
        kinds.setdefault(job[0].workload.kind, []).append(job)
    kinds |= {"all": every} if every else {}
    rows = [(kind, *_counted(jobs), _change(jobs)) for kind, jobs in kinds.items()]
    head = ("data", "jobs", "gains", "level", "loses", "change of the error: median, least to most")
    return Table(head, rows, f"What {OURS} gains by kind of data")


def others(results: Sequence[Results]) -> Table:
    """Return the gain of each strategy in each job; in bold where it is no tie."""
    arms = _arms(results)

    def cell(job: Job, arm: str) -> str:
        each, length = job
        said = with_interval(each.gain(arm, length), signed=True)
        return f"**{said}**" if each.verdict(arm, length) in {"gains", "loses"} else said

    jobs = [(each, length) for each in results for length in each.lengths]
    rows = [(title_of(job), *(cell(job, arm) for arm in arms)) for job in jobs]
    return Table(
        ("gain of", *arms), rows, "Gain of every strategy, in bold where it gains or loses"
    )


def counts(results: Sequence[Results]) -> Table:
    """Return in how many jobs each strategy gains, is level and loses."""
    rows = [(arm, *_counted([*jobs_of(results, arm)], arm)) for arm in _arms(results)]
    head = ("strategy", "jobs", "gains", "level", "loses")
    return Table(head, rows, "Jobs in which each strategy gains, is level and loses")


def made_of(results: Sequence[Results]) -> str:
    """Return which runs a page is made of, and where and how long they ran."""
    tuning, judged = pd.concat([r.tuning for r in results]), pd.concat([r.runs for r in results])
    runs = pd.concat([tuning, judged])
    missing = sum(each.missing for each in results)
    return escaped(
        f"{len(judged):,} runs of seeds {seeds_of(sorted({*judged.seed}))}, and {len(tuning):,} "
        f"that found learning rates; {missing} are missing or diverged. They took "
        f"{runs.cpu_seconds.sum() / 3600:.1f} CPU hours on {listed(dict.fromkeys(runs.machine))}; "
        f"code {listed(dict.fromkeys(runs.code))}."
    )


def _arms(results: Sequence[Results]) -> list[str]:
    there = {arm for each in results for arm in each.runs.arm}
    return [arm for arm in ORDER if arm in there and arm != BASELINE]


def _counted(jobs: Sequence[Job], arm: str = OURS) -> tuple[str, ...]:
    found = Counter(each.verdict(arm, length) for each, length in jobs)
    return str(len(jobs)), *(str(found[verdict]) for verdict in VERDICTS.values())


def _change(jobs: Sequence[Job]) -> str:
    means = [each.change(length).mean for each, length in jobs]
    middle, least, most = (
        f"{mean:+.1f}".replace("-", "−") for mean in (median(means), min(means), max(means))
    )
    return f"{middle} %, {least} to {most} %"
