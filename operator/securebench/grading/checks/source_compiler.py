"""Compiles Python files of a pack with the interpreter that would run them.

The ``python3`` of a task image gets this text by ``-c``: standard library of Python 3.8 only.
Arguments are files; one that ends in ``.json`` has the tests of code_completion under ``code``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FAILED = 1


def problem(name: str) -> str:
    """Return the compiler's words for a file that it refuses, or an empty text."""
    file = Path(name)
    try:
        content = file.read_bytes()
        source = json.loads(content)["code"] if file.suffix == ".json" else content
        compile(source, name, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, KeyError) as error:
        words = getattr(error, "msg", None) or error
        return f"{name}:{getattr(error, 'lineno', None) or 1}: {type(error).__name__}: {words}"
    return ""


def main(names: list[str]) -> int:
    """Compile files and say on stderr what is wrong."""
    problems = [text for text in map(problem, names) if text]
    if problems:
        sys.stderr.write("\n".join(problems) + "\n")
    return FAILED if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
