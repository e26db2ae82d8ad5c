"""The pack that the README writes, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CHAPTER = README.partition("## Write your first pack")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```(yaml|json)\n(.*?)```", CHAPTER, re.DOTALL)
FILES = ("manifest.yaml", "tasks.jsonl", "tester.yaml", "oracle/answers.jsonl", "run.yaml")
"""In the order in which the chapter shows them."""


def write_readme_pack(folder: Path) -> None:
    """Write the files that the chapter shows."""
    (folder / "oracle").mkdir(parents=True)
    for name, (_, content) in zip(FILES, BLOCKS, strict=True):
        (folder / name).write_text(content, encoding="utf-8")
