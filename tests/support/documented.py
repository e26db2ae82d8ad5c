"""Pages of the documentation as their reader follows them: files are written, commands are run."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(
    r"(?:^<!-- (?P<path>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        path: The file that it shows, or empty.
        language: As the fence names it.
        text: Its lines.
    """

    path: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page below docs/, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = _BLOCK.finditer(text)
    return [Block(each["path"] or "", each["language"], each["text"]) for each in found]


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page shows."""
    for block in blocks(page):
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def follow(page: str, folder: Path, variables: Mapping[str, str], seconds: float) -> list[str]:
    """Write the files and run the commands of a page in their order; return what those printed.

    Args:
        page: Below docs/.
        folder: Where the reader is.
        variables: Of the reader's environment.
        seconds: For each block of commands.
    """
    write_files(page, folder)
    outputs = []
    for block in blocks(page):
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                timeout=seconds,
            )  # fmt: skip
            assert done.returncode == 0, f"{block.text}\n{done.stdout}"
            outputs.append(done.stdout)
    return outputs
