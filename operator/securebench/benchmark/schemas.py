"""The published JSON Schemas; ``python -m securebench.benchmark.schemas`` writes them."""

from __future__ import annotations

import json
from pathlib import Path

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.reading.manifest import MANIFEST
from securebench.benchmark.reading.rows import row_schema

FOLDER = Path(__file__).parent.parent / "schemas"


def rendered_schemas() -> dict[str, str]:
    """Return the content of every schema file by its name; the same on every machine."""
    schemas = {
        "manifest.schema.json": MANIFEST.schema,
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
