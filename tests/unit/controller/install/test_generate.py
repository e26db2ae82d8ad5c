from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from securebench.controller.install import generate
from securebench.controller.install.generate import (
    BEGIN,
    END,
    Value,
    generated_files,
    values,
    with_values,
)
from securebench.run.api.crd import benchmark_run_crd
from securebench.suite.api import benchmark_suite_crd

ROOT = Path(__file__).parents[4]
FILES = generated_files(ROOT)


def nodes(node: object) -> Iterator[dict[str, object]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from nodes(value)
    if isinstance(node, list):
        for value in node:
            yield from nodes(value)


def schemas() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for made in (benchmark_run_crd(), benchmark_suite_crd()):
        (version,) = json.loads(json.dumps(made))["spec"]["versions"]
        found += nodes(version["schema"]["openAPIV3Schema"]["properties"])
    return found


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_committed_file_is_the_generated_one(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name], "run `make generate`"


def test_the_program_writes_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = tmp_path / "charts" / "securebench"
    chart.mkdir(parents=True)
    (chart / "values.yaml").write_text("# One.\na: 1\n", encoding="utf-8")
    (chart / "values.schema.json").write_text('{"properties": {"a": {}}}', encoding="utf-8")
    (chart / "README.md").write_text(f"x\n{BEGIN}\nold\n{END}\ny\n", encoding="utf-8")
    record = tmp_path / generate.RECORD_SCHEMA
    record.parent.mkdir(parents=True)
    record.write_text('{"properties": {"producer_metadata": {"properties": {}}}}')
    monkeypatch.setattr(sys, "argv", ["generate", str(tmp_path)])
    runpy.run_path(generate.__file__, run_name="__main__")
    assert "| `a` | `1` | One. |" in (chart / "README.md").read_text(encoding="utf-8")
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["a"] == {}
    assert "namespace" not in schema["properties"]["settings"]["properties"]
    producer = json.loads(record.read_text(encoding="utf-8"))["properties"]["producer_metadata"]
    assert "codex" in producer["properties"]["harness"]["enum"]
    assert "codex_model" in producer["properties"]
    assert (tmp_path / "crds" / "securebench.dev_benchmarkruns.yaml").read_text(
        encoding="utf-8"
    ) == FILES["crds/securebench.dev_benchmarkruns.yaml"]


def test_the_schema_is_structural() -> None:
    for schema in schemas():
        assert not {"$ref", "anyOf", "allOf", "oneOf", "$defs", "propertyNames"} & set(schema)
        assert schema.get("additionalProperties") is not False


def test_everything_is_bounded_and_described() -> None:
    for schema in schemas():
        match schema.get("type"):
            case "string" if "enum" not in schema and schema != {"type": "string"}:
                assert "maxLength" in schema, schema
            case "array":
                assert "maxItems" in schema, schema
                assert "x-kubernetes-list-type" in schema, schema
            case "object" if "additionalProperties" in schema:
                assert "maxProperties" in schema, schema
            case "integer":
                assert "minimum" in schema, schema


def test_every_rule_has_a_message_for_users() -> None:
    crd = benchmark_run_crd()
    rules = [
        rule
        for node in nodes(crd)
        for rule in node.get("x-kubernetes-validations", [])  # type: ignore[union-attr,attr-defined]
    ]
    assert len(rules) > 40
    assert all(len(rule["message"]) > 20 for rule in rules)


def test_columns() -> None:
    (version,) = benchmark_run_crd()["spec"]["versions"]  # type: ignore[index]
    columns = version["additionalPrinterColumns"]
    assert [item["name"] for item in columns if "priority" not in item] == [
        *("Succeeded", "Reason", "Done", "Total", "Passed", "Infra", "Age")
    ]
    assert [item["name"] for item in columns if item.get("priority") == 1] == [
        *("PassRate", "MeanReward", "Parallelism", "Pack", "Harness", "Results")
    ]


def test_names() -> None:
    names = benchmark_run_crd()["spec"]["names"]  # type: ignore[index]
    assert names["shortNames"] == ["brun"]
    assert names["categories"] == ["benchmarks"]


def test_every_value_of_the_chart_is_described() -> None:
    text = (ROOT / "charts/securebench/values.yaml").read_text(encoding="utf-8")
    listed = values(text)
    assert [item.path for item in listed if not item.description] == []
    assert list(leaves(yaml.safe_load(text), "", {item.path for item in listed})) == []


def leaves(node: object, path: str, listed: set[str]) -> Iterator[str]:
    """Yield the values that are neither listed nor part of a listed one."""
    if path in listed:
        return
    if isinstance(node, dict) and node:
        for key, part in node.items():
            yield from leaves(part, f"{path}.{key}".removeprefix("."), listed)
        return
    yield path


def test_values_reads_comments_and_nesting() -> None:
    text = (
        "# Not a value's comment.\n\na:\n  # First\n  # line.\n  b: 1\n  c: [x]\n"
        "# Whole.\nd:\n  e: {f: 1}\n"
    )
    assert values(text) == [
        Value("a.b", "1", "First line."),
        Value("a.c", '["x"]', ""),
        Value("d", '{"e": {"f": 1}}', "Whole."),
    ]


def test_a_readme_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        with_values("# Chart\n", [])
