"""Candidates and tests of code_completion in processes of this machine, hardened and not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.code_pair import Judged

WRONG = "def answer(number):\n    return 7\n"
ANSWER = "assert answer(6) == 42\n"
INCOMPLETE = "hidden tests did not complete"
BROKEN = "the candidate broke the protocol"
SECONDS = 20

_NAIVE = """\
import sys
space = {"__name__": "__main__"}
for path in sys.argv[1:]:
    exec(compile(open(path).read(), path, "exec"), space)
"""

CHANNEL = """\
import json, os, socket, struct, sys
def channel():
    for number in range(3, 30):
        try:
            found = socket.socket(fileno=os.dup(number))
            if found.family == socket.AF_UNIX and found.getpeername() is not None: return found
        except OSError: pass
def send(data): channel().sendall(struct.pack(">I", len(data)) + data)
def asked():
    frame = sys._getframe()
    while "asked" not in frame.f_locals: frame = frame.f_back
    return frame.f_locals["asked"]
def forged(value, identity="0" * 32):
    return json.dumps([identity, "return", [], [value], [["l"]]]).encode()
"""
"""What a candidate needs to write to the socket itself."""


def cases(names: Iterable[str], *short: str) -> list[Any]:
    """Return names as parameters; some of them belong to the short form."""
    mark = pytest.mark.short
    return [pytest.param(name, marks=mark if name in short else (), id=name) for name in names]


def naive(candidate: str, tests: str) -> Judged:
    """Run candidate and tests as a naive runner does: one interpreter, its exit code decides."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("candidate.py", "solution_test.py")]
        for path, text in zip(paths, (candidate, tests), strict=True):
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-c", _NAIVE, *map(str, paths)],
            capture_output=True, check=False, timeout=SECONDS, text=True,
        )  # fmt: skip
    return Judged(done.returncode, done.stdout, done.stderr)
