"""The package and its command show what they mean to, need no extras, and import downwards."""

import functools
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from beartype.roar import BeartypeCallHintViolation
from importlinter.cli import lint_imports

import selective_backprop as sb
from selective_backprop import __main__ as command

ROOT = Path(__file__).parents[2]
EXTRAS = {
    *("sklearn", "scipy", "PIL", "typer", "rich", "matplotlib", "beartype", "jaxtyping"),
    *("accelerate", "keras", "lightning", "ray", "transformers", "trl"),
}
SELDOM = ("guide", "experimental")
FACE = (sb, sb.scorers, sb.selectors, sb.experimental, sb.guide)


def public_names(module: ModuleType) -> list[str]:
    named = (name for name in dir(module) if not name.startswith("_"))
    return [name for name in named if not isinstance(getattr(module, name), ModuleType)]


def documented_things() -> dict[str, object]:
    """Every public class and function, and every public method and property of those classes."""
    things = {}
    public = {name: getattr(module, name) for module in FACE for name in module.__all__}
    for name, value in public.items():
        if inspect.isclass(value) or inspect.isroutine(value):
            things[name] = value
        if inspect.isclass(value):
            things |= {
                f"{name}.{member}": getattr(value, member)
                for member, definition in vars(value).items()
                if not member.startswith("_")
                and (inspect.isroutine(definition) or isinstance(definition, property))
            }
    return things


@pytest.mark.parametrize("module", FACE, ids=lambda module: module.__name__)
def test_every_public_name_is_listed_once_and_in_order(module):
    assert module.__all__ == sorted(public_names(module))


def test_a_public_name_is_found_in_one_module_and_the_context_of_both_parts_in_two():
    assert len(sb.__all__) <= 60
    found = Counter(name for module in FACE for name in module.__all__)
    assert {name for name, times in found.items() if times > 1} == {"Context"}
    assert sb.scorers.Context is sb.selectors.Context
    with pytest.raises(AttributeError, match=r"'selective_backprop'.*'advice'"):
        _ = sb.advice  # ty: ignore[unresolved-attribute]


def test_every_public_thing_says_what_it_is():
    things = documented_things()
    assert len(things) > 100
    for name, thing in things.items():
        docstring = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
        assert docstring, f"{name} has no docstring"
        assert not docstring.startswith(f"{name}("), f"{name} has only a dataclass's own docstring"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sb.selectors.tilted_odds(torch.zeros(2, 2, dtype=torch.float64), 1),
        lambda: sb.scorers.Agreement.between(torch.zeros(2), torch.zeros(3), rate=0.5),
        lambda: sb.selectors.History("1024"),
        lambda: sb.selectors.Percentile("2"),
        lambda: sb.selectors.History(8).file([1.0]),
    ],
    ids=["shape", "sizes that differ, class method", "constructor", "data class", "method"],
)
def test_types_and_shapes_are_checked_wherever_tests_run(wrong):
    with pytest.raises(BeartypeCallHintViolation):
        wrong()


FRESH = """
import runpy, sys, torch, typing
known = {*sys.modules}
import selective_backprop as sb
print(*{*sys.modules} - known)
sys.modules["jaxtyping"] = None
assert "guide" in dir(sb)
sb.guide.advise  # which comes when it is asked for
hints = typing.get_type_hints(sb.selectors.tilted_odds, include_extras=True)
print(hints["probabilities"].__metadata__)
sys.argv[1:] = ["--version"]
runpy.run_module("selective_backprop", run_name="__main__")
"""


@functools.cache
def said_in_a_fresh_process() -> list[str]:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_the_package_imports_little_but_torch_and_nothing_that_training_seldom_needs():
    loaded = said_in_a_fresh_process()[0].split()
    assert "selective_backprop" in loaded
    others = {name for name in loaded if name.split(".")[0] != "selective_backprop"}
    assert len(others) < 50, sorted(others)  # torch._dynamo alone brings 800
    assert not EXTRAS & {name.split(".")[0] for name in others}
    seldom = {"selective_backprop_lab", *(f"selective_backprop.{part}" for part in SELDOM)}
    assert not seldom & set(loaded)


def test_where_jaxtyping_is_missing_shapes_are_notes_and_python_runs_the_package_as_the_command():
    assert said_in_a_fresh_process()[1:] == [
        "(' candidate',)",
        f"selective-backprop {sb.__version__}",
    ]


def test_the_version_is_that_of_the_installed_package_if_there_is_one(monkeypatch):
    monkeypatch.setattr(metadata, "version", {"selective-backprop": "7.8.9"}.__getitem__)
    assert sb.__version__ == "7.8.9"
    monkeypatch.undo()
    monkeypatch.setattr(metadata.Distribution, "discover", lambda **_: iter(()))
    assert sb.__version__ == "0+unknown"


def test_every_import_points_down():
    # The report goes to standard output, which pytest shows where this fails.
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_imports_that_do_not_point_down_are_named(tmp_path):
    forbidden = {
        "selective_backprop/_core/types.py": "import selective_backprop._memory.history",
        "selective_backprop/_core/stopwatch.py": "import selective_backprop as sb",
        "selective_backprop_lab/meter.py": "import selective_backprop.guide._label_doubts",
    }
    for folder in ("src", "reproductions"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, statement in forbidden.items():
        with (tmp_path / "src" / module).open("a") as source:
            source.write(f"\n{statement}\n")
    lint = "import sys; sys.path.insert(0, 'src'); from importlinter import cli; "
    command = [sys.executable, "-c", lint + "sys.exit(cli.lint_imports(no_cache=True))"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    for module, statement in forbidden.items():
        importing = module.removesuffix(".py").replace("/", ".")
        imported = statement.split()[1].removesuffix(".label_doubts")
        assert f"{importing} -> {imported}" in done.stdout, done.stdout


@pytest.mark.parametrize("missing", [["typer"], ["matplotlib", "pandas"]])  # at once, and later
def test_without_its_extra_the_command_names_what_to_install(monkeypatch, capsys, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "argv", ["selective-backprop", "--help"])
    assert command.main() == 1
    message = capsys.readouterr().err
    assert ", ".join(missing) in message
    assert "pip install 'selective-backprop[lab]'" in message


def test_what_the_command_looks_for_is_what_its_extra_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [each.partition(">")[0] for each in project["optional-dependencies"]["lab"]]
    installed = metadata.packages_distributions()
    assert [installed[name][0].lower() for name in command.LAB] == needed


def test_with_its_extra_the_command_is_the_labs_and_a_fault_in_the_lab_is_no_missing_extra(
    monkeypatch,
):
    cli, name = ModuleType("cli"), "selective_backprop_lab.cli.main"
    cli.main = lambda: 7
    monkeypatch.setitem(sys.modules, name, cli)
    monkeypatch.setattr(name, cli, raising=False)
    assert command.main() == 7
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(name, raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"selective_backprop_lab\.cli"):
        command.main()


WORKFLOWS = {path.stem: path for path in (ROOT / ".github/workflows").glob("*.yml")}
CALLED = {
    "ci": {".ci/run"},
    "matrix": {"scripts/matrix", "scripts/frameworks"},
    "docs": {"scripts/docs"},
    "release": {"scripts/package"},
}


def test_workflows_call_the_scripts_that_are_run_by_hand():
    called = {}
    for name, path in WORKFLOWS.items():
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        for job, told in workflow["jobs"].items():  # only the one that publishes may ask who it is
            assert (job == "publish") == ("id-token" in told.get("permissions", {}))
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        commands = "\n".join(step["run"] for step in steps if "run" in step)
        called[name] = set(re.findall(r"(?:scripts|\.ci)/\w+", commands))
        assert all((ROOT / script).stat().st_mode & 0o100 for script in called[name])
    assert called == CALLED


def test_the_version_and_the_repository_are_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", changes, re.M)[0]
    assert version == project["version"] == citation["version"]
    assert date == str(citation["date-released"])
    pages = [*ROOT.glob("*.*"), *ROOT.glob("docs/*.*"), *ROOT.glob(".github/**/*.yml")]
    text = " ".join(page.read_text("utf-8", errors="ignore") for page in pages if page.is_file())
    own = {*re.findall(r"[\w./:]+github\.com/[\w.-]+/selective-backprop\b", text)}
    assert own == {project["urls"]["Source"]}
    assert citation["license"] == project["license"]
