"""Which of the programs is meant.

Started as ``python3 -I -B -c "import sys; sys.path.insert(0, FOLDER); from securebench_code.entry
import start; start()" PROGRAM ARGUMENT…``.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from .judging import leave


def start() -> NoReturn:
    """Run the program that the command line names, and end with its exit code."""
    del sys.path[0]
    program, *arguments = sys.argv[1:]
    if program == "worker":
        from . import worker  # noqa: PLC0415  # each program loads its own half

        sys.exit(worker.main(arguments))
    if program == "shared":
        from . import shared  # noqa: PLC0415

        leave(shared.main(arguments))
    from . import runner  # noqa: PLC0415

    leave(runner.wait(arguments) if program == "wait" else runner.main(arguments))
