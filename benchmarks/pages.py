"""The tables of benchmarks' records that pages show, by kind: `TABLES`.

Each function, named after its cases, takes the rows of a record, and returns the table's heading
and its lines.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.case import ROOT
from benchmarks.cases.small import WORKLOADS
from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.analysis.tables import with_interval

CLOCK = "process CPU time, one thread, interleaved rounds"
RULES = ("audit", "audit of losses", "final loss", "loss of the final model")
SHOWN = (0.01, 0.1, 0.2)  # shares of a list
GROUPS = {"rarest": "rarest three", "others": "others"}
SMALL = ("random", "selective", "recorded", "auto")
EPOCHS = ("random-backprop", "recorded-sb", "selective-backprop", "pipelined-sb")
MADE_WRONG = (0.0, 0.05, 0.1, 0.2)
# Numbers of sampled rollouts: the head of the column, and a factor.
CPU = {"cpu_seconds": ("CPU s, or more", 1.0)}
SAMPLED = {"tokens": ("thousands of tokens, or more", 1e-3), **CPU}
REPLAYED = {"right": ("% right, or more", 100.0), **CPU}
REPLAYED["right soon"] = ("% right at equal CPU s, or more", 100.0)
Row = dict[str, Any]
Rows = list[Row]
Found = tuple[str, list[str]]


def table(heads: str, rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table. `heads` has ` | ` between the heads of its columns.

    The columns whose numbers are in `left` are flush left.
    """
    names = heads.split(" | ")
    sides = [":--" if place in left else "--:" for place in range(len(names))]
    return [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (names, sides, *rows)]


def where(rows: Rows, **wanted: Any) -> Rows:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def each_of(rows: Rows, name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def grouped(rows: Rows, *names: str) -> list[Rows]:
    """Return the rows in groups that have equal values in some columns."""
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def mean(rows: Rows, key: str, how: str = ",.0f", scale: float = 1.0) -> str:
    return format(scale * fmean(row[key] for row in rows), how)


def spread(row: Row, digits: int, scale: float = 1.0) -> str:
    median, low, high = (f"{scale * row[key]:.{digits}f}" for key in ("median", "low", "high"))
    return median if low == high else f"{median} ({low} to {high})"


def with_seeds(what: str, rows: Rows) -> str:
    seeds = ", ".join(map(str, sorted(each_of(rows, "seed"))))
    return f"{what.format(**rows[0])} · seeds {seeds}"


def gates(rows: Rows) -> Found:
    def cells(row: Row) -> Sequence[str]:
        digits = 5 if row["limit"] < 0.01 else 4
        which = f" ({row['quantity']})" if len(where(rows, claim=row["claim"])) > 1 else ""
        limit = f"{row['limit']:.{digits}f}"
        return row["claim"] + which, limit, spread(row, digits), row["verdict"]

    heads = "gate | at most | ratio (95 % interval) | verdict"
    what = f"{rows[0]['net']} · batch {rows[0]['batch_size']} · {CLOCK}"
    return what, table(heads, map(cells, rows), left=(0, 3))


def small(rows: Rows) -> Found:
    def cells(name: str) -> Sequence[str]:
        own = [row for row in where(rows, workload=name) if row.get("version", "after") == "after"]
        added = (where(own, strategy=each, quantity="added")[0] for each in SMALL)
        (ratio,) = where(own, strategy="auto", quantity="example, in bare's")
        bare = mean(where(own, quantity="bare batch")[:1], "median", ".0f")
        return name, bare, *(spread(row, 0) for row in added), spread(ratio, 2)

    added = " | ".join(f"added by {strategy}" for strategy in SMALL)
    heads = f" | bare batch, µs | {added} | CPU time per example with auto, bare loader = 1"
    return CLOCK, table(heads, (cells(each.name) for each in WORKLOADS))


def epochs(rows: Rows) -> Found:
    def cells(own: Rows) -> Sequence[str]:
        of = {row["quantity"].partition(": ")[2]: row for row in own}
        name = "{model}, {precision}".format(**own[0])
        cheap = of["forward" if own[0]["precision"] == "bf16" else "bf16"]
        bound = f"{of['selective-backprop']['over_limit']:.2f}"
        return name, *(spread(row, 2) for row in (cheap, *(of[name] for name in EPOCHS))), bound

    heads = " | ".join(["net", "scoring in bf16, of a pass in fp32", *EPOCHS, "of its bound"])
    what = "rate 1/3, batches of {batch_size} of {data} images, an epoch of plain training = 1"
    lines = table(heads, map(cells, grouped(rows, "model", "precision")))
    return f"{what.format(**rows[0])} · wall clock, interleaved rounds", lines


def rollouts(rows: Rows) -> Found:
    """Show what each way of sampling takes, or how much more than the first way, by task."""
    rows = sorted((row for row in rows if row["seed"]), key=lambda row: row["seed"])
    tasks, arms, shown = each_of(rows, "task"), each_of(rows, "arm"), SAMPLED
    if rows[0]["case"] == "trl.replayed":
        shown = REPLAYED
        for row in rows:
            (other,) = where(rows, arm="non-zero", task=row["task"], seed=row["seed"])
            *_, soon = (each[1] for each in row["curve"] if each[3] < other["cpu_seconds"])
            row |= {"right": row["curve"][-1][1], "right soon": soon}

    def cells(arm: str) -> Iterable[str]:
        yield arm
        for task in tasks:
            plain, runs = (where(rows, task=task, arm=each) for each in (arms[0], arm))
            yield mean(runs, "rows")
            for key, (_, scale) in shown.items():
                more = [scale * (a[key] - b[key]) for a, b in zip(runs, plain, strict=True)]
                more = with_interval(estimate(more), signed=True)
                yield mean(runs, key, ".1f", scale) if arm == arms[0] else more

    what = "rows trained on", *(head for head, _ in shown.values())
    heads = " | ".join(["sampling", *(f"{task}: {each}" for task in tasks for each in what)])
    solved = f"solved in {sum(run['solved'] for run in rows)} of {len(rows)} runs"
    return f"three digits, {solved} · 95 % intervals", table(heads, map(list, map(cells, arms)))


def choice(rows: Rows) -> Found:
    def cells(own: Rows) -> Sequence[str]:
        kept = (f"{row['median']:.2%} ± {row['error']:.2%}" for row in (own[0], own[4], own[9]))
        apart = (
            f"{max(abs(row['median'] - row['odds'][name]) for row in own):.2%}"
            for name in ("authors", "paper")
        )
        return f"{own[0]['beta']:g}", *kept, *apart

    heads = (
        "β | kept of the lowest tenth of the losses | of the fifth tenth | of the highest tenth | "
        "largest difference from the authors' code | from the paper"
    )
    what = (
        "{candidates:,} losses of {net} on {examples:,} examples of {data}, batch {batch_size}, "
        "the last {history:,} losses remembered, {coin_seeds} seeds"
    )
    return what.format(**rows[0]), table(heads, map(cells, grouped(rows, "beta")))


def traits(rows: Rows) -> Found:
    def wrong(own: Rows, made: float) -> str:
        settings = ({"noise": made}, {"noise": made, "noise_kind": "neighbour"}) if made else ({},)
        row = next((each for wanted in settings for each in where(own, settings=wanted)), None)
        if row is None:
            return ""
        found = row["found"]
        if found["wrong_labels"] is None:
            return f"at most {found['wrong_labels_at_most']:.1%}"
        return f"{found['wrong_labels']:.1%} ± {2 * found['wrong_labels_error']:.1%}"

    lines = (
        [own[0]["data"], *(wrong(own, made) for made in MADE_WRONG)]
        for own in grouped(rows, "data")
    )
    known = [row for row in rows if row["found"]["wrong_labels"] is not None]
    errors = [100 * abs(row["found"]["wrong_labels"] - row["wrong"]) for row in known]
    heads = "data | " + " | ".join(f"labels: {made:.0%} wrong" for made in MADE_WRONG)
    spent = [row["cpu_seconds"] for row in rows]
    last = (
        f"In {len(known)} of {len(rows)} cases the share of wrong labels was estimated, with a "
        f"mean error of {fmean(errors):.1f} points and a largest of {max(errors):.1f}."
    )
    what = f"one thread · {min(spent):.1f} to {max(spent):.1f} CPU seconds each"
    return what, [*table(heads, lines), "", last]


def copies(rows: Rows) -> Found:
    def cells(own: Rows) -> Sequence[str]:
        published, *made = own
        found = f"{published['found']:,} of {published['examples']:,}"
        shares = [
            f"{share:.1%}"
            for row in made
            for share in (row["recalled"] / row["made"], row["of_one"] / max(1, row["found"]))
        ]
        shares += ["–"] * (4 - len(shares))
        return published["data"], found, f"{published['median']:.1f}", *shares

    heads = "data | as published: copies | CPU s"
    for kind in ("exact", "near"):
        heads += f" | {kind} copies: found of those made | right of those found"
    size = max(row["examples"] for row in rows if "made" in row)
    what = f"one thread · copies made in {size:,} examples"
    return what, table(heads, map(cells, grouped(rows, "data")))


def audit(rows: Rows) -> Found:
    def found(run: Row, rule: str, share: float) -> float:
        inspected = round(share * run["examples"])
        return 100 * run["found"][rule][run["shares"].index(share)] / inspected

    def cells(own: Rows) -> Sequence[str]:
        heads = (
            " · ".join(f"{fmean(found(run, rule, share) for run in own):.0f}" for share in SHOWN)
            for rule in RULES
        )
        more = [found(run, "audit", 0.2) - found(run, "final loss", 0.2) for run in own]
        tops = [(run["above_zero"], run["examples"]) for run in own]
        above = fmean(100 * top["examples"] / count for top, count in tops)
        wrong = fmean(100 * top["wrong"] / top["examples"] for top, _ in tops)
        last = with_interval(estimate(more), signed=True), f"{above:.0f}: {wrong:.0f}"
        return own[0]["data"], own[0]["arm"], *heads, *last

    heads = (
        f"data | trained with | {' | '.join(RULES)} | audit less final loss, first 20 % | "
        "suspicion above 0: how many, wrong"
    )
    shown = " · ".join(f"{share:.0%}" for share in SHOWN)
    what = "{net}, {noise:.0%} of the labels flipped".format(**rows[0])
    lines = table(heads, map(cells, grouped(rows, "data", "arm")), (0, 1))
    return f"{what} · % of the first {shown} of a list that is wrong", lines


def issues(rows: Rows) -> Found:
    def cells(own: Rows) -> Sequence[str]:
        def share(counts: str, name: str, of: Callable[[Row], int]) -> str:
            return f"{100 * fmean(run[counts][name] / of(run) for run in own):.1f}"

        def both(counts: str, name: str, inspected: Callable[[Row], int]) -> str:
            recall = share(counts, name, lambda run: run["wrong"])
            return f"{share(counts, name, inspected)} ({recall})"

        numbers = [
            share("numbers", name, lambda run: run["examples"]) for name in ("cleanlab", "ours")
        ]
        found = [both("found", name, lambda run: run["inspected"]) for name in ("ours", "cleanlab")]
        last = both("own", "ours", lambda run: run["numbers"]["ours"])
        return own[0]["data"], own[0]["judged_by"], numbers[0], *found, numbers[1], last

    heads = (
        "data | judged by a model of | suspects, cleanlab's number | "
        "find_label_issues | cleanlab | suspects, our number | find_label_issues"
    )
    kinds = ", ".join(each_of(rows, "kind"))
    what = with_seeds("{net}, {noise:.0%} of the labels wrong" + f", mean over {kinds}", rows)
    return what, table(heads, map(cells, grouped(rows, "data", "judged_by")), (0, 1))


def noise(rows: Rows) -> Found:
    def cell(runs: Rows) -> str:
        if None in each_of(runs, "half_width"):
            return "–"
        return f"{mean(runs, 'median', '.1f', 100)} ± {mean(runs, 'half_width', '.1f', 100)}"

    def cells(own: Rows) -> Sequence[str]:
        name = "{data}, {net}".format(**own[0]), f"{own[0]['smoothing']:g}"
        return *name, *(cell(where(own, made=made)) for made in each_of(rows, "made"))

    what = with_seeds("{places:,} examples, half a pass, % of labels that look wrong", rows)
    heads = " | ".join(["data | smoothing", *each_of(rows, "made")])
    return what, table(heads, map(cells, grouped(rows, "data", "net", "smoothing")))


def files_of(path: str) -> list[str]:
    """Return the files that a path names: `a{b,c}d` stands for `abd` and `acd`."""
    before, _, rest = path.partition("{")
    middle, _, after = rest.partition("}")
    return [f"{before}{each}{after}" for each in middle.split(",")]


def written(kind: Callable[[Rows], Found], path: str) -> str:
    """Return the table of one or several records, with the hardware, commit and commands."""
    records = [json.loads((ROOT / file).read_text(encoding="utf-8")) for file in files_of(path)]
    what, lines = kind([row for record in records for row in record["rows"]])
    versions = records[0]["versions"]
    codes = dict.fromkeys(record["code_version"] for record in records)
    ran_on = [record["hardware"] for record in records]
    machines = dict.fromkeys(
        each.get("gpu") or "{cpu}, {cores} cores".format(**each) for each in ran_on
    )
    ran = f"{' and '.join(machines)} · torch {versions['torch']} · code {', '.join(codes)}"
    heading = f"**{what} · {ran}**"
    return "\n".join([heading, "", *lines, "", made_by(record["command"] for record in records)])


def made_by(commands: Iterable[str]) -> str:
    """Name the commands that made a table. Of similar commands, name only the options that differ.

    A program that no longer exists was run "at that commit", which the table names.
    """
    said, last, when = list[str](), [""], ""
    for command in commands:
        own = command.strip().split(" --")
        names, known = ({part.split()[0] for part in parts[1:]} for parts in (own, last))
        if own[0] == last[0] and known <= names:
            changed = " ".join(f"--{part}" for part in own[1:] if part not in last)
            said.append(f"again with `{changed}`")
        else:
            said.append(f"`{command.strip()}`")
            last = own
            program = own[0].split()[0]
            if "/" in program and not (ROOT / program).exists():
                when = " at that commit"
    return f"Made{when} by {'; '.join(said)}\n"


KINDS: tuple[Callable[[Rows], Found], ...] = (
    *(gates, small, rollouts, choice, epochs, traits, audit, issues),
    *(copies, noise),
)
TABLES = {kind.__name__: partial(written, kind) for kind in KINDS}
