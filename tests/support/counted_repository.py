"""A repository whose tests the exact commands of a Pod count, beside a candidate's changes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from securebench.run.verification.checks import CheckPlan
from securebench.run.verification.patch import control_run, counted
from support.manifest_samples import patch_task

SECRET = "s" * 32
COMMAND = f"cd . && {sys.executable} -m pytest -q -p no:cacheprovider tests"
TESTS = (
    "import unittest\n"
    "from project import answer\n"
    "def test_it():\n    assert answer() == 42\n"
    "class A(unittest.TestCase):\n"
    "    def test_it(self):\n        self.assertEqual(answer(), 42)\n"
)
PLAIN = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
"""Without compiled files: those of a text of the same length are taken for new for a second."""
WITHOUT_PLUGINS = PLAIN | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""As in most images; those of this environment take longer to load than the tests to run."""
HONEST = "def answer():\n    return 42\n"
WRONG = "def answer():\n    return 41\n"


def check(command, **row):
    argv = ("sh", "-lc", command) if isinstance(command, str) else command
    return replace(patch_task().verification, check=CheckPlan(argv, "/testbed", 60.0, **row))


class Repository:
    """A repository with a candidate's changes, and the exact commands of a Pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changed: dict[str, str] = {}
        self.environment = WITHOUT_PLUGINS
        (root / "repo/.git").mkdir(parents=True)
        self.add("tests/test_a.py", TESTS)
        self.add("project.py", WRONG)
        self.candidate("project.py", HONEST)

    def add(self, name: str, text: str) -> None:
        target = self.root / "repo" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def candidate(self, name: str, text: str) -> None:
        self.changed[name] = text

    def control(self, command=COMMAND, **row) -> None:
        """Run the tests on the base."""
        (phase,) = control_run(check(command, **row), str(self.root / "known"))
        assert self._done(phase).returncode == 0

    def passes(self, command=COMMAND, **row) -> bool:
        """Return what supervise makes of the command: exit code 0 and the secret, once."""
        for name, text in self.changed.items():
            self.add(name, text)
        answer = self.root / "answer"
        (self.root / "secret").write_text(SECRET, encoding="utf-8")
        phase = counted(check(command, **row), str(self.root / "known"))
        assert phase.proof
        self.done = self._done(phase)
        return self.done.returncode == 0 and answer.read_bytes() == SECRET.encode()

    def _done(self, phase) -> subprocess.CompletedProcess[str]:
        held = 'exec 3<"$1" 4>"$2"; shift 2; exec "$@"'
        return subprocess.run(
            ["sh", "-c", held, "sh", self.root / "secret", self.root / "answer", *phase.command],
            cwd=self.root / "repo",
            env=self.environment | dict(phase.env),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
