"""What both ways to test share: the candidate's module, the tests' module and how they end."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any, NoReturn

from .plain import MODULE, safe_module

FILE, TEST_FILE = "candidate.py", "solution_test.py"
TESTS = "__securebench_tests__"
EXIT_AT_IMPORT = "candidate attempted to exit during import"
INCOMPLETE = "hidden tests did not complete"
PASSED, FAILED = 0, 1
TRACE_LINES = 60

TRACEBACK = "_securebench_traceback"
"""Attribute of an exception in the tests that the candidate raised: where, as text."""


SECRET, ANSWER = 3, 4
"""Descriptors, see proof.go of supervise."""

SECRET_BYTES = 64
"""More than a secret has."""


def taken_secret() -> bytes:
    """Return the secret of supervise, so that nothing else in this process finds it open."""
    secret = os.read(SECRET, SECRET_BYTES)
    os.close(SECRET)
    os.set_inheritable(ANSWER, False)  # noqa: FBT003  # the call takes no name for it
    return secret


def give_back(answer: bytes) -> None:
    """Prove to supervise that the tests have ended by themselves."""
    flush()
    os.write(ANSWER, answer)


def text_of(path: str) -> bytes:
    """Return a candidate's text with exactly one newline at its end."""
    with open(path, "rb") as file:  # noqa: PTH123  # pathlib costs 5 ms of start
        return file.read().rstrip(b"\r\n") + b"\n"


def source_of(path: str) -> str:
    """Return the test source."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        return str(json.load(file)["code"])


def code_of(path: str) -> CodeType:
    """Return the compiled tests."""
    return compile(source_of(path), TEST_FILE, "exec")


def load(source: bytes, folder: str) -> ModuleType:
    """Write the candidate's file into a folder and import it."""
    path = os.path.join(folder, FILE)  # noqa: PTH118
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(source)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def usable(names: Sequence[tuple[str, Any]], declared: str) -> dict[str, Any]:
    """Return the candidate's top-level names that the tests get.

    A candidate does not replace builtins or standard modules for the tests, unless the task asks
    for a definition of that name; ``declared`` are such names, with commas. What a standard module
    has by its own name, as datetime has, is Python's own too.
    """
    asked = frozenset(declared.split(","))
    result: dict[str, Any] = {}
    for name, value in names:
        module = safe_module(name)
        own = (module, getattr(module, name, None)) if module else ()
        is_free = module is None and not hasattr(builtins, name)
        if name in asked or is_free or any(value is each for each in own):
            result[name] = value
        else:
            sys.stderr.write(f"securebench: the candidate's {name} does not replace Python's own\n")
    return result


def new_module(name: str, content: dict[str, Any]) -> ModuleType:
    """Return a new module that can be imported by its name."""
    module = ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module
    return module


def show(error: BaseException) -> None:
    """Say on stderr what the tests or the candidate raised."""
    told = getattr(error, "__dict__", {}).get(TRACEBACK)
    if MODULE in sys.modules:
        lines: list[str] = traceback.format_exception(type(error), error, error.__traceback__)
        sys.stderr.write("".join(lines[-TRACE_LINES:]))
    if isinstance(told, str):
        sys.stderr.write(f"in the candidate:\n{told}")


def say(text: str) -> int:
    """Say on stderr why the tests did not succeed, and return the exit code for it."""
    sys.stderr.write(f"securebench: {text}\n")
    return FAILED


def flush() -> None:
    """Write out what was printed."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        stream.flush()


def leave(code: int) -> NoReturn:
    """End at once: threads and exit functions that the tests left have no say."""
    flush()
    os._exit(code)
