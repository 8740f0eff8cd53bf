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
RULES = (
    "audit",
    "final loss",
    "loss of the final model",
    "mean loss",
    "area under the margin",
    "audit of losses",
    "audit, training alone",
    "audit, all looks alike",
    "probability of another class minus the label's",
)
SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
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
    return f"{median} ({low} to {high})"


def with_seeds(what: str, rows: Rows) -> str:
    """Return what a heading says of the first row, and the seeds of all."""
    seeds = ", ".join(map(str, sorted(each_of(rows, "seed"))))
    return f"{what.format(**rows[0])} · seeds {seeds}"


def gates(rows: Rows) -> Told:
    """Return what selection costs, beside its limits."""

    def line(row: Row) -> str:
        digits = 5 if row["limit"] < 0.01 else 4
        numbers = "{limit:.xf} | {median:.xf} | {low:.xf} to {high:.xf}".replace("x", str(digits))
        cells = "{claim} ({quantity}) | " + numbers + " | {rounds} | {verdict}"
        return cells.format(**row)

    heads = "gate | at most | ratio | 95 % interval | rounds | verdict"
    what = f"{rows[0]['net']} · batch {rows[0]['batch_size']} · {CLOCK}"
    return what, grid(heads, map(line, rows), left=(0, 5))


def small(rows: Rows) -> Told:
    """Return what strategies add where steps are small, in two versions or one."""
    strategies, added, ratios = each_of(rows, "strategy"), [], []
    for name in each_of(rows, "workload"):
        own = where(rows, workload=name)
        now = [row for row in own if row.get("version", "after") == "after"]
        cells = [name, f"{where(now, quantity='bare batch')[0]['median']:.0f}"]
        for strategy in strategies:
            *before, last = where(own, strategy=strategy, quantity="added")
            cells.append("".join(f"{each['median']:.0f} → " for each in before) + spread(last, 0))
        added.append(" | ".join(cells))
        pairs = (("traditional", "bare"), ("auto", "traditional"), ("auto", "bare"))
        found = [where(now, strategy=s, quantity=f"example, in {o}'s")[0] for s, o in pairs]
        ratios.append(" | ".join([name, *(spread(each, 2) for each in found)]))
    heads = (
        "CPU seconds for each example that is trained on | traditional, in the bare loader's | "
        "`auto`, in traditional's | `auto`, in the bare loader's"
    )
    first = grid(f" | bare batch | {' | '.join(strategies)}", added)
    return f"microseconds per candidate batch · {CLOCK}", [*first, "", *grid(heads, ratios)]


def tokens(rows: Rows) -> Told:
    """Return what steps on chosen tokens take of a plain step."""
    lines: dict[tuple[str, float], str] = {}
    for row in where(rows, quantity="step"):
        own = {key: row[key] for key in ("words", "choice", "rate")}
        memory = where(rows, quantity="memory of two steps", **own)[0]["median"] / 2**20
        plain = row["choice"] == "plain"
        taken = f"{row['median']:.0f} ms" if plain else spread(row, 2)
        arm = row["choice"], row["rate"]
        lines.setdefault(arm, f"{arm[0]} | {'' if plain else format(arm[1], 'g')}")
        lines[arm] += f" | {taken} | {memory:.0f}"
    sizes = each_of(rows, "words")
    heads = " | ".join(f"vocabulary of {size:,}: of a plain step | MiB" for size in sizes)
    what = "4 blocks of width 256, batches of 8 rows of 128 tokens"
    return f"{what} · {CLOCK}", grid(f"chosen | rate | {heads}", lines.values())


def opening(rows: Rows) -> Told:
    """Return what opening an epoch takes."""
    line = (
        "{wrong:.0%} | {frequent:.0%} | {median:.2f} | {low:.2f} to {high:.2f} | "
        "{peak_bytes_per_example:.1f}"
    )
    heads = "wrong labels | most frequent class | CPU seconds | from, to | bytes each at the peak"
    what = "{examples:,} examples, {rounds} epochs".format(**rows[0])
    return what, grid(heads, (line.format(**row) for row in rows), ())


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
    """Return what ways to sample took until a task was solved, at the rate that took least."""
    lines: list[str] = []
    first: Rows = []
    for arm in each_of(rows, "arm"):
        own = where(rows, arm=arm)
        runs = min(
            (where(own, lr=lr) for lr in each_of(own, "lr")),
            key=lambda runs: fmean(run["tokens"] for run in runs),
        )
        first = first or runs
        more = [
            (run["tokens"] - other["tokens"]) / 1000 for run, other in zip(runs, first, strict=True)
        ]
        tokens, trained, seconds = (
            fmean(run[key] for run in runs) for key in ("tokens", "trained", "cpu_seconds")
        )
        lines.append(
            f"{arm} | {runs[0]['lr']:g} | {sum(run['solved'] for run in runs)} | {tokens:,.0f} | "
            f"{with_interval(estimate(more), signed=True)} | {trained:,.0f} | {seconds:.1f}"
        )
    seeds = len(each_of(rows, "seed"))
    heads = (
        f"sampling | learning rate | solved, of {seeds} | tokens generated | thousands more than "
        "the first | answers trained on | CPU seconds"
    )
    return f"the task of examples/grpo.py, {seeds} seeds, the better of two rates", grid(
        heads, lines
    )


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


def agreement(rows: Rows) -> Told:
    """Return how far cheap scorers agreed with exact scores in training."""
    lines = []
    for row in rows:
        shares = (row["mean"], *row["epochs"], row["twentieth"], row["lowest"])
        lines.append(" | ".join([row["scorer"], *(f"{share:.1%}" for share in shares)]))
    epochs = " | ".join(f"epoch {n + 2}" for n in range(len(rows[0]["epochs"])))
    heads = f"scorer | mean | {epochs} | a twentieth of the batches below | lowest"
    what = "{net} on {examples} examples of {data}, one seed".format(**rows[0])
    return what, grid(heads, lines)


def choice(rows: Rows) -> Told:
    """Return how often the loader keeps the losses of a stream, and what it should."""
    line = "{odds[paper]:.1%}, {odds[authors]:.1%} | {median:.2%} ± {error:.2%}"
    lines = [
        " | ".join([str(tenth), *(line.format(**row) for row in where(rows, tenth=tenth))])
        for tenth in each_of(rows, "tenth")
    ]
    last, betas = "largest difference of what is kept", each_of(rows, "beta")
    for beta in betas:
        paper, authors = (
            max(abs(row["median"] - row["odds"][name]) for row in where(rows, beta=beta))
            for name in ("paper", "authors")
        )
        last += f" | {paper:.2%}, {authors:.2%} | "
    heads = " | ".join(f"β = {beta:g}: paper, code | kept" for beta in betas)
    what = (
        "{candidates:,} losses of {net} on {examples} examples of {data}, batch {batch_size}, the "
        "last {history} losses remembered, {coin_seeds} seeds"
    )
    return what.format(**rows[0]), grid(f"tenth of the losses | {heads}", [*lines, last])


def ranks(rows: Rows) -> Told:
    """Return what ranks exchange beside what DDP does."""
    lines = []
    for net in each_of(rows, "net"):
        own = where(rows, net=net)
        exchange, reduce, step = (spread(row, 2, 1e3) for row in own)
        message, sums = (own[0][f"{name}_bytes"] / 1e3 for name in ("message", "gradient"))
        lines.append(f"{net} | {message:.1f} kB | {exchange} | {sums:.1f} kB | {reduce} | {step}")
    heads = "net | message | exchange, ms | gradients | their sum, ms | training step, ms"
    what = (
        "{ranks} processes with {backend} · batch {batch_size} each from windows of {window} · "
        "{clock}, {rounds}"
    )
    return what.format(**rows[0]), grid(heads, lines)


def traits(rows: Rows) -> Told:
    """Return what `data_traits` found beside what data were made up of."""
    lines = []
    for row in rows:
        found, settings = row["found"], row["settings"].items()
        copies, wrong, most = (
            _share(found[key]) for key in ("copies", "wrong_labels", "wrong_labels_at_most")
        )
        if found["wrong_labels"] is not None:
            wrong += f" ± {2 * found['wrong_labels_error']:.1%}"
        made = " ".join(f"--{key.replace('_', '-')} {each}" for key, each in settings)
        made = f"`{made}`" if made else "as published"  # as code, so that "--" is no dash
        classes = f"{row['effective_classes']:.2f} | {found['effective_classes']:.2f}"
        cells = f"{row['data']} | {made} | {row['repeats']:.1%} | {copies} | {classes}"
        lines.append(f"{cells} | {row['wrong']:.1%} | {wrong} | {most}")
    known = [row for row in rows if row["found"]["wrong_labels"] is not None]
    errors = [100 * abs(row["found"]["wrong_labels"] - row["wrong"]) for row in known]
    heads = (
        "data | made | repeats: true | exact | effective classes: true | found | "
        "wrong labels: true | found | at most"
    )
    spent = [row["cpu_seconds"] for row in rows]
    last = (
        f"Wrong labels were told in {len(known)} of {len(rows)} cases, with a mean error of "
        f"{fmean(errors):.1f} points and a largest of {max(errors):.1f}."
    )
    what = f"one thread · {min(spent):.1f} to {max(spent):.1f} CPU seconds each"
    return what, [*grid(heads, lines, (0, 1)), "", last]


def copies(rows: Rows) -> Told:
    """Return what `find_copies` found, beside the copies that were made."""
    lines = []
    for row in rows:
        made = " ".join(f"--{key.replace('_', '-')} {v}" for key, v in row["settings"].items())
        made = f"`{made}`" if made else "as published"
        known = ["–"] * 3
        if "made" in row:
            right = row["of_one"] / max(1, row["found"])
            known = [f"{row['made']:,}", f"{row['recalled'] / row['made']:.1%}", f"{right:.1%}"]
        counts = " | ".join(
            f"{row[name]:,}" for name in ("examples", "found", "exact", "conflicts")
        )
        spent = f"{row['median']:.1f} | {row['bytes'] / 1e6:.0f} MB"
        lines.append(f"{row['data']} | {made} | {counts} | {' | '.join(known)} | {spent}")
    heads = (
        "data | made | examples | copies found | exact | conflicts | copies made | of these found "
        "| of the found right | CPU seconds | memory"
    )
    return "one thread", grid(heads, lines, (0, 1))


def frequent(rows: Rows) -> Told:
    """Return what leaving copies out does, each arm at the rate that three other seeds chose."""
    seeds = sorted(each_of(rows, "seed"))
    tuning, tested = seeds[:3], seeds[3:]

    def errors(of: Sequence[int], **wanted: Any) -> list[float]:
        return [row["median"] for row in where(rows, **wanted) if row["seed"] in of]

    lines = []
    for data in each_of(rows, "data"):
        own = where(rows, data=data)[0]
        for arm in each_of(rows, "arm"):
            about = {"arm": arm, "data": data}
            rates = each_of(rows, "rate")
            rate = min(rates, key=lambda rate: fmean(errors(tuning, rate=rate, **about)))
            error = with_interval(estimate(errors(tested, rate=rate, **about)))
            known = f"{own['examples']:,} | {own['kept']:,} | {own['conflicts']:,}"
            lines.append(f"{data} | {known} | {arm} | {rate:g} | {error}")
    heads = "data | examples | kept | conflicts | trained on | rate | test error, %"
    said = f"perceptron, {rows[0]['passes']} passes · seeds {', '.join(map(str, tested))}"
    return said, grid(heads, lines, (0, 4))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def audit(rows: Rows) -> Told:
    """Return what is found of flipped labels, by rule and share inspected."""

    def found(run: Row, rule: str, share: float) -> tuple[int, int]:
        return run["found"][rule][run["shares"].index(share)], round(share * run["examples"])

    def cut(runs: Rows, rule: str, share: float) -> str:
        """Return precision, and recall in brackets, in per cent."""
        hits = [found(run, rule, share) for run in runs]
        precision = fmean(hit / inspected for hit, inspected in hits)
        recall = fmean(hit / run["wrong"] for (hit, _), run in zip(hits, runs, strict=True))
        return f"{100 * precision:.1f} ({100 * recall:.1f})"

    def gain(runs: Rows, rule: str) -> str:
        """Return how much more of the first fifth is wrong than by final loss, in points."""
        if rule == "final loss":
            return "–"
        pairs = [(found(run, rule, 0.2), found(run, "final loss", 0.2)) for run in runs]
        gains = [100 * (ours - theirs) / inspected for (ours, inspected), (theirs, _) in pairs]
        return with_interval(estimate(gains), signed=True)

    lines, last = [], []
    for arm in each_of(rows, "arm"):
        runs = where(rows, arm=arm)
        for rule in RULES:
            cuts = " | ".join(cut(runs, rule, share) for share in SHOWN)
            lines.append(f"{arm} | {rule} | {cuts} | {gain(runs, rule)}")
        tops = [(run["above_zero"]["examples"], run["above_zero"]["wrong"], run) for run in runs]
        share = fmean(examples / run["examples"] for examples, _, run in tops)
        precision = fmean(wrong / examples for examples, wrong, _ in tops)
        recall = fmean(wrong / run["wrong"] for _, wrong, run in tops)
        last.append(
            f"- {arm}: {share:.1%} of the examples have a suspicion above 0; {precision:.1%} of "
            f"those are wrong, and {recall:.1%} of what is wrong is among them."
        )
    shares = " | ".join(f"first {share:.0%}" for share in SHOWN)
    heads = f"strategy | rule | {shares} | wrong in the first fifth, against final loss"
    what = (
        "{net}, {epochs} epochs on {examples} examples of {data}, {noise:.0%} of the labels flipped"
    )
    return with_seeds(what, rows), [*grid(heads, lines, (0, 1)), "", *last]


def issues(rows: Rows) -> Told:
    """Return what one pass finds of wrong labels, beside what cleanlab finds, in per cent."""

    def shares(runs: Rows, counts: str, name: str, of: Callable[[Row], int]) -> str:
        return f"{100 * fmean(run[counts][name] / of(run) for run in runs):.1f}"

    lines = []
    for data, judge, kind in itertools.product(
        each_of(rows, "data"), each_of(rows, "judged_by"), each_of(rows, "kind")
    ):
        runs = where(rows, data=data, judged_by=judge, kind=kind)
        cells = [f"{data} | {judge} | {kind}"]
        for name in ("ours", "doubt alone", "cleanlab"):
            at_one = [
                shares(runs, "found", name, of)
                for of in (lambda run: run["inspected"], lambda run: run["wrong"])
            ]
            cells.append("{} ({})".format(*at_one))
        for name in ("ours", "cleanlab"):
            number = shares(runs, "numbers", name, lambda run: run["examples"])
            precision = shares(runs, "own", name, lambda run, name=name: run["numbers"][name])
            recall = shares(runs, "own", name, lambda run: run["wrong"])
            cells.append(f"{number}: {precision} ({recall})")
        lines.append(" | ".join(cells))
    heads = (
        "data | labels judged by a model of | wrong labels | find_label_issues | doubt alone | "
        "cleanlab | find_label_issues, its own number | cleanlab, its own number"
    )
    what = "{net}, {noise:.0%} of the labels wrong"
    return with_seeds(what, rows), grid(heads, lines, (0, 1, 2))


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
    """Return what is said of wrong and of right labels, rare classes apart."""
    cells = []
    for arm in each_of(rows, "arm"):
        for group, name in (("rarest", "the rarest three"), ("others", "the others")):
            counts = [run["likely"][group] for run in where(rows, arm=arm)]
            sums = {
                kind: [sum(each[kind][i] for each in counts) for i in (0, 1)] for kind in counts[0]
            }
            total = [sum(column) for column in zip(*sums.values(), strict=True)]
            suspected = [there - not_so for there, not_so in zip(total, sums[""], strict=True)]
            shares = []
            for found in (suspected, sums["wrong"]):
                parts = zip((found[0], *found), (sum(found), *total), strict=True)
                shares += [f"{100 * part / whole:.1f}" if whole else "–" for part, whole in parts]
            ends = [f"{each[0]}, {each[1]}" for each in (total, sums["unknown"])]
            cells.append(" | ".join([arm, name, ends[0], *shares, ends[1]]))
    shares = " | ".join(
        f"{said}: {what}"
        for said in ("suspected", "likely wrong")
        for what in ("precision", "of the wrong", "of the right")
    )
    heads = f"strategy | labels | wrong, right | {shares} | unknown: wrong, right"
    what = (
        "{net}, {epochs} epochs on {examples} examples of {data}, skew {skew:g}, {noise:.0%} of "
        "the labels flipped"
    )
    return f"{with_seeds(what, rows)} together", grid(heads, cells, (0, 1))


def bench(record: Row) -> Told:
    """Return what a record of `selective-backprop bench` says."""
    cost = "{name} | {median:.3f} | {low:.3f} to {high:.3f} | {last}"
    scorers = [
        cost.format(name=name, last=f"{each['overlap']:.1%}", **each["cost"])
        for name, each in record["scorers"].items()
    ]
    strategies = [
        cost.format(name=name, last=f"{each['over_limit']['median']:.3f}", **each["relative"])
        for name, each in record["strategies"].items()
    ]
    first = "scorer | cost, in eval forwards | 95 % interval | overlap of the highest third"
    second = "strategy | an epoch, in traditional ones | 95 % interval | over its limit"
    what = f"{record['config']['model']} on {record['config']['data']}"
    return what, [*grid(first, scorers), "", *grid(second, strategies)]


def written(kind: str, file: str) -> str:
    """Return the table of a record, with what it ran on and the command that made it."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    what, lines = KINDS[kind](record if kind == "bench" else record["rows"])
    hardware, versions = record["hardware"], record["versions"]
    heading = (
        f"**{what} · {hardware['cpu']}, {hardware['cores']} cores · torch {versions['torch']} · "
        f"code {record['code_version']}**"
    )
    made_by = f"Made by\n\n    {record['command'].strip()}"
    return "\n".join([heading, "", *lines, "", made_by, ""])


SHAPES = (
    gates,
    small,
    opening,
    examples,
    rollouts,
    grpo,
    tokens,
    agreement,
    choice,
    ranks,
    traits,
    audit,
    issues,
    copies,
    noise,
)
KINDS: dict[str, Callable[[Any], Told]] = {
    each.__name__: each for each in (*SHAPES, rare, bench, frequent)
}
TABLES = {kind: partial(written, kind) for kind in KINDS}
