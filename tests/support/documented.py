"""Pages of the documentation as their reader follows them: files are written, commands are run."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK_SECONDS = 600
"""For the commands of one block, on a slow machine with other tests beside them."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<path>\S+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$",
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
    return [
        Block(each["path"] or "", each["language"], textwrap.dedent(each["text"])) for each in found
    ]


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page shows."""
    for block in blocks(page):
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


@dataclass(slots=True)
class Reader:
    """Follows one page: runs its blocks of commands one after the other.

    Attributes:
        page: Below docs/.
        folder: Where the reader is.
        variables: Of the reader's environment.
        filled_in: What the reader writes in the place of a text of the page. Each must occur.
    """

    page: str
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    filled_in: Mapping[str, str] = field(default_factory=dict)
    left: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.left = [block.text for block in blocks(self.page) if block.language == "sh"]
        for text in self.filled_in:
            assert any(text in block for block in self.left), f"{self.page} has no {text}"

    def run_next(self) -> str:
        """Run the next block and return what it printed."""
        return run_block(self._filled(self.left.pop(0)), self.folder, self.variables)

    def skip(self, words: str) -> None:
        """Leave out the next block, which begins with these words."""
        block = self.left.pop(0)
        assert block.startswith(words), block

    def run_all(self) -> list[str]:
        """Run what is left of the page and return what each block printed."""
        return [self.run_next() for _ in list(self.left)]

    def _filled(self, block: str) -> str:
        for text, own in self.filled_in.items():
            block = block.replace(text, own)
        return block


def run_block(text: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run commands as a reader's shell would, but stop at the first that fails."""
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=BLOCK_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        printed = (late.output or b"").decode()
        raise AssertionError(f"{text}\nnot done after {BLOCK_SECONDS} s:\n{printed}") from None
    printed = done.stdout.decode()
    assert done.returncode == 0, f"{text}\n{printed}"
    return printed
