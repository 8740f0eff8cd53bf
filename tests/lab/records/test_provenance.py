import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import torch

from selective_backprop_lab.records import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout that holds a package; `code_version` believes it runs from there."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    package = tmp_path / "checkout" / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    monkeypatch.setattr(metadata, "version", lambda name: "1.2.3")
    provenance.code_version.cache_clear()
    yield package
    provenance.code_version.cache_clear()


def git(folder, *arguments):
    identity = ["-c", "user.name=fixture", "-c", "user.email=fixture@example.com"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(package):
    git(package, "init", "--quiet")
    git(package, "add", ".")
    git(package, "commit", "--quiet", "--no-verify", "-m", "fixture")
    return git(package, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["__init__.py", "novel.py"])
def test_changed_and_new_files_are_uncommitted_changes_of_a_commit(checkout, name):
    head = commit(checkout)
    assert provenance.code_version() == f"git {head[:12]}"
    provenance.code_version.cache_clear()
    (checkout / name).write_text("x = 1\n")
    assert provenance.code_version() == f"git {head[:12]} + uncommitted changes"


def test_a_package_installed_inside_somebodys_checkout_has_its_own_version(checkout):
    outer = checkout.parents[1]
    (outer / ".gitignore").write_text("src\n")
    commit(outer)
    assert provenance.code_version() == "1.2.3"


def test_without_git_it_is_the_packages_version(checkout, monkeypatch):
    commit(checkout)
    monkeypatch.setenv("PATH", "")
    assert provenance.code_version() == "1.2.3"


def test_hardware_says_what_decides_speed_and_names_no_machine():
    found = provenance.hardware()
    assert found["threads"] == torch.get_num_threads()
    assert found["capability"] == torch.backends.cpu.get_cpu_capability()
    text = str(found)
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
