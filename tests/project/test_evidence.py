"""What the README and the documentation claim is what the committed records say."""

import difflib
import json
import re
import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.pages import made_by, rollouts
from reproductions.auto.results import Results, judged

ROOT = Path(__file__).parents[2]
evidence = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "evidence.py")))


def prose(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def bench(record: str) -> list[dict]:
    return json.loads((ROOT / f"records/bench/{record}.json").read_text("utf-8"))["rows"]


WITH_TABLES = [page for page in evidence.PAGES if evidence.BLOCK.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", WITH_TABLES, ids=lambda page: page.name)
def test_every_table_is_the_one_its_records_give(page):
    assert len(WITH_TABLES) > 8
    text = page.read_text(encoding="utf-8")
    assert evidence.rewritten(text) == text


def test_where_the_program_behind_a_table_is_gone_the_table_says_so():
    assert made_by(["scripts/bench copies"]) == "Made by `scripts/bench copies`\n"
    assert made_by(["benchmarks/gone.py"]) == "Made at that commit by `benchmarks/gone.py`\n"


def test_the_readme_shows_the_lines_in_which_the_examples_differ():
    plain, selective = (
        (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("plain", "selective")
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for sign, count in ("+", 3), ("-", 0):
        changed = [line for line in difflib.ndiff(plain, selective) if line.startswith(sign)]
        changed = [line[2:] for line in changed if line[2:]]
        shown = re.findall(rf"^{re.escape(sign)}(\S.*)$", readme, re.MULTILINE)
        assert sorted(changed) == sorted(line for line in shown if not line.startswith(" "))
        assert len(changed) == count


def test_every_command_in_the_readme_exists():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    scripts = {f"scripts/{name}" for name in re.findall(r"scripts/(\w+)", text)}
    assert {"scripts/demo", "scripts/test"} <= scripts
    linked = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert linked
    assert all((ROOT / target).exists() for target in [*scripts, *linked])


def test_what_is_said_of_single_jobs_is_on_record():
    page, found = prose("docs/auto.md"), evidence.results_of("instead")
    both = judged(found, "auto+smoothing-0.3")
    counts = Counter(job.verdict for job in both)
    assert (len(both), counts["gains"], counts["loses"]) == (32, 6, 1)
    assert "both together in six" in page
    wrong, coloured = (
        next(each for each in found if each.workload.title == f"{data}, 20 % wrong")
        for data in ("Fashion-MNIST", "CIFAR-10")
    )
    ends = {
        arm: " and ".join(f"{wrong.error(arm, cells[at]).mean:.1f}" for at in wrong.rivals)
        for arm, cells in (
            ("auto+smoothing-0.3", {at: at for at in wrong.rivals}),
            ("traditional", wrong.rivals),
        )
    }
    both_end, plain_ends = ends.values()
    assert f"`auto` with smoothing ends at {both_end} % error" in page
    assert f"and the best plain training at {plain_ends} %" in page
    half = judged(found, "traditional+progressive")
    gaining = [job.title for job in half if job.verdict == "gains"]
    assert (len(half), len(gaining)) == (12, 7)
    assert all(title.startswith("CIFAR") for title in gaining)
    alike = {f"CIFAR-10, 20 % taken for what is alike at {at}" for at in (2, 8)}
    assert not any(job.title in alike for job in both if job.verdict != "level")
    assert {job.verdict for job in both if job.results is coloured} == {"level"}


def test_what_is_said_of_cpu_time_is_on_record():
    page = prose("docs/auto.md")

    def more(stage, arm, start=""):
        jobs = judged(evidence.results_of(stage), arm, Results.gain_in_time)  # that can be timed
        jobs = [job for job in jobs if job.title.startswith(start)]
        pairs = ((job.results, job.length) for job in jobs)
        times = [each.seconds(arm, at) / each.seconds("traditional", at) for each, at in pairs]
        return jobs, times

    halved, times = more("instead", "traditional+progressive")
    assert (f"{min(times):.1f}", f"{max(times):.1f}") == ("1.2", "1.6")
    assert "took 1.2 to 1.6 times the CPU time" in page
    gain = [job for job in halved if job.verdict == "gains"]
    assert len(gain) == 4
    assert {job.results.workload.recipe.data for job in gain} == {"cifar100"}
    low, high = min(-job.gain.mean for job in gain), max(-job.gain.mean for job in gain)
    assert f"gains {low:.1f} to {high:.1f} points on CIFAR-100" in page
    fashion, _ = more("instead", "traditional+progressive", "Fashion")
    assert {job.verdict for job in fashion} == {"loses"}
    assert "loses {1} and {0} points".format(*(f"{j.gain.mean:.1f}" for j in fashion)) in page


def test_what_is_said_of_seeds_is_on_record():
    measured = prose("docs/measured.md")
    found = evidence.results_of("instead")
    jobs = [each.of("auto", length).seed.nunique() for each in found for length in each.rivals]
    assert f"with five in the development and in {jobs.count(5)} of the [{len(jobs)}" in measured


def test_what_is_said_of_recovery_is_on_record():
    jobs = evidence.foretold("records/study")
    *numbers, halves = evidence.ranking(jobs).rows
    assert all(float(row[1].replace("−", "-")) < 0.6 for row in numbers)
    assert float(halves[1]) > 0.6
    assert "**None of the six foretells the gain.**" in prose("docs/pays.md")
    # What is the gain itself, or its opposite, ranks the jobs as the gain does, or the other way.
    gains = [-job.results.change("auto", job.length).mean for job, _ in jobs]
    planted = [(jobs[at][0], {"it": gain, "not it": -gain}) for at, gain in enumerate(gains)]
    for row, one in zip(evidence.ranking(planted).rows, ("+1.00", "−1.00"), strict=False):
        assert (row[1], row[2], row[3][:5]) == (one, f"{one} to {one}", one)


def test_what_is_said_of_a_residual_net_is_on_record():
    page, found = prose("docs/jobs.md"), evidence.results_of("nets")

    def gains(arm, wrong):
        title = f"Digits, residual, {wrong} % wrong"
        return [job.gain.mean for job in judged(found, arm) if job.results.workload.title == title]

    def shares(wrong):
        pairs = zip(gains("auto+smoothing-0.3", wrong), gains("oracle", wrong), strict=True)
        return [round(100 * both / oracle) for both, oracle in pairs]

    few, many = shares(20), shares(40)
    assert few[1] <= 0
    assert f"reach {few[0]} % of the oracle's gain after 8 passes" in page
    assert f"reach {many[0]} % of it after 8 passes and {many[1]} % after 16" in page
    alone, smoothed = (gains(arm, 40)[1] for arm in ("auto", "traditional+smoothing-0.3"))
    assert f"`auto` ends {alone:.1f} points above" in page
    assert f"smoothing {smoothed:.1f} points above" in page


def test_what_is_said_of_suspects_where_a_tenth_is_wrong_is_on_record():
    found = {"digits": [], "fashion-mnist": []}
    for row in bench("label-issues-tenth"):
        if row["judged_by"] == "the other half":
            found[row["data"]].append(row["own"]["ours"] / row["numbers"]["ours"])
    few, many = (100 * sum(found[data]) / len(found[data]) for data in ("fashion-mnist", "digits"))
    said = f"{many:.0f} % of them on digits, and {few:.0f} % on Fashion-MNIST"
    assert said in prose("docs/audit.md")


def test_what_is_said_of_rules_of_other_papers_is_on_record():
    page = prose("docs/rules.md")
    rows = {row[0]: row[1:] for row in evidence.standing(evidence.results_of("rules")).rows}
    gaining = {name: row[1] for name, row in rows.items() if row[1] != "0"}
    assert gaining == {"auto": "3", "recorded-sb": "1", "divbs": "1"}
    assert rows["divbs"][3] == "10"
    assert {row[4].partition(",")[0] for row in rows.values()} == {"0"}
    assert "Only `divbs` gains, in one job, and it loses in ten" in page
    assert "`auto` gains in three jobs and `recorded-sb` in one" in page


def test_what_is_said_of_sampling_rollouts_is_on_record():
    page, record = prose("docs/rollouts.md"), bench("trl-sampled")
    tasks = [*dict.fromkeys(row["task"] for row in record)]

    def shares(arm, key):
        """Return what an arm took of plain training, by task."""
        own, plain = (
            [sum(r[key] for r in record if (r["arm"], r["task"]) == (a, t)) for t in tasks]
            for a in (arm, "GRPOTrainer")
        )
        return [n / of for n, of in zip(own, plain, strict=True)]

    def within(arm, key, low, high):
        return all(low < share < high for share in shares(arm, key))

    assert "trains on a third of the rows that `GRPOTrainer` trains on" in page
    assert within("non-zero", "rows", 0.28, 0.4)
    assert within("non-zero", "tokens", 0.9, 1.01)
    assert within("non-zero", "cpu_seconds", 0.5, 0.8)
    assert within("non-zero, 3 refills", "updates", 0.35, 0.55)
    assert within("prompts rest", "tokens", 0.7, 1.3)
    assert "generate more tokens than plain training in two of three tasks" in page
    assert sum(share > 1.3 for share in shares("all three", "tokens")) == 2
    assert all(row["solved"] for row in record)


def test_what_is_said_of_replay_is_on_record():
    page, record = prose("docs/rollouts.md"), bench("trl-replayed")

    def clear(arm, column, rows):
        """Return the sign by task of a difference from the first arm, or 0 within its interval."""
        _, (_, _, *lines) = rollouts(rows)
        found = {name: cells for name, *cells in (line[2:-2].split(" | ") for line in lines)}
        signs = []
        for cell in found[arm][column::4]:
            more, width = (float(part.replace("−", "-")) for part in cell.split(" ± "))
            signs.append(0 if abs(more) <= width else 1 if more > 0 else -1)
        return signs

    replays, trained = ("replay=8", "replay=32"), 'mean="trained"'
    assert '**replay** solves fewer prompts of "sort" than `GRPOTrainer`' in page
    assert all(clear(arm, 1, record) == [0, -1, 0] for arm in replays)
    assert 'In equal CPU time, `replay=8` solves more of "reverse" and "add".' in page
    assert clear("replay=8", 3, record) == [1, 0, 1]
    assert 'Compared with "non-zero", nothing is clear' in page
    ours = [row for row in record if row["arm"] != "GRPOTrainer"]
    assert all(clear(arm, at, ours) == [0] * 3 for arm in (*replays, trained) for at in (1, 3))
