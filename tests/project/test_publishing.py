"""What a public host reads: workflows that call the scripts, forms for issues, one version."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: path for path in (ROOT / ".github/workflows").glob("*.yml")}
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
CALLED = {
    "ci": {".ci/run"},
    "matrix": {"scripts/matrix", "scripts/frameworks"},
    "docs": {"scripts/docs"},
    "release": {"scripts/package"},
}


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_each_workflow_is_known():
    assert WORKFLOWS.keys() == CALLED.keys()


@pytest.mark.parametrize("name", CALLED)
def test_a_workflow_calls_the_scripts_that_are_run_by_hand(name):
    workflow = read(WORKFLOWS[name])
    assert workflow["name"] == name
    assert workflow[True]  # `on` is a boolean in YAML 1.1
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert {each for job in jobs.values() for each in [job.get("needs")] if each} <= jobs.keys()
    steps = [step for job in jobs.values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    called = set(re.findall(r"(?:scripts|\.ci)/\w+", "\n".join(commands)))
    assert called == CALLED[name]
    assert all((ROOT / script).stat().st_mode & 0o100 for script in called)
    assert all(step.get("run") or re.search(r"@(v\d|release/)", step["uses"]) for step in steps)


def test_only_the_job_that_publishes_may_ask_for_an_identity():
    for path in WORKFLOWS.values():
        for name, job in read(path)["jobs"].items():
            assert (name == "publish") == ("id-token" in job.get("permissions", {}))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_a_name_and_fields_of_their_own(path):
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [field["id"] for field in form["body"]]
    assert len(set(fields)) == len(fields) >= 3
    assert all(field["attributes"]["label"] for field in form["body"])


def test_the_version_and_the_repository_are_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = read(ROOT / "CITATION.cff")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", changes, re.M)[0]
    assert version == project["version"] == citation["version"]
    assert date == str(citation["date-released"])
    assert project["urls"]["Source"] == citation["repository-code"]
    assert citation["license"] == project["license"]
