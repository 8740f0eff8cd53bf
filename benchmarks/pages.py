"""The tables that pages show of the records of benchmarks, by kind.

Each takes the path of a record from the root, and returns Markdown.
"""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from selective_backprop_lab.analysis.estimates import estimate
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.bench.rounds import Median

ROOT = Path(__file__).parents[1]
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


TABLES = {
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
}
