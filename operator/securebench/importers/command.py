"""The command ``securebench pack import``: arguments, output and exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securebench.client.output import print_error, print_line
from securebench.importers import terminal_bench


@dataclass(frozen=True, slots=True)
class Import:
    """What is imported.

    Attributes:
        folder: Task folder, or folder of task folders.
    """

    folder: Path
    pack: Path
    pack_id: str
    skip: bool = False
    replace: bool = False


def import_terminal_bench(wanted: Import) -> int:
    """Write a pack and print what was imported, changed and left out."""
    result = terminal_bench.import_terminal_bench(
        wanted.folder,
        wanted.pack,
        pack_id=wanted.pack_id,
        skip=wanted.skip,
        replace=wanted.replace,
    )
    for remark in result.remarks:
        print_line(f"note: {remark}")
    for error in result.errors:
        print_error(str(error))
    print_line(f"pack {wanted.pack_id} path={wanted.pack} tasks={len(result.tasks)}")
    return 0
