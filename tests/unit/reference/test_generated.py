"""What `python -m securebench.reference.generate` writes is what is committed, and it holds."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from securebench.agents.registry import AGENTS
from securebench.benchmark.families.registry import FAMILIES, row_families
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import ASSET, MANIFEST, ROW, parse_manifest
from securebench.client.tester_config import TESTER, parse_tester_config
from securebench.reference import generate
from securebench.reference.generate import (
    FIELDS_PAGE,
    TESTER_PAGE,
    TESTER_SCHEMA,
    FieldRow,
    config_schema,
    field_rows,
    generated_files,
)

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
    "a pack by folder and by files": {**GOOD, "pack": "mine"},
    "no pack": {name: value for name, value in GOOD.items() if name != "benchmark"},
    "unknown type": {**GOOD, "harness": {"type": "comand"}},
    "unknown key of a command": {**GOOD, "harness": {"type": "command", "config": {"x": 1}}},
    "command without a command": {**GOOD, "harness": {"type": "command"}},
    "version of a command": {
        **GOOD,
        "harness": {"type": "command", "config": {"command": "x", "version": "m"}},
    },
    "codex without a model": {**GOOD, "harness": {"type": "codex", "config": {}}},
}


@pytest.mark.parametrize("case", BAD)
def test_the_schema_refuses_what_lint_refuses(case: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(BAD[case], SCHEMA)


OBJECTS = {
    "manifest": MANIFEST.schema,
    "row": ROW.schema,
    "asset": ASSET.schema,
    "tester YAML": generate.with_descriptions(TESTER.schema, generate.TESTER_MEANINGS),
    **{f"config of {name}": config_schema(name) for name in AGENTS},
    **{f"input of {name}": family.input.schema for name, family in row_families().items()},
    **{f"eval of {name}": family.eval.schema for name, family in row_families().items()},
}


def rows(name: str) -> list[FieldRow]:
    return list(field_rows(OBJECTS[name]))


@pytest.mark.parametrize("name", OBJECTS)
def test_every_field_has_a_meaning_and_an_example(name: str) -> None:
    what = (
        "write them with described(...), those of a tester YAML in securebench.reference.generate"
    )
    wanted = {"markdownDescription", "examples"}
    assert [row.name for row in rows(name) if not wanted <= set(row.schema)] == [], what


@pytest.mark.parametrize("name", OBJECTS)
def test_every_example_and_default_holds(name: str) -> None:
    for row in rows(name):
        for value in (*row.schema["examples"], row.schema.get("default", ...)):
            if value is not ...:
                jsonschema.validate(value, dict(row.schema))


def test_no_meaning_is_of_a_key_that_is_not_there() -> None:
    assert set(generate.TESTER_MEANINGS) == {row.name for row in rows("tester YAML")}
    configs = {row.name for agent in AGENTS for row in rows(f"config of {agent}")}
    assert set(generate.CONFIG_MEANINGS) <= configs


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", FILES[page], re.DOTALL)


@pytest.mark.parametrize("family", row_families())
def test_the_task_of_a_page_is_one_of_its_family(family: str) -> None:
    (manifest,) = blocks(FIELDS_PAGE, "yaml")
    row, shown = map(json.loads, blocks(f"docs/reference/families/{family}.md", "json"))
    task = compile_benchmark_row({**row, "family": family}, manifest=parse_manifest(manifest))
    assert task.agent_payload() == shown


def test_the_tester_yaml_of_the_page_is_one() -> None:
    (text,) = blocks(TESTER_PAGE, "yaml")
    assert parse_tester_config(yaml.safe_load(text)).harness.type == "command"


@pytest.mark.parametrize("family", row_families())
def test_the_page_of_a_family_shows_each_key_with_its_lane(family: str) -> None:
    page = FILES[f"docs/reference/families/{family}.md"]
    for section in (FAMILIES[family].input, FAMILIES[family].eval):
        for field in section.fields:
            lane = "agent" if field.lane == "public" else field.lane
            assert f"| `{field.name}` | {lane} |" in page
