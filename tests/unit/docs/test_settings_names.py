"""Pages name settings of the chart that are there, and values.yaml shows every setting."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "securebench"
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md", CHART / "README.md"]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
HELMS_OWN = "global"
_NAMED = re.compile(r"(?<![\w./-])settings(?:\.[A-Za-z]\w*)+")


def resolved(schema: Any) -> Any:
    while "$ref" in schema:
        found = SCHEMA
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def in_schema(schema: Any, place: str = "") -> Iterator[str]:
    for name, below in resolved(schema).get("properties", {}).items():
        yield place + name
        yield from in_schema(below, f"{place}{name}.")


def in_values(values: Any, place: str = "") -> Iterator[str]:
    if isinstance(values, dict):
        for name, below in values.items():
            yield place + name
            yield from in_values(below, f"{place}{name}.")


def named(text: str) -> set[str]:
    return set(_NAMED.findall(text))


def test_pages_name_settings_that_are_there() -> None:
    known = {*in_schema(SCHEMA), *in_values(VALUES)}
    wrong = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in named(page.read_text(encoding="utf-8")) - known
    }
    assert wrong == set()


def test_every_setting_is_in_values_yaml_and_so_in_the_readme_of_the_chart() -> None:
    assert {*in_schema(SCHEMA)} - {*in_values(VALUES)} == {HELMS_OWN}


def test_what_counts_as_the_name_of_a_setting() -> None:
    text = "`settings.launch.sealSeconds`. [`controller.settings`], .vscode/settings.json"
    assert named(text) == {"settings.launch.sealSeconds"}
