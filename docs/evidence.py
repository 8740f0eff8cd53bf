"""Write the tables of the README and the documentation from the committed records.

    PYTHONPATH=. python docs/evidence.py

A table stands between `<!-- KIND PATH -->`, with a kind of `TABLES` and a path from the root, and
`<!-- end -->`. A test fails where a page and its records disagree. The figures of each comparison,
of each record of `bench`, of the papers redone and of the study are drawn when the documentation
is built.
"""

import json
import re
import shutil
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

import selective_backprop as sb
import selective_backprop_lab as lab
from reproductions.auto_study.page import (
    caption_of,
    compose,
    draw_page,
    overview,
)
from reproductions.auto_study.protocol import STAGES
from reproductions.auto_study.results import Results, read_results
from reproductions.drawing import save
from reproductions.papers import committed, figures_at, gather
from selective_backprop_lab.analysis.comparison import compared
from selective_backprop_lab.analysis.statistics import estimate, final_loss
from selective_backprop_lab.analysis.summary import comparison_table
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.analysis.worth import Worth, mean_worth
from selective_backprop_lab.bench.figure import draw_bench
from selective_backprop_lab.bench.harness import Findings
from selective_backprop_lab.bench.rounds import Median
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.report.figures import draw_comparison
from selective_backprop_lab.report.panels import SETTINGS

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("start", "measured", "processes", "advise", "audit", "auto", "language-models"),
            "zero-gradients",
        )
    ),
)
BASELINE, DEFAULT = "traditional", "auto"
SHORT = "plain, shortened"
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
MESSAGES = ("message_bytes", "gradient_bytes")


def comparison(folder: str) -> str:
    """Return the table of a folder of records, with the command that made them."""
    runs = compared(lab.frame(ROOT / folder))
    made = "\n".join(f"    {command}" for command in runs.sort_index().command.unique())
    return f"{comparison_table(runs).to_markdown()}\nMade by\n\n{made}\n"


def gates(file: str) -> str:
    """Return the table of a benchmark's record, with what it ran on."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    hardware, versions = record["hardware"], record["versions"]
    lines = [
        f"**{record['net']} · batch {record['batch_size']} · {record['clock']} · "
        f"{hardware['cpu']}, {hardware['cores']} cores · torch {versions['torch']} · code "
        f"{record['code_version']}**",
        "",
        "| gate | at most | ratio | 95 % interval | rounds | verdict |",
        "| :-- | --: | --: | --: | --: | :-- |",
    ]
    for gate in record["gates"]:
        digits = 5 if gate["limit"] < 0.01 else 4
        low, median, high = (f"{gate[key]:.{digits}f}" for key in ("low", "median", "high"))
        limit = f"{gate['limit']:.{digits}f}"
        lines.append(
            f"| {gate['claim']} ({gate['gate']}) | {limit} | {median} | {low} to {high} | "
            f"{gate['rounds']} | {gate['verdict']} |"
        )
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def small(file: str) -> str:
    """Return the tables of what strategies add where steps are small, in two versions or one."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for each in record["workloads"]:
        found.setdefault(each["workload"], {}).setdefault(each["strategy"], {})[each["version"]] = (
            each
        )
    strategies = list(next(iter(found.values())))
    lines = [
        _heading(record, f"microseconds per candidate batch · {record['clock']}"),
        "",
        f"| | bare batch | {' | '.join(strategies)} |",
        "| :-- | --: |" + " --: |" * len(strategies),
    ]
    for workload, arms in found.items():
        bare = arms[strategies[0]]["after"]["bare_next_us"]
        cells = []
        for name in strategies:
            added = [version["added_us"] for version in arms[name].values()]
            medians = " → ".join(f"{each['median']:.0f}" for each in added)
            cells.append(f"{medians} ({added[-1]['low']:.0f} to {added[-1]['high']:.0f})")
        lines.append(f"| {workload} | {bare:.0f} | {' | '.join(cells)} |")
    lines += [
        "",
        "| CPU seconds for each example that is trained on | traditional, in the bare loader's | "
        "`auto`, in traditional's | `auto`, in the bare loader's |",
        "| :-- | --: | --: | --: |",
    ]
    for workload, arms in found.items():
        pairs = [("traditional", "bare"), ("auto", "traditional"), ("auto", "bare")]
        ratios = [arms[name]["after"]["per_example_against"][other] for name, other in pairs]
        cells = [f"{r['median']:.2f} ({r['low']:.2f} to {r['high']:.2f})" for r in ratios]
        lines.append(f"| {workload} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def tokens(file: str) -> str:
    """Return the table of what steps on chosen tokens take of a plain step."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    net, found = record["net"], record["vocabularies"]
    what = (
        f"{net['blocks']} blocks of width {net['features']}, batches of {net['rows']} rows of "
        f"{net['length']} tokens · {record['clock']}"
    )
    heads = " | ".join(f"{each['words']:,} words: of a plain step | MiB" for each in found)
    plain = " | ".join(
        f"{each['plain_ms']['median']:.0f} ms | {each['plain_bytes'] / 2**20:.0f}" for each in found
    )
    lines = [
        _heading(record, what),
        "",
        f"| chosen | rate | {heads} |",
        "| :-- | --: |" + " --: | --: |" * len(found),
        f"| plain | | {plain} |",
    ]
    for arms in zip(*(each["arms"] for each in found), strict=True):
        shares = [Median(**arm["share"]) for arm in arms]
        cells = [
            f"{share.median:.2f} ({share.low:.2f} to {share.high:.2f}) | {arm['bytes'] / 2**20:.0f}"
            for share, arm in zip(shares, arms, strict=True)
        ]
        lines.append(f"| {arms[0]['choice']} | {arms[0]['rate']:g} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def opening(file: str) -> str:
    """Return the table of what opening an epoch takes."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    lines = [
        _heading(record, f"{record['examples']:,} examples, {record['rounds']} epochs"),
        "",
        "| wrong labels | most frequent class | CPU seconds | from, to | bytes each at the peak |",
        "| --: | --: | --: | --: | --: |",
    ]
    for each in record["openings"]:
        lines.append(
            f"| {each['wrong']:.0%} | {each['frequent']:.0%} | {each['cpu_seconds']:.2f} | "
            f"{each['fewest_cpu_seconds']:.2f} to {each['most_cpu_seconds']:.2f} | "
            f"{each['peak_bytes_per_example']:.1f} |"
        )
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def examples(file: str) -> str:
    """Return the table of what the examples show, at their own rate and at each one's best."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    found = record["trainings"]
    seeds, rates = (sorted({each[key] for each in found}) for key in ("seed", "lr"))
    what = f"examples/, mean over {len(seeds)} seeds, learning rates {', '.join(map(str, rates))}"
    lines = [
        _heading(record, what),
        "",
        "| labels | training | epochs | passes | CPU s | test error % | at its best rate |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for data, rate in record["rates"].items():
        ends: dict[str, list[float]] = {}
        for arm in dict.fromkeys(each["arm"] for each in found):
            own = [each for each in found if (each["data"], each["arm"]) == (data, arm)]
            errors = {lr: [100 * each["error"] for each in own if each["lr"] == lr] for lr in rates}
            best = min(rates, key=lambda lr: fmean(errors[lr]))
            ends[arm] = errors[best]
            usual = [each for each in own if each["lr"] == rate]
            passes, seconds = (fmean(e[key] for e in usual) for key in ("passes", "cpu_seconds"))
            lines.append(
                f"| {data} | {arm} | {usual[0]['epochs']} | {passes:.1f} | {seconds:.1f} | "
                f"{with_interval(estimate(errors[rate]))} | "
                f"{with_interval(estimate(errors[best]))} ({best}) |"
            )
        apart = [one - other for one, other in zip(ends["selective"], ends[SHORT], strict=True)]
        gain = with_interval(estimate(apart), signed=True)
        lines.append(f"| | selective, against {SHORT} | | | | | {gain} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def zero(file: str) -> str:
    """Return the table of trainings with and without rows of gradient zero."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    lines = [
        _heading(record, f"examples/grpo.py, {record['steps']} steps"),
        "",
        "| seed | reward at the end | curves at most apart | rows trained on | CPU seconds |",
        "| --: | --: | --: | --: | --: |",
    ]
    for each in record["trainings"]:
        rows, seconds = each["rows"], each["cpu_seconds"]
        lines.append(
            f"| {each['seed']} | {each['reward']:.3f} | {each['furthest']:.3f} | "
            f"{rows[0]:,} → {rows[1]:,} | {seconds[0]:.1f} → {seconds[1]:.1f} |"
        )
    lines += [
        "",
        f"| rest, in {record['epochs']} epochs of all prompts | answers generated | CPU seconds | "
        "reward at the end |",
        "| :-- | --: | --: | --: |",
    ]
    for rests in dict.fromkeys(each["rests"] for each in record["memories"]):
        arms = [each for each in record["memories"] if each["rests"] == rests]
        answers, seconds = (fmean(a[name] for a in arms) for name in ("answers", "cpu_seconds"))
        ends = sorted(each["end"] for each in arms)
        lines.append(
            f"| {rests} | {answers:,.0f} | {seconds:.1f} | {ends[0]:.2f} to {ends[-1]:.2f} |"
        )
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def bench(file: str) -> str:
    """Return the tables of a record of `selective-backprop bench`."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    lines = [
        _heading(record, f"{record['config']['model']} on {record['config']['data']}"),
        "",
        "| scorer | cost, in eval forwards | 95 % interval | overlap of the highest third |",
        "| :-- | --: | --: | --: |",
    ]
    for name, scorer in record["scorers"].items():
        lines.append(f"| {name} | {_median(scorer['cost'])} | {scorer['overlap']:.1%} |")
    lines += [
        "",
        "| strategy | an epoch, in traditional ones | 95 % interval | over its limit |",
        "| :-- | --: | --: | --: |",
    ]
    for name, strategy in record["strategies"].items():
        over = strategy["over_limit"]["median"]
        lines.append(f"| {name} | {_median(strategy['relative'])} | {over:.3f} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def agreement(file: str) -> str:
    """Return the table of how far cheap scorers agreed with exact scores in training."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    what = f"{record['net']} on {record['examples']} examples of {record['data']}, one seed"
    epochs = len(record["scorers"][0]["epochs"])
    lines = [
        _heading(record, what),
        "",
        f"| scorer | mean | {' | '.join(f'epoch {n + 2}' for n in range(epochs))} | a twentieth of "
        "the batches below | lowest |",
        "| :-- |" + " --: |" * (epochs + 3),
    ]
    for each in record["scorers"]:
        values = [each["mean"], *each["epochs"], each["twentieth"], each["lowest"]]
        lines.append(f"| {each['scorer']} | {' | '.join(f'{value:.1%}' for value in values)} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def choice(file: str) -> str:
    """Return the table of how often the loader keeps the losses of a stream, and what it should."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    what = (
        f"{record['losses']:,} losses of {record['net']} on {record['examples']} examples of "
        f"{record['data']}, batch {record['batch_size']}, the last {record['history']} losses "
        f"remembered, {record['coin_seeds']} seeds"
    )
    heads = " | ".join(f"β = {each['beta']:g}: paper, code | kept" for each in record["betas"])
    lines = [
        _heading(record, what),
        "",
        f"| tenth of the losses | {heads} |",
        "| :-- |" + " --: | --: |" * len(record["betas"]),
    ]
    for tenth, deciles in enumerate(
        zip(*(each["deciles"] for each in record["betas"]), strict=True)
    ):
        cells = [
            f"{each['odds']['paper']:.1%}, {each['odds']['authors']:.1%} | "
            f"{each['kept']['loader']:.2%} ± {each['error']:.2%}"
            for each in deciles
        ]
        lines.append(f"| {tenth + 1} | {' | '.join(cells)} |")
    cells = [
        f"{each['largest']['paper']:.2%}, {each['largest']['authors']:.2%} | "
        for each in record["betas"]
    ]
    lines.append(f"| largest difference of what is kept | {'| '.join(cells)}|")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def ranks(file: str) -> str:
    """Return the table of what ranks exchange beside what DDP does."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    what = (
        f"{record['ranks']} processes with {record['backend']} · batch {record['batch_size']} each "
        f"from windows of {record['window']} · {record['clock']}, {record['rounds']}"
    )
    lines = [
        _heading(record, what),
        "",
        "| net | message | exchange, ms | gradients | their sum, ms | training step, ms |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for net in record["nets"]:
        exchange, reduce, step = (
            f"{1e3 * each['median']:.2f} ({1e3 * each['low']:.2f} to {1e3 * each['high']:.2f})"
            for each in net["seconds"].values()
        )
        message, gradients = (f"{net[key] / 1e3:.1f} kB" for key in MESSAGES)
        lines.append(f"| {net['net']} | {message} | {exchange} | {gradients} | {reduce} | {step} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def traits(file: str) -> str:
    """Return the table of what `data_traits` found beside what data were made up of."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    cases = record["cases"]
    spent = [case["cpu_seconds"] for case in cases]
    lines = [
        _heading(record, f"one thread · {min(spent):.1f} to {max(spent):.1f} CPU seconds each"),
        "",
        "| data | made | repeats: true | exact | exact or near | effective classes: true | found | "
        "wrong labels: true | found | at most |",
        "| :-- | :-- |" + " --: |" * 8,
    ]
    for case in cases:
        found = case["found"]
        cells = [
            f"{case['repeats']:.1%}",
            *(_share(found[key]) for key in ("copies", "near_copies")),
            f"{case['effective_classes']:.2f}",
            f"{found['effective_classes']:.2f}",
            f"{case['wrong']:.1%}",
            _share(found["wrong_labels"])
            + (
                "" if found["wrong_labels"] is None else f" ± {2 * found['wrong_labels_error']:.1%}"
            ),
            _share(found["wrong_labels_at_most"]),
        ]
        made = " ".join(
            f"--{name.replace('_', '-')} {value}" for name, value in case["settings"].items()
        )
        made = f"`{made}`" if made else "as published"  # as code, so that "--" is no dash
        lines.append(f"| {case['data']} | {made} | {' | '.join(cells)} |")
    known = [case for case in cases if case["found"]["wrong_labels"] is not None]
    errors = [abs(case["found"]["wrong_labels"] - case["wrong"]) for case in known]
    lines += [
        "",
        f"Wrong labels were told in {len(known)} of {len(cases)} cases, with a mean error of "
        f"{100 * fmean(errors):.1f} points and a largest of {100 * max(errors):.1f}.",
    ]
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def audit(file: str) -> str:
    """Return the table of what is found of flipped labels, by rule and share inspected."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    arms = list(dict.fromkeys(run["arm"] for run in record["runs"]))
    seeds = sorted({run["seed"] for run in record["runs"]})
    what = (
        f"{record['net']}, {record['epochs']} epochs on {record['examples']} examples of "
        f"{record['data']}, {record['noise']:.0%} of the labels flipped · seeds "
        f"{', '.join(map(str, seeds))}"
    )
    shares = " | ".join(f"first {share:.0%}" for share in SHOWN)
    lines = [
        _heading(record, what),
        "",
        f"| strategy | rule | {shares} | wrong in the first fifth, against final loss |",
        "| :-- | :-- |" + " --: |" * (len(SHOWN) + 1),
    ]
    for arm in arms:
        runs = [run for run in record["runs"] if run["arm"] == arm]
        for rule in RULES:
            cells = [_cut(record, runs, rule, share) for share in SHOWN]
            lines.append(f"| {arm} | {rule} | {' | '.join(cells)} | {_gain(record, runs, rule)} |")
    lines += ["", *(_above_zero(record, arm) for arm in arms)]
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def rare(file: str) -> str:
    """Return the table of what is said of wrong and of right labels, rare classes apart."""
    record = json.loads((ROOT / file).read_text(encoding="utf-8"))
    runs = record["runs"]
    seeds = sorted({run["seed"] for run in runs})
    what = (
        f"{record['net']}, {record['epochs']} epochs on {record['examples']} examples of "
        f"{record['data']}, skew {record['skew']:g}, {record['noise']:.0%} of the labels "
        f"flipped · seeds {', '.join(map(str, seeds))} together"
    )
    shares = " | ".join(
        f"{said}: {what}"
        for said in ("suspected", "likely wrong")
        for what in ("precision", "of the wrong", "of the right")
    )
    lines = [
        _heading(record, what),
        "",
        f"| strategy | labels | wrong, right | {shares} | unknown: wrong, right |",
        "| :-- | :-- | --: |" + " --: |" * 7,
    ]
    for arm in dict.fromkeys(run["arm"] for run in runs):
        for group, name in (("rarest", "the rarest three"), ("others", "the others")):
            counts = [run["likely"][group] for run in runs if run["arm"] == arm]
            sums = {
                kind: [sum(each[kind][i] for each in counts) for i in (0, 1)] for kind in counts[0]
            }
            total = [sum(column) for column in zip(*sums.values(), strict=True)]
            suspected = [there - not_so for there, not_so in zip(total, sums[""], strict=True)]
            cells = []
            for found in (suspected, sums["wrong"]):
                parts = zip((found[0], *found), (sum(found), *total), strict=True)
                cells += [f"{100 * part / whole:.1f}" if whole else "–" for part, whole in parts]
            ends = [f"{each[0]}, {each[1]}" for each in (total, sums["unknown"])]
            lines.append(f"| {arm} | {name} | {ends[0]} | {' | '.join(cells)} | {ends[1]} |")
    return "\n".join([*lines, "", f"Made by\n\n    {record['command'].strip()}", ""])


def _cut(record: dict[str, Any], runs: list[dict[str, Any]], rule: str, share: float) -> str:
    """Return precision, and recall in brackets, in per cent."""
    place = record["shares"].index(share)
    inspected = round(share * record["examples"])
    precision = fmean(run["found"][rule][place] / inspected for run in runs)
    recall = fmean(run["found"][rule][place] / run["wrong"] for run in runs)
    return f"{100 * precision:.1f} ({100 * recall:.1f})"


def _gain(record: dict[str, Any], runs: list[dict[str, Any]], rule: str) -> str:
    """Return how much more of the first fifth is wrong than by final loss, in points."""
    if rule == "final loss":
        return "–"
    place = record["shares"].index(0.2)
    inspected = round(0.2 * record["examples"])
    gains = [run["found"][rule][place] - run["found"]["final loss"][place] for run in runs]
    return with_interval(estimate([100 * gain / inspected for gain in gains]), signed=True)


@cache
def results_of(stage: str) -> list[Results]:
    """Return what is on record of a stage of the study."""
    return read_results(STAGES[stage], ROOT / "records/study" / stage)


def study(folder: str) -> str:
    """Return a stage of the study at a glance, with the command that made it."""
    results = [each for each in results_of(Path(folder).name) if each.runs]
    if not results:
        return "Nothing is on record yet.\n"
    runs = [run for each in results for run in each.runs]
    commands = dict.fromkeys(run.header.command for run in runs)
    lines = [overview(results).to_markdown(), caption_of(runs), "", "Made by", ""]
    return "\n".join([*lines, *(f"    {command}" for command in commands), ""])


def _above_zero(record: dict[str, Any], arm: str) -> str:
    """Say how many examples have a suspicion above 0, and how many of those are wrong."""
    runs = [run for run in record["runs"] if run["arm"] == arm]
    share = fmean(run["above_zero"]["examples"] / record["examples"] for run in runs)
    precision = fmean(run["above_zero"]["wrong"] / run["above_zero"]["examples"] for run in runs)
    recall = fmean(run["above_zero"]["wrong"] / run["wrong"] for run in runs)
    return (
        f"- {arm}: {share:.1%} of the examples have a suspicion above 0; {precision:.1%} of those "
        f"are wrong, and {recall:.1%} of what is wrong is among them."
    )


def _median(found: dict[str, float]) -> str:
    return f"{found['median']:.3f} | {found['low']:.3f} to {found['high']:.3f}"


def _heading(record: dict[str, Any], what: str) -> str:
    hardware, versions = record["hardware"], record["versions"]
    return (
        f"**{what} · {hardware['cpu']}, {hardware['cores']} cores · torch {versions['torch']} · "
        f"code {record['code_version']}**"
    )


GROUPS = {  # of workloads in the README's picture, by the first of their kinds that is named
    "noisy": "wrong labels",
    "table": "clean tables",
    "fine-tuning": "fine-tuning",
    "text": "source code",
    "near-copies": "skewed or repeated",
    "skewed": "skewed or repeated",
    "copies": "skewed or repeated",
    "clean": "images as published",
}
LIMITS = 1 / 4, 32  # of worths in the picture; those beyond are drawn at its edge


def worths_by_group() -> dict[str, list[tuple[str, Worth]]]:
    """Return what `auto` is worth in each cell of the confirmation, with the cell's name."""
    found: dict[str, list[tuple[str, Worth]]] = {each: [] for each in (*GROUPS.values(), "clicks")}
    for each in results_of("confirm"):
        kinds = each.workload.kinds
        group = next(words for kind, words in GROUPS.items() if kind in kinds)
        if each.workload.measure is final_loss:  # what is asked for are probabilities
            group = "clicks"
        for length in each.lengths:
            worth = each.worth(DEFAULT, length, "cost")
            found[group].append((f"{each.workload.title} at {length:g}", worth))
    means = {group: mean_worth([each for _, each in cells]).times for group, cells in found.items()}
    return {group: found[group] for group in sorted(found, key=lambda each: -means[each])}


def draw_worths(path: Path) -> None:
    """Draw the README's picture: how many times its cost `auto` is worth, by kind of data."""
    groups = worths_by_group()
    style = {**SETTINGS, "font.size": 10, "axes.titlesize": 10.5}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(groups)), layout="constrained")
        axes = figure.subplots()
        axes.axvspan(1, LIMITS[1] * 1.3, color="#e5f3ee", lw=0, zorder=0)
        axes.axvline(1, color="#444444", lw=1)
        for row, cells in enumerate(groups.values()):
            times = np.array([worth.times for _, worth in cells])
            inside = times.clip(*LIMITS)
            places = row + np.linspace(-0.2, 0.2, len(times)) * (len(times) > 1)
            colours = [_colour(worth) for _, worth in cells]
            axes.scatter(inside, places, s=24, color=colours, lw=0, zorder=3)
            mean = mean_worth([worth for _, worth in cells])
            axes.plot([mean.times] * 2, [row - 0.33, row + 0.33], color="#222222", lw=2, zorder=2)
            axes.text(LIMITS[1] * 1.5, row, mean_words(mean), va="center", fontsize=9.5)
        axes.set_yticks(range(len(groups)), groups)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.set_xscale("log", base=2)
        axes.set_xlim(LIMITS[0] / 1.3, LIMITS[1] * 1.3)
        ticks = [1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32]
        axes.set_xticks(ticks, ["≤ ¼", "½", "1", "2", "4", "8", "16", "≥ 32"])
        axes.minorticks_off()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.suptitle(
            "What a pass with auto is worth in passes of traditional training that end at\n"
            "the same error. Dots are jobs and lengths, grey if the interval holds 1; bars, means.",
            x=0.01,
            ha="left",
            fontsize=10,
        )
        figure.savefig(path, metadata={"Date": None})


def _colour(worth: Worth) -> str:
    if worth.low > 1:
        return "#009e73"
    return "#d55e00" if worth.high < 1 else "#9a9a9a"


def pays(folder: str) -> str:
    """Return in words what `auto` is worth by kind of data, and where it is furthest ahead."""
    groups = worths_by_group()
    means = {name: mean_worth([each for _, each in cells]) for name, cells in groups.items()}
    said = {
        name: f"{mean.side}{mean.times:.1f}".replace(">", "more than ")
        for name, mean in means.items()
    }
    results = {each.workload.title: each for each in results_of(Path(folder).name)}
    title, length = "Fashion-MNIST, 20 % wrong", 16.0
    errors = [results[title].error(arm, length) for arm in (DEFAULT, BASELINE)]
    ours, plain = (f"{each.mean:.1f}" for each in errors)
    wrong = groups["wrong labels"]
    lost = [name for name, mean in means.items() if mean.times < 0.95 and mean.side != ">"]
    verdict = f" **On {' and '.join(lost)} it loses: train on everything there.**" if lost else ""
    return (
        f"Where labels are wrong, a pass with `auto` is worth {said['wrong labels']} passes of "
        f"traditional training, in the mean of {len(wrong)} jobs and lengths: with a fifth of\n"
        f"Fashion-MNIST's labels wrong, {length:g} passes end at {ours} % error, not {plain}. "
        f"On skewed or repeated images it is worth {said['skewed or repeated']}, in fine-tuning\n"
        f"{said['fine-tuning']}, on clean tables {said['clean tables']}, on images as published "
        f"{said['images as published']}, on source code {said['source code']}, on clicks "
        f"{said['clicks']}.{verdict}\n"
    )


def mean_words(mean: Worth) -> str:
    """Return a mean worth as the picture has it."""
    return f"{mean.side}{mean.times:.2f}×"


TABLES = {
    "compare": comparison,
    "gates": gates,
    "small": small,
    "opening": opening,
    "examples": examples,
    "zero": zero,
    "tokens": tokens,
    "bench": bench,
    "agreement": agreement,
    "choice": choice,
    "ranks": ranks,
    "traits": traits,
    "audit": audit,
    "rare": rare,
    "study": study,
    "pays": pays,
}


BLOCK = re.compile(rf"<!-- ({'|'.join(TABLES)}) (\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)


def rewritten(page: str) -> str:
    """Return a page with each of its tables as its records have it."""

    def fresh(match: re.Match[str]) -> str:
        kind, path = match.groups()
        return f"<!-- {kind} {path} -->\n{TABLES[kind](path)}<!-- end -->"

    return BLOCK.sub(fresh, page)


def draw_figures(folder: Path) -> None:
    """Draw a figure for each comparison and bench that a page shows, named as its records are."""
    for page in PAGES:
        for kind, path in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "compare":
                draw_comparison(compared(lab.frame(ROOT / path)), folder / f"{Path(path).name}.png")
            elif kind == "bench":
                record = json.loads((ROOT / path).read_text(encoding="utf-8"))
                draw_bench(Findings.read(record), folder / f"bench-{Path(path).stem}.png")


def draw_pages(folder: Path) -> None:
    """Copy the pages of the papers redone and of the study into a folder, and draw their figures.

    What shows images or classes of a data set is drawn where that is at hand, and copied elsewhere.
    """
    papers = (f"papers/{scale}" for scale in ("small", "cifar10", "saturated"))
    for name in (*papers, *(f"study/{stage}" for stage in STAGES)):
        source, target = ROOT / "records" / name, folder / name
        pages = shutil.ignore_patterns("runs")
        shutil.copytree(source, target, ignore=pages, dirs_exist_ok=True)
        if name.startswith("study"):
            stage = STAGES[source.name]
            draw_page(compose(stage, results_of(source.name)), target, svg=False)
            continue
        order = committed(source)
        for figure in figures_at(order.scale):
            try:
                drawing = figure.present(gather(figure, order, {})).figure
            except sb.DataError:
                continue
            if drawing is not None:
                save(drawing, target / figure.name, svg=False)


if __name__ == "__main__":
    draw_worths(ROOT / "docs" / "worth.svg")
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
