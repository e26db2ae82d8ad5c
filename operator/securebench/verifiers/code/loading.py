"""The candidate's module, from its text to ``sys.modules``."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from .plain import MODULE

if TYPE_CHECKING:
    from types import ModuleType

FILE = "candidate.py"


def load(source: bytes, folder: str) -> ModuleType:
    """Write the candidate's file into a folder and import it.

    Raises:
        BaseException: What its import raises.
    """
    path = os.path.join(folder, FILE)  # noqa: PTH118  # pathlib costs 5 ms of start
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(source)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module
