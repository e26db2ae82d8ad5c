"""The shipped packs as tests of the scorers see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from securebench.benchmark.families.base import TextVerifier
from securebench.benchmark.families.registry import text_verifier
from support.release import Raw
from threats.honest import BENCHMARKS
from threats.kit.batch import Batch, Trial

FAMILY = re.compile(r"^ *family: (\w+)$", re.MULTILINE)
REFUSAL = "I'm sorry, but I can't help with that."


class Task(NamedTuple):
    """A row of a shipped pack."""

    pack: str
    family: str
    row: Raw

    @property
    def name(self) -> str:
        """Name of a test about it."""
        return f"{self.pack}/{self.row['id']}"


def tasks(family: str) -> list[Task]:
    """Return all tasks of a family."""
    return [task for task in _all() if task.family == family]


def scorer(family: str) -> TextVerifier:
    """Return the algorithm of a text family."""
    found = text_verifier(family)
    assert found is not None
    return found


def nulls(task: Task) -> Mapping[str, str]:
    """Return candidates that answer nothing, by name."""
    given = task.row["input"]
    public = [text for text in given.values() if isinstance(text, str)]
    return {
        "empty": "",
        "blank": " \n\t\n",
        "braces": "{}",
        "null": "null",
        "refusal": REFUSAL,
        "the question": public[0],
        "the task": json.dumps({"id": task.row["id"], **given}),
    } | {f"echo {number}": text for number, text in enumerate(public[1:])}


def batch(pack: str, rows: Mapping[str, str], name: str) -> Mapping[str, Trial]:
    """Return trials of a shipped pack of terminal tasks with these agents, by task.

    Args:
        pack: Its name.
        rows: Programs of agents by task id.
        name: Of the run.
    """
    folder = BENCHMARKS / pack
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for top in ("assets", "hidden")
        for path in sorted((folder / top).rglob("*"))
        if path.is_file()
    }
    manifest = (folder / "manifest.yaml").read_bytes()
    made = Batch(name, "terminal_task", files={**files, "manifest.yaml": manifest})
    result = {}
    for task in _all():
        if task.pack == pack and task.row["id"] in rows:
            given = {**task.row["input"], "instructions": rows[task.row["id"]]}
            result[task.row["id"]] = Trial(made, {**task.row, "input": given})
    return result


def _all() -> Iterator[Task]:
    for path in sorted(BENCHMARKS.glob("*/tasks.jsonl")):
        manifest = (path.parent / "manifest.yaml").read_text(encoding="utf-8")
        found = FAMILY.search(manifest)
        assert found is not None, path
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Task(path.parent.name, found[1], json.loads(line))
