"""The tables that pages show of the records of benchmarks, by kind.

Each is made of a record's rows, and returns what its heading says and its lines.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.analysis.tables import with_interval

ROOT = Path(__file__).parents[1]
CLOCK = "process CPU time, one thread, interleaved rounds"
SHORT = "plain, shortened"
# The examples' own learning rates.
RATES = {"a fifth of the labels random": 0.003, "all labels right": 0.03}
# Of the rules that are measured, those that a reader compares.
RULES = ("audit", "audit of losses", "final loss", "loss of the final model")
SHOWN = (0.01, 0.1, 0.2)
GROUPS = {"rarest": "rarest three", "others": "others"}
SMALL = ("random", "selective", "recorded", "auto")  # strategies, of those that are measured
STEPS = (  # workloads, of those that are measured
    "linear, 20 features, batches of 32",
    "perceptron, 784 features, batches of 32",
    "perceptron, 784 features, batches of 128",
    "97 modules, 20 features, batches of 32",
    "linear, 20 features, batches of 32, read one by one",
    "perceptron, 784 features, batches of 128, read one by one",
    "digits of the demo",
)
EPOCHS = ("random-backprop", "recorded-sb", "selective-backprop", "pipelined-sb")
MADE_WRONG = (0.0, 0.05, 0.1, 0.2)
Row = dict[str, Any]
Rows = list[Row]
Told = tuple[str, list[str]]


def grid(heads: str, rows: Iterable[str], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table, given its heads and rows with ` | ` between the cells.

    The columns whose numbers are in `left` hold words.
    """
    columns = range(len(heads.split(" | ")))
    sides = " | ".join(":--" if place in left else "--:" for place in columns)
    return [f"| {line} |".replace("|  |", "| |") for line in (heads, sides, *rows)]


def where(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows with some values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def each_of(rows: Rows, name: str) -> list[Any]:
    """Return the different values of a column, in their order."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def spread(row: Row, digits: int, times: float = 1.0) -> str:
    """Return a median with its interval."""
    median, low, high = (f"{times * row[key]:.{digits}f}" for key in ("median", "low", "high"))
    return median if low == high else f"{median} ({low} to {high})"


def with_seeds(what: str, rows: Rows) -> str:
    """Return what a heading says of the first row, and the seeds of all."""
    seeds = ", ".join(map(str, sorted(each_of(rows, "seed"))))
    return f"{what.format(**rows[0])} · seeds {seeds}"


def gates(rows: Rows) -> Told:
    """Return what selection costs, beside its limits."""

    def line(row: Row) -> str:
        digits = 5 if row["limit"] < 0.01 else 4
        limit, ratio = f"{row['limit']:.{digits}f}", spread(row, digits)
        which = f" ({row['quantity']})" if len(where(rows, claim=row["claim"])) > 1 else ""
        return f"{row['claim']}{which} | {limit} | {ratio} | {row['verdict']}"

    heads = "gate | at most | ratio (95 % interval) | verdict"
    what = f"{rows[0]['net']} · batch {rows[0]['batch_size']} · {CLOCK}"
    return what, grid(heads, map(line, rows), left=(0, 3))


def small(rows: Rows) -> Told:
    """Return what strategies add where steps are small."""
    lines = []
    for name in STEPS:
        now = [row for row in where(rows, workload=name) if row.get("version", "after") == "after"]
        cells = [name, f"{where(now, quantity='bare batch')[0]['median']:.0f}"]
        cells += [
            spread(where(now, strategy=strategy, quantity="added")[0], 0) for strategy in SMALL
        ]
        (ratio,) = where(now, strategy="auto", quantity="example, in bare's")
        lines.append(" | ".join([*cells, spread(ratio, 2)]))
    added = " | ".join(f"added by {strategy}" for strategy in SMALL)
    heads = f"| bare batch, µs | {added} | CPU time per example with auto, bare loader = 1"
    return CLOCK, grid(f" {heads}", lines)


def epochs(rows: Rows) -> Told:
    """Return what scoring and epochs cost, a row for each net and precision."""
    lines = []
    for row in where(rows, quantity="an epoch: traditional"):
        own = where(rows, model=row["model"], precision=row["precision"])
        of = {each["quantity"].partition(": ")[2]: each for each in own}
        cheap = of["forward"] if row["precision"] == "bf16" else of["bf16"]
        cells = [spread(of[name], 2) for name in EPOCHS]
        bound = f"{of['selective-backprop']['over_limit']:.2f}"
        lines.append(
            " | ".join([f"{row['model']}, {row['precision']}", spread(cheap, 2), *cells, bound])
        )
    heads = " | ".join(["net", "scoring in bf16, of a pass in fp32", *EPOCHS, "of its bound"])
    what = "rate 1/3, batches of {batch_size} of {data} images, an epoch of plain training = 1"
    return f"{what.format(**rows[0])} · wall clock, interleaved rounds", grid(heads, lines)


def ratios(rows: Rows) -> Told:
    """Return what arms take of the first one, a column for each thing that is measured."""
    columns: dict[str, dict[str, str]] = {}
    for row in rows:
        name, _, measure = row["quantity"].rpartition(", ")
        arm, _, first = name.partition(" / ")
        cell = spread(row, 2) if first else f"{row['median']:,.1f} {row['unit']}"
        columns.setdefault(measure, {})[arm] = cell
    arms = dict.fromkeys(arm for column in columns.values() for arm in column)
    lines = [
        " | ".join([arm, *(column.get(arm, "") for column in columns.values())]) for arm in arms
    ]
    return "wall clock, interleaved rounds", grid(" | ".join(["", *columns]), lines)


def examples(rows: Rows) -> Told:
    """Return what the examples show, at their own rate and at each one's best."""
    seeds, rates = (sorted(each_of(rows, key)) for key in ("seed", "lr"))
    lines = []
    for data in each_of(rows, "data"):
        ends: dict[str, list[float]] = {}
        for arm in each_of(where(rows, data=data), "arm"):
            own = where(rows, data=data, arm=arm)
            errors = {lr: [100 * row["error"] for row in where(own, lr=lr)] for lr in rates}
            best = min(rates, key=lambda lr: fmean(errors[lr]))
            ends[arm] = errors[best]
            usual = where(own, lr=RATES[data])
            passes, seconds = (
                fmean(row[key] for row in usual) for key in ("passes", "cpu_seconds")
            )
            ours, its_best = (with_interval(estimate(errors[lr])) for lr in (RATES[data], best))
            cells = f"{data} | {arm} | {own[0]['epochs']} | {passes:.1f} | {seconds:.1f} | "
            lines.append(f"{cells}{ours} | {its_best} ({best})")
        apart = [one - other for one, other in zip(ends["selective"], ends[SHORT], strict=True)]
        gain = with_interval(estimate(apart), signed=True)
        lines.append(f" | selective, against {SHORT} | | | | | {gain}")
    heads = "labels | training | epochs | passes | CPU s | test error % | at its best rate"
    what = f"mean over {len(seeds)} seeds, learning rates {', '.join(map(str, rates))}"
    return f"examples/, {what}", grid(heads, lines, (0, 1))


def rollouts(rows: Rows) -> Told:
    """Return what ways to sample took in TRL's trainer until a task was solved."""

    def more(key: str, unit: float, runs: Rows, plain: Rows) -> str:
        pairs = zip(runs, plain, strict=True)
        return with_interval(estimate([(a[key] - b[key]) / unit for a, b in pairs]), signed=True)

    lines = []
    first = rows[0]["arm"]
    rows = sorted(rows, key=lambda row: row["seed"])
    for task in each_of(rows, "task"):
        plain = where(rows, task=task, arm=first)
        for arm in each_of(rows, "arm"):
            runs = where(rows, task=task, arm=arm)
            tokens, passes, trained, seconds = (
                fmean(run[key] for run in runs)
                for key in ("tokens", "passes", "rows", "cpu_seconds")
            )
            lines.append(
                f"{task} | {arm} | {runs[0]['lr']:g} | "
                f"{sum(run['solved'] for run in runs)} of {len(runs)} | {tokens / 1e3:.1f} | "
                f"{more('tokens', 1e3, runs, plain)} | {passes:,.0f} | {trained:,.0f} | "
                f"{seconds:.1f} | {more('cpu_seconds', 1, runs, plain)}"
            )
    heads = (
        "task | sampling | learning rate | solved | thousands of tokens generated | more than the "
        "first | rows for old log-probabilities | rows trained on | CPU seconds | more than the "
        "first"
    )
    return "three digits, until a mean reward of 0.95 · 95 % intervals", grid(heads, lines)


def grpo(rows: Rows) -> Told:
    """Return what TRL's trainer took with and without answers that have no gradient."""
    lines, alike = [], []
    seeds = each_of(rows, "seed")
    for size in each_of(rows, "size"):
        arms = [where(rows, size=size, trainer=name) for name in each_of(rows, "trainer")]
        for one, other in zip(*arms, strict=True):
            pairs = [*zip(one["rewards"], other["rewards"], strict=True)]
            same = [first == second for first, second in pairs]
            alike.append(same.index(False) if False in same else len(same))
        for arm in arms:
            numbers = {
                key: fmean(row[key] for row in arm)
                for key in ("passes", "rows", "cpu_seconds", "generating")
            }
            ends = sorted(fmean(row["rewards"][-10:]) for row in arm)
            lines.append(
                "{size} | {trainer} | ".format(**arm[0])
                + "{passes:,.0f} | {rows:,.0f} | {cpu_seconds:.1f} | {generating:.1f}".format(
                    **numbers
                )
                + f" | {ends[0]:.2f} to {ends[-1]:.2f}"
            )
    heads = (
        "rows of a micro-batch | trainer | rows for old log-probabilities | rows trained on | "
        "CPU seconds | of which generating | reward at the end"
    )
    what = (
        f"three digits reversed, updates of 128 answers, {len(seeds)} seeds, the first "
        f"{2 * min(alike)} updates or more with the same rewards"
    )
    return what, grid(heads, lines, (1,))


def choice(rows: Rows) -> Told:
    """Return how often the loader keeps the losses of a stream, and how far it is from others."""
    lines = []
    for beta in each_of(rows, "beta"):
        own = where(rows, beta=beta)
        kept = (f"{row['median']:.2%} ± {row['error']:.2%}" for row in (own[0], own[4], own[9]))
        apart = (
            f"{max(abs(row['median'] - row['odds'][name]) for row in own):.2%}"
            for name in ("authors", "paper")
        )
        lines.append(" | ".join([f"{beta:g}", *kept, *apart]))
    heads = (
        "β | kept of the lowest tenth of the losses | of the fifth tenth | of the highest tenth | "
        "largest difference from the authors' code | from the paper"
    )
    what = (
        "{candidates:,} losses of {net} on {examples:,} examples of {data}, batch {batch_size}, "
        "the last {history:,} losses remembered, {coin_seeds} seeds"
    )
    return what.format(**rows[0]), grid(heads, lines)


def exchange(rows: Rows) -> Told:
    """Return what messages of several ranks take, and how long ranks wait between steps."""
    waits = [row for row in rows if "awaited" in row]
    lines = []
    for size in each_of(rows, "ranks"):
        message = where(rows, ranks=size, quantity="exchange")[1]
        own = where(waits, ranks=size)
        lines.append(" | ".join([f"{size}", *(spread(row, 1, 1e3) for row in (message, *own))]))
    what = "gloo, one machine · windows of {window} · steps that sleep {step:.1f} s · wall clock"
    heads = "ranks | a message, ms | between steps, ms: alone | with others | overlap=True"
    return what.format(**waits[0]), grid(heads, lines)


def traits(rows: Rows) -> Told:
    """Return what `data_traits` found beside what data were made up of, a row for each data set."""

    def wrong(data: str, made: float) -> str:
        """Return what was found where a share of the labels is wrong, and nothing else is made."""
        for kind in (None, "neighbour"):
            settings = {"noise": made, "noise_kind": kind} if made else {}
            settings = {key: value for key, value in settings.items() if value is not None}
            for row in where(rows, data=data, settings=settings):
                found = row["found"]
                if found["wrong_labels"] is None:
                    return f"at most {found['wrong_labels_at_most']:.1%}"
                return f"{found['wrong_labels']:.1%} ± {2 * found['wrong_labels_error']:.1%}"
        return ""

    lines = []
    for data in each_of(rows, "data"):
        cells = (wrong(data, made) for made in MADE_WRONG)
        lines.append(" | ".join([data, *cells]))
    known = [row for row in rows if row["found"]["wrong_labels"] is not None]
    errors = [100 * abs(row["found"]["wrong_labels"] - row["wrong"]) for row in known]
    shares = " | ".join(f"labels: {made:.0%} wrong" for made in MADE_WRONG)
    spent = [row["cpu_seconds"] for row in rows]
    last = (
        f"In {len(known)} of {len(rows)} cases the share of wrong labels was estimated, with a "
        f"mean error of {fmean(errors):.1f} points and a largest of {max(errors):.1f}."
    )
    what = f"one thread · {min(spent):.1f} to {max(spent):.1f} CPU seconds each"
    return what, [*grid(f"data | {shares}", lines), "", last]


def copies(rows: Rows) -> Told:
    """Return what `find_copies` found in data as published, and of the copies that were made."""
    lines = []
    for data in each_of(rows, "data"):
        published, *made = where(rows, data=data)
        found = f"{published['found']:,} of {published['examples']:,}"
        cells = [data, found, f"{published['median']:.1f}"]
        for row in made:
            right = row["of_one"] / max(1, row["found"])
            cells += [f"{row['recalled'] / row['made']:.1%}", f"{right:.1%}"]
        lines.append(" | ".join([*cells, *["–"] * (7 - len(cells))]))
    heads = "data | as published: copies | CPU s"
    for kind in ("exact", "near"):
        heads += f" | {kind} copies: found of those made | right of those found"
    sizes = {row["examples"] for row in rows if "made" in row}
    return f"one thread · copies made in {max(sizes):,} examples", grid(heads, lines)


def frequent(rows: Rows) -> Told:
    """Return what leaving copies out does, each way at the rate that three other seeds chose."""
    seeds = sorted(each_of(rows, "seed"))
    tuning, tested = seeds[:3], seeds[3:]

    def errors(of: Sequence[int], **wanted: Any) -> list[float]:
        return [row["median"] for row in where(rows, **wanted) if row["seed"] in of]

    def best(data: str, arm: str) -> str:
        rates = each_of(rows, "rate")
        rate = min(rates, key=lambda r: fmean(errors(tuning, rate=r, data=data, arm=arm)))
        error = with_interval(estimate(errors(tested, rate=rate, data=data, arm=arm)))
        return f"{error} ({rate:g})"

    lines, arms = [], each_of(rows, "arm")
    for data in each_of(rows, "data"):
        own = where(rows, data=data)[0]
        known = f"{data} | {own['examples']:,} | {own['kept']:,} | {own['conflicts']:,}"
        lines.append(" | ".join([known, *(best(data, arm) for arm in arms)]))
    heads = f"data | examples | kept | conflicts | trained on {' | '.join(arms)}"
    said = (
        f"test error in % (learning rate) · perceptron, {rows[0]['passes']} passes · seeds "
        f"{', '.join(map(str, tested))}"
    )
    return said, grid(heads, lines)


def audit(rows: Rows) -> Told:
    """Return how much of the head of a list is wrong, by the rules that a reader compares."""

    def found(run: Row, rule: str, share: float) -> float:
        inspected = round(share * run["examples"])
        return 100 * run["found"][rule][run["shares"].index(share)] / inspected

    def cut(runs: Rows, rule: str) -> str:
        return " · ".join(
            f"{fmean(found(run, rule, share) for run in runs):.0f}" for share in SHOWN
        )

    lines = []
    for data, arm in itertools.product(each_of(rows, "data"), each_of(rows, "arm")):
        runs = where(rows, data=data, arm=arm)
        more = [found(run, "audit", 0.2) - found(run, "final loss", 0.2) for run in runs]
        tops = [(run["above_zero"]["examples"], run["above_zero"]["wrong"], run) for run in runs]
        above = fmean(100 * examples / run["examples"] for examples, _, run in tops)
        right = fmean(100 * wrong / examples for examples, wrong, _ in tops)
        cells = [data, arm, *(cut(runs, rule) for rule in RULES)]
        cells.append(with_interval(estimate(more), signed=True))
        lines.append(" | ".join([*cells, f"{above:.0f}: {right:.0f}"]))
    heads = (
        f"data | trained with | {' | '.join(RULES)} | audit less final loss, first 20 % | "
        "suspicion above 0: how many, wrong"
    )
    shown = " · ".join(f"{share:.0%}" for share in SHOWN)
    what = "{net}, {noise:.0%} of the labels flipped".format(**rows[0])
    return f"{what} · % of the first {shown} of a list that is wrong", grid(heads, lines, (0, 1))


def issues(rows: Rows) -> Told:
    """Return what one pass finds of wrong labels, beside what cleanlab finds, in per cent."""

    def shares(runs: Rows, counts: str, name: str, of: Callable[[Row], int]) -> str:
        return f"{100 * fmean(run[counts][name] / of(run) for run in runs):.1f}"

    lines = []
    for data, judge in itertools.product(each_of(rows, "data"), each_of(rows, "judged_by")):
        runs = where(rows, data=data, judged_by=judge)
        suspects = shares(runs, "numbers", "cleanlab", lambda run: run["examples"])
        cells = [data, judge, suspects]
        for name in ("ours", "cleanlab"):
            precision = shares(runs, "found", name, lambda run: run["inspected"])
            cells.append(f"{precision} ({shares(runs, 'found', name, lambda run: run['wrong'])})")
        cells.append(shares(runs, "numbers", "ours", lambda run: run["examples"]))
        precision = shares(runs, "own", "ours", lambda run: run["numbers"]["ours"])
        cells.append(f"{precision} ({shares(runs, 'own', 'ours', lambda run: run['wrong'])})")
        lines.append(" | ".join(cells))
    heads = (
        "data | judged by a model of | suspects, cleanlab's number | "
        "find_label_issues | cleanlab | suspects, our number | find_label_issues"
    )
    kinds = ", ".join(each_of(rows, "kind"))
    what = "{net}, {noise:.0%} of the labels wrong" + f", mean over {kinds}"
    return with_seeds(what, rows), grid(heads, lines, (0, 1))


def noise(rows: Rows) -> Told:
    """Return the share of wrong labels that is read, a column for what data are made into."""

    def cell(runs: Rows) -> str:
        known = [run for run in runs if run["half_width"] is not None]
        if len(known) < len(runs):
            return "–"
        share, width = (fmean(run[key] for run in known) for key in ("median", "half_width"))
        return f"{100 * share:.1f} ± {100 * width:.1f}"

    made = each_of(rows, "made")
    lines = []
    rows_of = (each_of(rows, name) for name in ("data", "net", "smoothing"))
    for data, net, smoothing in itertools.product(*rows_of):
        if own := where(rows, data=data, net=net, smoothing=smoothing):
            cells = (cell(where(own, made=each)) for each in made)
            lines.append(" | ".join([f"{data}, {net} | {smoothing:g}", *cells]))
    what = "{places:,} examples, half a pass, % of labels that look wrong"
    return with_seeds(what, rows), grid(" | ".join(["data | smoothing", *made]), lines, (0,))


def rare(rows: Rows) -> Told:
    """Return what is said of wrong and of right labels; of classes of unequal size, apart."""
    lines = []
    settings = ("data", "net", "skew", "noise")
    for about in dict.fromkeys(tuple(row[name] for name in settings) for row in rows):
        data, net, skew, noise = about
        runs = where(rows, **dict(zip(settings, about, strict=True)), arm="traditional")
        made = f"{data}, {net}, {noise:.0%} wrong"
        for group, name in GROUPS.items() if skew else [("", "all, equal sizes")]:
            counts = [
                run["likely"][each] for run in runs for each in ([group] if group else GROUPS)
            ]
            sums = {
                kind: [sum(each[kind][i] for each in counts) for i in (0, 1)] for kind in counts[0]
            }
            wrong, right = (sum(column) for column in zip(*sums.values(), strict=True))
            suspected = wrong - sums[""][0], right - sums[""][1]
            called = sums["wrong"]
            others = [suspected[i] - called[i] for i in (0, 1)]
            parts = (
                *((suspected[1], right), (called[1], right), (called[0], wrong)),
                *((called[0], sum(called)), (others[0], sum(others))),
            )
            shares = (f"{100 * part / whole:.0f}" if whole else "–" for part, whole in parts)
            lines.append(" | ".join([f"{made} | {name} | {wrong:,} · {right:,}", *shares]))
    heads = (
        "data | classes | wrong · right labels | of the right: suspected | called wrong | of the "
        "wrong: called wrong | of what is called wrong: wrong | of the other suspects: wrong"
    )
    what = "traditional training, unequal sizes: skew 1.5 · shares in %, seeds together"
    return what, grid(heads, lines, (0, 1))


def files_of(path: str) -> list[str]:
    """Return the files that a path names: `a{b,c}d` stands for `abd` and `acd`."""
    before, _, rest = path.partition("{")
    middle, _, after = rest.partition("}")
    return [f"{before}{each}{after}" for each in middle.split(",")]


def written(kind: str, path: str) -> str:
    """Return the table of a record or several, with what it ran on and the commands behind it."""
    records = [json.loads((ROOT / file).read_text(encoding="utf-8")) for file in files_of(path)]
    what, lines = KINDS[kind]([row for record in records for row in record["rows"]])
    versions = records[0]["versions"]
    codes = dict.fromkeys(record["code_version"] for record in records)
    machines = dict.fromkeys(machine_of(record["hardware"]) for record in records)
    ran = f"{' and '.join(machines)} · torch {versions['torch']} · code {', '.join(codes)}"
    heading = f"**{what} · {ran}**"
    return "\n".join([heading, "", *lines, "", made_by(record["command"] for record in records)])


def machine_of(hardware: dict[str, Any]) -> str:
    """Return what a heading says of the machine."""
    return hardware.get("gpu") or f"{hardware['cpu']}, {hardware['cores']} cores"


def made_by(commands: Iterable[str]) -> str:
    """Return the commands behind a table; of one that is like the last, only what differs.

    Programs that are gone are said to be of the commit that the table names.
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


SHAPES = (
    gates,
    small,
    examples,
    rollouts,
    grpo,
    choice,
    epochs,
    ratios,
    exchange,
    traits,
    audit,
    issues,
    copies,
    noise,
)
KINDS: dict[str, Callable[[Any], Told]] = {
    each.__name__: each for each in (*SHAPES, rare, frequent)
}
TABLES = {kind: partial(written, kind) for kind in KINDS}
