"""Format paths and messages for users."""

from __future__ import annotations

import os.path
import re
from pathlib import Path

_NUMBERS = re.compile(r"\d+")


def without_numbers(text: str) -> str:
    """Mask numbers, so that messages that differ only in seconds or counts compare equal."""
    return _NUMBERS.sub("", text)


def shown_path(path: Path) -> str:
    """Return the absolute path without ``..`` and without resolving links.

    A ``..`` after a symlink is kept, because removing it would name another folder.
    """
    normal = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    return str(normal if normal.resolve() == path.resolve() else path.absolute())
