"""Test commands of repositories: what counts when they call pytest."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from securebench.run.plan.model import CheckPlan
from securebench.run.pods.verify.counting import counted
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


def check(command):
    argv = ("sh", "-lc", command) if isinstance(command, str) else command
    return CheckPlan(argv, "/testbed", 60.0, (), patch_task().check.patch)


class Repository:
    """A repository with a candidate's changes, and the exact command of a Pod."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changed: list[str] = []
        self.environment = WITHOUT_PLUGINS
        (root / "repo/.git").mkdir(parents=True)
        self.add("tests/test_a.py", TESTS)
        self.candidate("project.py", HONEST)

    def add(self, name: str, text: str) -> None:
        target = self.root / "repo" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def candidate(self, name: str, text: str) -> None:
        self.add(name, text)
        self.changed.append(name)

    def passes(self, command=COMMAND) -> bool:
        """Return what supervise makes of the command: exit code 0 and the secret, once."""
        declared, secret, answer = (self.root / name for name in ("declared", "secret", "answer"))
        declared.write_text(json.dumps({"changed": self.changed}), encoding="utf-8")
        secret.write_text(SECRET, encoding="utf-8")
        phase = counted(check(command), str(declared))
        assert phase.proof
        held = 'exec 3<"$1" 4>"$2"; shift 2; exec "$@"'
        self.done = subprocess.run(
            ["sh", "-c", held, "sh", secret, answer, *phase.command],
            cwd=self.root / "repo",
            env=self.environment | phase.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return self.done.returncode == 0 and answer.read_text(encoding="utf-8") == SECRET


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.mark.parametrize("environment", [PLAIN, WITHOUT_PLUGINS], ids=["plugins", "plain"])
def test_the_verdict_is_that_of_the_tests(repository, environment):
    repository.environment = environment
    assert repository.passes(), repository.done.stderr
    repository.candidate("project.py", WRONG)
    assert not repository.passes()
    assert repository.done.returncode == 1


def test_an_argv_is_counted_too(repository):
    argv = (sys.executable, "-m", "pytest", "-q", "tests")
    assert repository.passes(argv), repository.done.stderr
    repository.candidate("project.py", WRONG)
    assert not repository.passes(argv)


ATTACKS = {
    "a skip": "import unittest\ndef answer():\n    raise unittest.SkipTest('x')\n",
    "a skip of pytest": "import pytest\ndef answer():\n    pytest.skip('x')\n",
    "an expected failure": "import pytest\ndef answer():\n    pytest.xfail('x')\n",
    "a skip at import": "import unittest\nraise unittest.SkipTest('x')\n",
    "an early end": "import os\nos._exit(0)\n",
    "an end of pytest": "import pytest\ndef answer():\n    pytest.exit('x', returncode=0)\n",
    "other runs of unittest": (
        "import unittest\nunittest.TestCase.run = lambda self, result=None: result\n" + WRONG
    ),
    "other runs of pytest": (
        "import _pytest.python, _pytest.unittest\n"
        "_pytest.python.Function.runtest = lambda self: None\n"
        "_pytest.unittest.TestCaseFunction.runtest = lambda self: None\n" + WRONG
    ),
    "other code of the same function": (
        "import _pytest.python\n"
        "def nothing(pyfuncitem):\n    return True\n"
        "_pytest.python.pytest_pyfunc_call.__code__ = nothing.__code__\n" + WRONG
    ),
}


ONLY_UNITTEST = (
    "import unittest\n"
    "from project import answer\n"
    "class A(unittest.TestCase):\n"
    "    def test_it(self):\n        self.assertEqual(answer(), 42)\n"
    "    def test_more(self):\n        self.assertTrue(True)\n"
    "    def test_own(self):\n        self.skipTest('its own word')\n"
)


def test_classes_of_unittest_alone_pass(repository):
    repository.add("tests/test_a.py", ONLY_UNITTEST)
    assert repository.passes(), repository.done.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_nor_in_classes_of_unittest_alone(repository, name):
    repository.add("tests/test_a.py", ONLY_UNITTEST)
    repository.candidate("project.py", ATTACKS[name])
    assert not repository.passes()


@pytest.mark.parametrize("name", ATTACKS)
def test_what_candidate_code_does_is_no_pass(repository, name):
    repository.candidate("project.py", ATTACKS[name])
    assert not repository.passes()


def test_these_would_pass_by_the_exit_code(repository):
    naive = [sys.executable, "-m", "pytest", "-q", "tests/test_a.py"]
    for name in ("a skip", "an early end", "other runs of pytest"):
        repository.candidate("project.py", ATTACKS[name])
        folder = repository.root / "repo"
        done = subprocess.run(naive, cwd=folder, env=WITHOUT_PLUGINS, check=False, timeout=60)
        assert done.returncode == 0


@pytest.mark.parametrize("name", ["pluggy.py", "iniconfig/__init__.py", "_pytest/__init__.py"])
def test_pytest_never_comes_from_the_repository(repository, name):
    repository.candidate("project.py", WRONG)
    repository.candidate(name, "import os\nos._exit(0)\n")
    assert not repository.passes()
    repository.candidate("project.py", HONEST)
    assert repository.passes(), repository.done.stderr


@pytest.mark.parametrize("name", [".pytest.ini", "pytest.ini"])
def test_settings_that_run_nothing_are_no_pass(repository, name):
    repository.candidate(name, "[pytest]\naddopts = --collect-only\n")
    assert not repository.passes()


OWN_SKIPS = (
    "import pytest, sys, unittest\n"
    "def test_body():\n    pytest.skip('not here')\n"
    "class B(unittest.TestCase):\n"
    "    def test_body(self):\n        self.skipTest('not here')\n"
    "    @unittest.skip('never')\n    def test_mark(self):\n        assert 0\n"
    "@pytest.mark.xfail\ndef test_known():\n    assert 0\n"
)
MODULE_SKIP = "import pytest\npytest.importorskip('no_such_module')\n"


def test_what_the_repositorys_tests_skip_themselves_counts_as_neither(repository):
    repository.add("tests/test_b.py", OWN_SKIPS)
    repository.add("tests/test_c.py", MODULE_SKIP)
    assert repository.passes(), repository.done.stdout + repository.done.stderr
    repository.changed.append("tests/test_b.py")
    assert not repository.passes()


def test_a_repository_that_skips_everything_is_no_pass(repository):
    repository.add("tests/test_a.py", OWN_SKIPS)
    assert not repository.passes()
    assert "no test passed" in repository.done.stderr


@pytest.mark.parametrize(
    ("command", "want"),
    {
        "python3 -m pytest -q": True,
        "A=1 /opt/bin/python3.11  -m  pytest": True,
        ". x/activate; python -m pytest | cat": True,
        "pytest -q": False,
        "tox": False,
        "python3 -m pytest a && python3 -m pytest b": False,
        'bash -c "python3 -m pytest"': False,
        "python3 -m pytest_other": False,
        "mypython3 -m pytest": False,
    }.items(),
)
def test_which_commands_are_counted(command, want):
    phase = counted(check(command), "/declared")
    assert bool(phase.proof) is want
    assert (phase.command == ("sh", "-lc", command)) is not want
