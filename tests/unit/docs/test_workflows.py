"""The workflows of this repository, and what keeps their actions and modules up to date."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMA = Path(__file__).parent / "schemas" / "github-workflows.json"
PINNED = re.compile(r"uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not PINNED.search(line)] == []


def test_every_go_module_is_kept_up_to_date():
    known = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))
    (go,) = (each for each in known["updates"] if each["package-ecosystem"] == "gomod")
    modules = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("images/*/go.mod")}
    assert set(go["directories"]) == modules


def workflow(path):
    """Return a workflow; YAML 1.1 takes its key ``on`` for a boolean."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    triggers = found.pop(True)
    return {**found, "on": triggers}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid(path):
    jsonschema.validate(workflow(path), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_pull_requests_are_checked_by_targets_that_exist():
    check = workflow(ROOT / ".github" / "workflows" / "check.yml")
    assert "pull_request" in check["on"]
    (job,) = check["jobs"].values()
    targets = job["strategy"]["matrix"]["target"]
    assert {"verify", "unit"} <= set(targets)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


@pytest.mark.parametrize(
    ("heading", "code"),
    [
        ("## {version} (2026-12-01)", 0),
        ("## {version} (unreleased)", 1),
        ("## {version}.1 (2026-12-01)", 1),
    ],
)
def test_a_tag_is_released_if_version_and_changelog_say_so(tmp_path, heading, code):
    (steps,) = (
        job["steps"]
        for job in workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"].values()
    )
    check = next(step["run"] for step in steps if step.get("name", "").startswith("The tag is"))
    for name in ("pyproject.toml", "charts/securebench/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n{heading.format(version=version)}\n")

    done = subprocess.run(
        ["bash", "-e", "-c", check],
        cwd=tmp_path,
        env={"VERSION": f"v{version}", "PATH": os.environ["PATH"]},
        check=False,
    )

    assert done.returncode == code
