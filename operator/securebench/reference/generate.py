"""Write schema and pages: ``python -m securebench.reference.generate [ROOT]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from securebench.reference.pages import pages
from securebench.reference.tester_schema import tester_schema

TESTER_SCHEMA = "operator/securebench/schemas/tester.schema.json"


def generated_files() -> Mapping[str, str]:
    """Return the text of each generated file by its path in the repository."""
    schema = f"{json.dumps(tester_schema(), indent=2, sort_keys=True)}\n"
    return {TESTER_SCHEMA: schema, **pages()}


def write(root: Path) -> None:
    """Write all generated files below ``root``, the repository's folder."""
    for name, text in generated_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(*sys.argv[1:]).absolute())
