"""F2: a skip is no pass, whoever raises it, and no form of a command escapes the counting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from securebench.run import layout
from securebench.run.verification import command
from support.counted_repository import COMMAND, HONEST, TESTS, WITHOUT_PLUGINS, Repository
from support.pytest_place import Place

RAISES = {
    "unittest": "import unittest\ndef answer():\n    raise unittest.SkipTest('later')\n",
    "pytest": "import pytest\ndef answer():\n    pytest.skip('later')\n",
    "xfail": "import pytest\ndef answer():\n    pytest.xfail('later')\n",
}
WORKSPACE = "import os, sys\nsys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\n"
SUBTESTS = (
    f"{WORKSPACE}import unittest\nfrom solution import answer\n"
    "class A(unittest.TestCase):\n    def test_table(self):\n"
    "        for number in range(3):\n            with self.subTest(number=number):\n"
    "                self.assertEqual(answer(), 42)\n"
)
FILES = (
    f"{WORKSPACE}import pathlib, pytest\n"
    "FILES = sorted(pathlib.Path(os.environ['SECUREBENCH_WORKSPACE']).glob('*.json'))\n"
    "@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)\n"
    "def test_each(path):\n    assert path.read_text() == 'right'\n"
    "def test_nothing_else():\n    pass\n"
)
TEXT = "import unittest\ndef answer():\n    raise unittest.SkipTest('not here')\n"
RENAMED = f"exec(compile({TEXT!r}, '/usr/lib/python3/platform_support.py', 'exec'))\n"
ENDS = "import os\nos._exit(0)\n"
FORMS = {
    "options": (sys.executable, "-W", "ignore", "-m", "pytest", "-q", "tests"),
    "a shell": ("sh", "-c", f"{sys.executable} -m pytest -q tests"),
    "a program": ("env", "PYTHONPATH=.", f"{Path(sys.executable).parent}/pytest", "-q", "tests"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return a workspace beside the pack's tests."""
    evaluator, workspace = tmp_path / "evaluator", tmp_path / "app"
    evaluator.mkdir()
    workspace.mkdir()
    monkeypatch.setattr(layout, "EVALUATOR", str(evaluator))
    monkeypatch.setattr(command, "COLLECTED", str(tmp_path / "collected.json"))
    return Place(evaluator, workspace)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository whose base is wrong."""
    (tmp_path / "secret").touch()
    return Repository(tmp_path)


def by_exit_code(place: Place) -> int:
    """Return what pytest alone says of the pack's tests."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", place.evaluator]
    environment = WITHOUT_PLUGINS | {"SECUREBENCH_WORKSPACE": str(place.workspace)}
    return subprocess.run(words, env=environment, check=False, timeout=60).returncode


def graded(place: Place) -> int:
    """Return the exit code of the check, behind its control run."""
    return place.run("test_a.py").returncode


@pytest.mark.short
@pytest.mark.parametrize("name", RAISES)
def test_a_425_attack(place: Place, name: str) -> None:
    place.add("test_a.py", SUBTESTS)
    assert place.run("test_a.py", is_precheck=True).returncode == 0
    place.candidate("solution.py", RAISES[name])

    assert graded(place) == 1


@pytest.mark.parametrize("name", RAISES)
def test_a_425_twin(place: Place, name: str) -> None:
    place.add("test_a.py", SUBTESTS)
    place.candidate("solution.py", RAISES[name])

    assert by_exit_code(place) == 0


@pytest.mark.short
def test_a_425_honest(place: Place) -> None:
    place.add("test_a.py", SUBTESTS)
    assert place.run("test_a.py", is_precheck=True).returncode == 0
    place.candidate("solution.py", HONEST)

    assert graded(place) == 0


@pytest.mark.short
def test_a_426_attack(place: Place) -> None:
    place.add("test_a.py", FILES)
    assert place.run("test_a.py", is_precheck=True).returncode == 0

    assert graded(place) == 1


def test_a_426_twin(place: Place) -> None:
    place.add("test_a.py", FILES)

    assert by_exit_code(place) == 0


@pytest.mark.short
def test_a_426_honest(place: Place) -> None:
    place.add("test_a.py", FILES)
    assert place.run("test_a.py", is_precheck=True).returncode == 0
    place.candidate("a.json", "right")

    assert graded(place) == 0


@pytest.mark.short
def test_a_427_attack(repository: Repository) -> None:
    repository.add("tests/test_a.py", TESTS + "def test_c():\n    pass\n")
    repository.candidate("project.py", RENAMED)
    repository.control()

    assert not repository.passes()


def test_a_427_twin(repository: Repository) -> None:
    """The row lets the tests be skipped."""
    repository.add("tests/test_a.py", TESTS + "def test_c():\n    pass\n")
    repository.candidate("project.py", RENAMED)

    assert repository.passes(skips=("*test_it",))


@pytest.mark.short
def test_a_427_honest(repository: Repository) -> None:
    repository.add("tests/test_b.py", "import pytest\ndef test_b():\n    pytest.skip('here')\n")
    repository.control()

    assert repository.passes()


@pytest.mark.short
@pytest.mark.parametrize("name", FORMS)
def test_a_428_attack(repository: Repository, name: str) -> None:
    repository.candidate("project.py", ENDS)

    assert not repository.passes(FORMS[name])


@pytest.mark.parametrize("name", FORMS)
def test_a_428_twin(repository: Repository, name: str) -> None:
    repository.add("project.py", ENDS)
    folder = repository.root / "repo"
    done = subprocess.run(
        FORMS[name], cwd=folder, env=WITHOUT_PLUGINS, check=False, timeout=60, capture_output=True
    )

    assert done.returncode == 0


@pytest.mark.short
@pytest.mark.parametrize("command", [COMMAND, *FORMS.values()])
def test_a_428_honest(repository: Repository, command: str | tuple[str, ...]) -> None:
    assert repository.passes(command)
