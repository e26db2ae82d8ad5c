"""The workflows of this repository, and what keeps their actions and modules up to date."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
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
