"""Runs whose Pods wait in a queue of Kueue; ``make kueue`` prints what was seen.

Kueue's controller is real, built from its Go module, and so are SecureBench and its runs. The exit
code is 1 where something is not as it has to be.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kueue.controller import kueue
from kueue.queues import queue
from kueue.story import Seen, Story
from support.release import release

WIDTH = 150


def look(stack: ExitStack) -> Iterator[Seen]:
    """Yield what was seen, as soon as it was."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kueue-")))
    installed = stack.enter_context(release("sb-kueue", {}))
    stack.enter_context(kueue(installed.namespace, folder))
    yield from Story(installed, stack.enter_context(queue(installed))).steps()


def main() -> int:
    """Print what was seen, and a table at the end; return the exit code."""
    console, seen = Console(width=WIDTH), []
    with ExitStack() as stack:
        for each in look(stack):
            console.print(f"{each.what}: {each.found}", highlight=False, markup=False)
            seen.append(each)
    table = Table("what", "seen", title="runs in a queue of Kueue", show_lines=True)
    for each in seen:
        table.add_row(each.what, each.found if each.is_right else f"[red]{each.found}[/]")
    console.print(table)
    return 0 if all(each.is_right for each in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
