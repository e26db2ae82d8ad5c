"""Test commands of repositories: what counts when they call pytest."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from securebench.run.verification.patch import control_run, counted
from support.counted_repository import (
    COMMAND,
    HONEST,
    PLAIN,
    SECRET,
    TESTS,
    WITHOUT_PLUGINS,
    WRONG,
    Repository,
    check,
)


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "secret").touch()
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
        repository.add("project.py", ATTACKS[name])
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


ANSWERS = "    assert __import__('project').answer() == 42\n"
FLAG = "import project, pytest\nis_fast = getattr(project, 'HAS_FAST', True)\n"
TEXT = "import unittest\ndef answer():\n    raise unittest.SkipTest('not here')\n"
RENAMED = f"exec(compile({TEXT!r}, '/usr/lib/python3/platform_support.py', 'exec'))\n"
OWN_SKIPS = {
    "a body": "def test_b():\n    pytest.skip('not here')\n",
    "a method": (
        "import unittest\nclass B(unittest.TestCase):\n"
        "    def test_body(self):\n        self.skipTest('not here')\n"
    ),
    "an import": "pytest.importorskip('no_such_module')\n",
    "a mark": "@pytest.mark.skip\ndef test_b():\n    assert 0\n",
    "a mark beside what is new": (
        "from project import new\n@pytest.mark.skip\ndef test_b():\n    assert 0\n"
    ),
    "a failure": "@pytest.mark.xfail\ndef test_b():\n    assert 0\n",
    "a failure that is over": f"@pytest.mark.xfail(1, reason='x')\ndef test_b():\n{ANSWERS}",
    "no parameter": "@pytest.mark.parametrize('x', [])\ndef test_b(x):\n    assert 0\n",
}
CANDIDATES_SKIPS = {
    "a flag": f"{FLAG}def test_b():\n    is_fast or pytest.skip('slow')\n",
    "a mark by a flag": (
        f"{FLAG}@pytest.mark.skipif(not is_fast, reason='slow')\ndef test_b():\n    pass\n"
    ),
    "no parameter": (
        f"{FLAG}@pytest.mark.parametrize('x', [1] * is_fast)\ndef test_b(x):\n    pass\n"
    ),
}
SKIPPING = {
    **{f"always {name}": (f"import pytest\n{text}", True) for name, text in OWN_SKIPS.items()},
    **{f"now {name}": (text, False) for name, text in CANDIDATES_SKIPS.items()},
}


@pytest.mark.parametrize("text", [TEXT, RENAMED], ids=["plain", "under another file's name"])
def test_whose_skip_it_is_is_not_asked(repository, text):
    repository.add("tests/test_a.py", TESTS + "def test_c():\n    pass\n")
    repository.candidate("project.py", text)
    repository.control()
    assert not repository.passes()
    assert "was skipped or expected to fail, which the row does not name" in repository.done.stderr


def test_a_control_run_leaves_nothing_behind(repository):
    repository.environment = {"PATH": PLAIN["PATH"]}
    repository.add("tests/test_b.py", SKIPPING["always a body"][0])
    repository.control(COMMAND.replace("-p no:cacheprovider ", ""))
    left = {entry.name for entry in (repository.root / "repo").rglob("*") if entry.is_file()}
    assert left == {"test_a.py", "test_b.py", "project.py"}


def test_a_repository_that_skips_everything_is_no_pass(repository):
    repository.add("tests/test_a.py", SKIPPING["always a mark"][0])
    repository.control()
    assert not repository.passes()
    assert "no test passed" in repository.done.stderr


PYTHON = sys.executable
FORMS = {
    "options of the interpreter": f"{PYTHON} -W error::SyntaxWarning -bb -X dev -m pytest -q tests",
    "a script": f"PYTHONPATH=. PATH={Path(PYTHON).parent}:$PATH pytest -q tests",
    "a script by its path": f"PYTHONPATH=. {Path(PYTHON).parent}/pytest -q tests",
    "behind programs": f"timeout 50 env A=1 nice -n 1 {PYTHON} -m pytest -q tests",
    "a shell in quotes": f'sh -c "{PYTHON} -m pytest -q tests"',
    "a shell in other quotes": f"bash -ec 'cd . && {PYTHON} -m pytest -q \"tests\"'",
    "a pipe": f"{PYTHON} -m pytest -q tests 2>&1 | cat",
    "several": f"{PYTHON} -m pytest -q tests/test_a.py -k A && {PYTHON} -m pytest -q tests",
    "whatever comes of it": f"{PYTHON} -m pytest -q tests || true",
    "an argv": (PYTHON, "-m", "pytest", "-q", "tests"),
    "an argv with options": (PYTHON, "-W", "ignore", "-m", "pytest", "-q", "tests"),
    "an argv with a shell": ("sh", "-c", f"{PYTHON} -m pytest -q tests"),
    "an argv with a login shell": ("bash", "-o", "pipefail", "-lc", f"{PYTHON} -m pytest -q"),
    "an argv with programs": ("env", "A=1", "timeout", "50", PYTHON, "-m", "pytest", "-q", "tests"),
    "an argv with a script": (
        "env",
        "PYTHONPATH=.",
        f"{Path(PYTHON).parent}/pytest",
        "-q",
        "tests",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_command_is_counted(repository, name):
    repository.control(FORMS[name])
    assert repository.passes(FORMS[name]), repository.done.stderr
    for text in (WRONG, ATTACKS["an early end"], "import os\nos._exit(0)\n"):
        repository.candidate("project.py", text)
        assert not repository.passes(FORMS[name])


ARGUMENT_BYTES = 128 * 1024
"""What Linux takes as one argument."""


@pytest.mark.parametrize("name", FORMS)
def test_a_specification_is_one_argument(name):
    phases = [counted(check(FORMS[name])), *control_run(check(FORMS[name]))]
    assert sum(len(json.dumps(asdict(each))) for each in phases) < ARGUMENT_BYTES * 3 // 4


def test_a_call_that_fails_is_not_made_up_for(repository):
    """Of several calls each proves its part, and the failure of one undoes the proof."""
    command = f"{PYTHON} -m pytest -q tests -k A; {PYTHON} -m pytest -q tests"
    repository.add("tests/test_a.py", TESTS.replace("self.assertEqual(answer(), 42)", "answer()"))
    assert repository.passes(command), repository.done.stderr
    repository.candidate("project.py", "import os\ndef answer():\n    os._exit(0)\n")
    assert not repository.passes(command)
    assert (repository.root / "answer").read_bytes() != SECRET.encode()
