"""The runner of benchmarks: rounds of ratios, one record of rows, and which records are stale."""

import json
import re
import subprocess

import pytest
from fixture_loaders import Clock

from benchmarks import case as cases
from benchmarks.__main__ import line_of, main, measured_by, state_of, states_of, with_settings
from benchmarks.case import FEWEST, ROOT, Quantity, Rounds, case, find_cases, measure, value


@pytest.mark.parametrize(("limit", "verdict"), [(3.4, "pass"), (2.7, "fail"), (3.0, "unresolved")])
def test_a_ratio_is_taken_within_each_round_and_judged_by_its_whole_interval(limit, verdict):
    clock, drift = Clock(), [1.0]

    def slow() -> None:
        drift[0] *= 1.1  # a machine that gets slower has the same ratio all the time
        clock.spend(3 * drift[0])

    @case()
    def ratios():
        arms = {"slow": slow, "fast": lambda: clock.spend(drift[0])}
        ratio = Quantity("slow / fast", lambda spent: spent["slow"] / spent["fast"], limit=limit)
        yield Rounds(arms, [ratio], {"net": "linear"})

    (row,) = measure(ratios, {}, seconds=0, clock=clock)
    assert 3 / 1.1 <= row["low"] <= row["median"] <= row["high"] <= 3.3 * 1.001
    assert (row["rounds"], row["verdict"]) == (FEWEST, verdict)
    assert (row["case"], row["net"]) == ("test_benchmarks.ratios", "linear")
    assert row["seconds"]["slow"] > row["seconds"]["fast"]
    assert f"limit {limit}" in line_of(row)


def test_rounds_go_on_until_the_ratio_is_known_or_as_often_as_asked_for():
    clock, disturbed = Clock(), iter([2.0] * 12)
    arms = {"noisy": lambda: clock.spend(next(disturbed, 1.0)), "even": lambda: clock.spend(1.0)}

    @case()
    def noisy():
        yield Rounds(arms, [Quantity("ratio", lambda spent: spent["noisy"] / spent["even"])])

    (row,) = measure(noisy, {}, clock=clock)
    assert row["rounds"] > FEWEST
    assert row["high"] - row["low"] <= 0.02
    assert "verdict" not in row
    (row,) = measure(noisy, {}, rounds=2, clock=clock)
    assert row["rounds"] == 2


@pytest.fixture
def kept(monkeypatch):
    """A case with settings."""

    @case("src/selective_backprop/selectors")
    def kept(*, seeds: tuple[int, ...] = (0, 1), net: str = "linear", rounds: int = 5):
        "How many are kept."
        for seed in seeds:
            yield {"seed": seed, "net": net} | value("kept", 0.5, "share", 1.0)

    monkeypatch.setattr("benchmarks.__main__.find_cases", lambda names: [kept])
    return kept


def test_a_record_has_the_command_the_settings_and_a_row_for_each_number(kept, tmp_path):
    file, line = tmp_path / "a.json", ["kept", "--set", "net=deep", "--rounds", "7", "--out"]
    assert main([*line, str(file)]) == 0
    record = json.loads(file.read_text())
    settings = {"seeds": [0, 1], "net": "deep", "rounds": 7}
    assert record["cases"] == {"test_benchmarks.kept": settings}
    rows = [(row["seed"], row["net"], row["verdict"]) for row in record["rows"]]
    assert rows == [(0, "deep", "pass"), (1, "deep", "pass")]
    assert record["command"] == f"scripts/bench {' '.join(line)} {file}"


def test_a_case_measures_nothing_more_by_itself_when_its_seconds_are_over(kept):
    assert [row["seed"] for row in measure(kept, {}, seconds=0)] == [0]
    assert [row["seed"] for row in measure(kept, {})] == [0, 1]


def test_settings_are_read_as_what_stands_there():
    made = case()(lambda *, seeds=(0,), share=0.5, name="": iter(()))
    ((_, settings),) = with_settings([made], {"seeds": "3,4", "share": "1"}, rounds=None)
    assert settings == {"seeds": (3, 4), "share": 1.0, "name": ""}
    with pytest.raises(SystemExit, match="there are name, seeds, share"):
        with_settings([made], {"shares": "1"}, rounds=None)


def test_something_over_its_limit_is_a_failure_and_the_list_names_cases(monkeypatch, capsys):
    assert main(["--list"]) == 0
    assert re.search(r"steps\.size .*\n.*\n +large=100000000", capsys.readouterr().out)

    @case()
    def too_much():
        yield value("memory", 9.0, "bytes", 8.0)

    monkeypatch.setattr("benchmarks.__main__.find_cases", lambda names: [too_much])
    assert main([]) == 1


def test_all_cases_say_what_they_measure_where_it_is_there():
    there = find_cases(cases.modules())
    assert len({each.name for each in there}) >= 20
    for each in there:
        assert each.about.endswith(".")
        assert each.measures
        assert all((ROOT / path).exists() for path in each.measures)
    assert find_cases(["steps.auto"])[0].name == "steps.auto"
    for unknown in ("nothing", "steps.nothing"):
        with pytest.raises(SystemExit, match=f"no case '{unknown}'"):
            find_cases([unknown])


def test_a_record_is_stale_where_a_file_that_it_measured_has_changed(tmp_path):
    def git(*command: str) -> str:
        line = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *command]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for text in ("one", "two"):  # the second commit changes `a.py`
        (tmp_path / "a.py").write_text(text)
        (tmp_path / "b.py").write_text("same")
        git("add", ".")
        git("commit", "-q", "-m", text)
    root, commit = tmp_path, git("rev-parse", "HEAD~1")[:12]
    assert state_of(f"git {commit}", ["b.py"], root) == "current"
    stale = f"stale: 1 files since {commit}, a.py"
    assert state_of(f"git {commit}", ["a.py", "b.py"], root) == stale
    assert state_of(f"git {commit} + uncommitted changes", ["b.py"], root).startswith("unknown")
    for version in ("git 0123456789ab", "0.2.0", "0+unknown"):
        assert "not in the history" in state_of(version, ["a.py"], root)
    assert state_of(f"git {commit}", [], root) == "no case measures it any more"


def test_every_committed_record_has_a_line_and_names_its_cases():
    lines = list(states_of())
    assert len(lines) >= 20
    assert not [line for line in lines if "no case" in line]
    fresh = {"rows": [], "cases": {"steps.auto": {}}}
    assert "src/selective_backprop/strategies" in measured_by(fresh)
