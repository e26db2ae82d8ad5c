"""Starts one of the programs, which loads its own half of this package.

Called as ``python3 -I -B -c "import sys; sys.path.insert(0, FOLDER); from securebench_code.entry
import start; start()" PROGRAM ARGUMENT…``.
"""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

from .judging import leave

HOMES = {"worker": "worker", "shared": "shared", "test": "runner", "proven": "runner"}
"""Modules of the programs, each a function of that name."""


def start() -> NoReturn:
    """Run the program that the command line names, and end with its exit code."""
    del sys.path[0]
    program, *arguments = sys.argv[1:]
    home = importlib.import_module(f".{HOMES[program]}", __package__)
    leave(getattr(home, program)(arguments))
