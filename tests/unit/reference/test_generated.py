"""What `python -m securebench.reference.generate` writes is what is committed, and it holds."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from securebench.reference.generate import TESTER_SCHEMA, generated_files

ROOT = Path(__file__).parents[3]
FILES = generated_files()
SCHEMA = json.loads(FILES[TESTER_SCHEMA])
TESTERS = sorted(
    (*ROOT.glob("benchmarks/*/tester.yaml"), *ROOT.glob("docs/examples/*/tester.yaml"))
)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_committed_file_is_the_generated_one(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name], "run `make generate`"


def test_the_command_writes_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["generate", str(tmp_path)])
    monkeypatch.delitem(sys.modules, "securebench.reference.generate")
    runpy.run_module("securebench.reference.generate", run_name="__main__")
    assert {name: (tmp_path / name).read_text() for name in FILES} == FILES


@pytest.mark.parametrize("path", TESTERS, ids=lambda path: path.parent.name)
def test_the_schema_accepts_our_tester_yamls(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


GOOD = yaml.safe_load((ROOT / "docs/examples/slugs/tester.yaml").read_text())
BAD = {
    "unknown section": {**GOOD, "runs": {}},
    "version as a number": {**GOOD, "schema_version": 0.2},
    "unknown type": {**GOOD, "harness": {"type": "comand"}},
    "unknown key of a command": {**GOOD, "harness": {"type": "command", "config": {"x": 1}}},
    "command without a command": {**GOOD, "harness": {"type": "command"}},
    "model of a command": {
        **GOOD,
        "harness": {"type": "command", "config": {"command": "x", "model": "m"}},
    },
    "codex without a model": {**GOOD, "harness": {"type": "codex", "config": {}}},
}


@pytest.mark.parametrize("case", BAD)
def test_the_schema_refuses_what_lint_refuses(case: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(BAD[case], SCHEMA)
