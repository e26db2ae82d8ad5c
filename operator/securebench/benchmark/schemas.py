"""The published JSON Schemas of packs; ``controller.install.generate`` writes them."""

from __future__ import annotations

import json

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.reading.manifest import MANIFEST
from securebench.benchmark.reading.rows import row_schema


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
