"""What a public host reads: workflows that call the scripts, and one version."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
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
    assert project["urls"]["Source"] == citation["repository-code"]
    assert citation["license"] == project["license"]
