"""The package shows exactly what it means to show, stands without extras, and imports downwards."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from importlinter.cli import lint_imports
from jaxtyping import TypeCheckError

import selective_backprop as sb

ROOT = Path(__file__).parents[1]
EXTRAS = {
    *("sklearn", "scipy", "PIL", "typer", "rich", "matplotlib", "plotly", "beartype"),
    *("accelerate", "keras", "lightning", "ray", "transformers"),
}


def public_names() -> list[str]:
    return [
        name
        for name, value in vars(sb).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]


def documented_things() -> dict[str, object]:
    """Every public class and function, and every public method and property of those classes."""
    things = {}
    for name in sb.__all__:
        value = getattr(sb, name)
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


def test_every_public_name_is_listed_once_and_in_order():
    assert sb.__all__ == sorted(public_names())


@pytest.mark.parametrize("name", documented_things())
def test_every_public_thing_says_what_it_is(name):
    thing = documented_things()[name]
    docstring = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    assert docstring, f"{name} has no docstring"
    assert not docstring.startswith(f"{name}("), f"{name} has only the docstring it was born with"


def test_shapes_are_checked_wherever_tests_run():
    with pytest.raises(TypeCheckError):
        sb.selection_probability(torch.zeros(2, 2), torch.zeros(3), beta=1)


def test_importing_the_package_imports_no_extra():
    code = "import sys, selective_backprop; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "selective_backprop" in loaded
    assert not EXTRAS & set(loaded)


def test_importing_the_package_leaves_the_lab_alone():
    code = "import sys, selective_backprop; sys.exit('selective_backprop.lab' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_import_points_down():
    # The report goes to standard output, which pytest shows where this fails.
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("_types.py", "from selective_backprop._history import History", "points down"),
        ("_types.py", "import selective_backprop as sb", "Nothing inside goes through"),
        ("scorers/_forward.py", "from selective_backprop.selectors import Top", "points down"),
        ("lab/records.py", "from selective_backprop._errors import DataError", "public face"),
        ("_novel.py", "", "points down"),
    ],
)
def test_an_import_that_does_not_point_down_is_caught(tmp_path, module, statement, contract):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src" / "selective_backprop" / module).open("a") as source:
        source.write(f"\n{statement}\n")
    lint = "import sys; sys.path.insert(0, 'src'); from importlinter import cli; "
    report = subprocess.run(
        [sys.executable, "-c", lint + "sys.exit(cli.lint_imports(no_cache=True))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    broken = [line for line in report.stdout.splitlines() if "BROKEN" in line]
    assert report.returncode == 1, report.stdout + report.stderr
    assert any(contract in line for line in broken), report.stdout
