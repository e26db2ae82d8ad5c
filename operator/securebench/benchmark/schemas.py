"""The published JSON Schemas; ``python -m securebench.benchmark.schemas`` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark.families.fields import TEXT_SCHEMA
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.environment import environment_schema
from securebench.benchmark.reading.manifest import manifest_schema
from securebench.benchmark.reading.rows import ASSET_KEYS_WITHOUT_EFFECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.benchmark.families.base import Family

FOLDER = Path(__file__).parent.parent / "schemas"

_OPEN_OBJECT: Mapping[str, object] = {"type": ["object", "null"]}
_ENVIRONMENT: Mapping[str, object] = {
    "anyOf": [environment_schema(), {"type": "null"}],
}
_ASSETS: Mapping[str, object] = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {
            "path": TEXT_SCHEMA,
            "mount": {"anyOf": [TEXT_SCHEMA, {"type": "null"}]},
            "read_only": {"type": ["boolean", "null"]},
            **{key: {} for key in ASSET_KEYS_WITHOUT_EFFECT},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
}


def row_schema(family: Family) -> dict[str, object]:
    """Return the rows of a family as JSON Schema; unknown top-level keys are accepted."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"SecureBench row of family {family.name}",
        "type": "object",
        "properties": {
            "id": TEXT_SCHEMA,
            "family": {"enum": [family.name, None]},
            "input": family.input.schema(),
            "eval": family.eval.schema(),
            "assets": _ASSETS,
            "environment": _ENVIRONMENT,
            "metadata": _OPEN_OBJECT,
        },
        "required": ["eval", "id", "input"],
    }


def rendered_schemas() -> dict[str, str]:
    """Return the content of every schema file by its name; the same on every machine."""
    schemas = {
        "manifest.schema.json": manifest_schema(),
        **{f"row.{name}.schema.json": row_schema(family) for name, family in FAMILIES.items()},
    }
    return {
        name: f"{json.dumps(schema, indent=2, sort_keys=True)}\n"
        for name, schema in schemas.items()
    }


def main() -> None:
    """Write the schema files into the package."""
    for name, content in rendered_schemas().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
