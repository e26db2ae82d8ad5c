"""The forms in which commands print data, as kubectl names them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum


class OutputForm(StrEnum):
    """Value of ``--output``."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_data(self) -> bool:
        """Whether programs read it."""
        return self in {OutputForm.JSON, OutputForm.YAML}


def print_objects(objects: Iterable[Mapping[str, object]], form: OutputForm) -> None:
    """Print objects on stdout: JSON has one a line, YAML one document each.

    Both are ASCII, with escapes for everything else, so that no text moves the cursor.
    """
    for item in objects:
        sys.stdout.write(_yaml(item) if form is OutputForm.YAML else json_line(item))
    sys.stdout.flush()


def json_line(item: Mapping[str, object]) -> str:
    """Return an object as one line of printable ASCII."""
    return json.dumps(item, sort_keys=True).replace("\x7f", "\\u007f") + "\n"


def _yaml(item: Mapping[str, object]) -> str:
    import yaml  # noqa: PLC0415 - programs that never print YAML start without it

    plain = json.loads(json.dumps(item))
    return yaml.safe_dump(plain, explicit_start=True, sort_keys=True)
