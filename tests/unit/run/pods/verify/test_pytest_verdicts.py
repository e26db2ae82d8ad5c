"""What a check by pytest counts, and whose fault each exit code of pytest is."""

import subprocess
import sys
from pathlib import Path

import pytest

from securebench.run import layout
from support.pytest_place import IMPORTING

IMPORTED_EARLY = (
    "import os, sys\n"
    "sys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\n"
    "from solution import answer\n"
    "def test_it():\n"
    "    assert answer() == 42\n"
)
HONEST = "def answer():\n    return 42\n"
RAISED = {
    "unittest's skip": "import unittest\ndef answer():\n    raise unittest.SkipTest('x')\n",
    "pytest's skip": "import pytest\ndef answer():\n    pytest.skip('x')\n",
    "a skip at import": "import pytest\npytest.skip('x', allow_module_level=True)\n",
    "an expected failure": "import pytest\ndef answer():\n    pytest.xfail('x')\n",
    "an end with 0": "import pytest\ndef answer():\n    pytest.exit('x', returncode=0)\n",
    "the frames' secrets": (
        "import os, sys\n"
        "def answer():\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        seen = frame.f_locals\n"
        "        if 'nonce' in seen and 'writer' in seen:\n"
        "            os.write(seen['writer'], seen['nonce'] + b'\\0')\n"
        "            os._exit(0)\n"
        "        frame = frame.f_back\n"
    ),
}


OTHER = "def test_other():\n    pass\n"
TWO = {"late": IMPORTING + OTHER, "early": IMPORTED_EARLY + OTHER}


@pytest.mark.parametrize("text", TWO)
def test_honest_work_passes(place, text):
    place.add("tests/test_a.py", TWO[text])
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


@pytest.mark.parametrize("text", TWO)
@pytest.mark.parametrize("name", RAISED)
def test_what_candidate_code_raises_is_no_pass(place, name, text):
    place.add("tests/test_a.py", TWO[text])
    place.candidate("solution.py", RAISED[name])
    assert place.run("tests").returncode != 0


DECLARED = {
    "a mark": "import pytest\n@pytest.mark.skip\ndef test_a():\n    assert 0\n",
    "a condition": (
        "import pytest\n@pytest.mark.skipif(True, reason='x')\ndef test_a():\n    assert 0\n"
    ),
    "a class": "import unittest\n@unittest.skip('x')\nclass A(unittest.TestCase):\n"
    "    def test_a(self):\n        assert 0\n",
    "a method": "import unittest\nclass A(unittest.TestCase):\n    @unittest.skip('x')\n"
    "    def test_a(self):\n        assert 0\n",
    "a failure": "import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert 0\n",
    "a failure that does not come": "import pytest\n@pytest.mark.xfail\ndef test_a():\n    pass\n",
    "a failure that does not run": (
        "import pytest\n@pytest.mark.xfail(run=False)\ndef test_a():\n    assert 0\n"
    ),
    "a failure of unittest": "import unittest\nclass A(unittest.TestCase):\n"
    "    @unittest.expectedFailure\n    def test_a(self):\n        assert 0\n",
    "no cases": "import pytest\n@pytest.mark.parametrize('x', [])\ndef test_a(x):\n    assert 0\n",
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_the_tests_declare_counts_as_neither(place, name):
    place.add("tests/test_a.py", DECLARED[name])
    assert place.run("tests").returncode == 1, "nothing passed"
    place.add("tests/test_b.py", "def test_b():\n    pass\n")
    done = place.run("tests")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mark_whose_condition_does_not_hold_excuses_nothing(place):
    marks = "import pytest\npytestmark = [pytest.mark.skipif(False, reason='x'),"
    marks += " pytest.mark.xfail(False, reason='x')]\n"
    place.add("tests/test_a.py", marks + IMPORTING)
    place.add("tests/test_b.py", "def test_b():\n    pass\n")
    for name in ("pytest's skip", "an expected failure"):
        place.candidate("solution.py", RAISED[name])
        assert place.run("tests").returncode == 1
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


def test_every_test_that_was_there_before_the_candidate_must_pass(place):
    place.add("tests/test_a.py", IMPORTING)
    place.add("tests/test_b.py", "def test_b():\n    pass\n")
    assert place.run("tests", is_precheck=True).returncode == 0
    hides = "import sys, test_b\ndel test_b.test_b\n"
    place.add("tests/test_a.py", IMPORTED_EARLY)
    place.candidate("solution.py", hides + HONEST)
    done = place.run("tests")
    assert done.returncode == 1
    assert "test_b.py::test_b was there before the candidate" in done.stderr
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


IN_CONFTEST = (
    "import os, sys\nsys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\nimport solution\n"
)


@pytest.mark.parametrize(
    ("code", "conftest", "solution"),
    [
        (1, "", "def answer():\n    return 41\n"),
        (2, "", "import no_such_module\n"),
        (3, "", "import _pytest.runner as each\neach.runtestprotocol = None\n" + HONEST),
        (4, IN_CONFTEST, "raise RuntimeError\n"),
    ],
)
def test_an_exit_code_that_a_candidate_can_cause_fails_it(place, code, conftest, solution):
    place.add("tests/test_a.py", IMPORTED_EARLY)
    if conftest:
        place.add("tests/conftest.py", conftest)
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", solution)
    assert place.run("tests").returncode == code
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


def test_tests_that_a_candidate_takes_away_fail_it(place):
    place.add("tests/test_a.py", IMPORTED_EARLY.replace("def test_it", "if answer:\n  def test_it"))
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", "answer = None\n")
    assert place.run("tests").returncode == 5
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"test_a.py": "def test_(:\n"}, "test_a.py:1: SyntaxError"),
        ({"test_a.py": "def test_a():\n    pass\n", "conftest.py": "(\n"}, "conftest.py:1"),
        ({"test_a.py": "import solution\n"}, "holds no test"),
        ({"test_a.py": "class Helper:\n    pass\n"}, "holds no test: pytest collects none"),
        ({"readme.txt": "no test here"}, "holds no test"),
        ({}, "is not there"),
    ],
)
def test_what_is_the_packs_fault_is_found_before_the_candidate(place, files, want):
    for name, text in files.items():
        place.add(f"tests/{name}", text)
    done = place.run("tests", is_precheck=True)
    assert done.returncode == 1
    assert want in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        IMPORTED_EARLY,
        "from helper import *\n",
        "import unittest, solution\nclass A(unittest.TestCase):\n    def test_a(self): pass\n",
        "import solution\nglobals()['test_a'] = lambda: None\n",
    ],
)
def test_tests_that_cannot_be_collected_without_a_candidate_are_not_judged_early(place, text):
    place.add("tests/test_a.py", text)
    done = place.run("tests", is_precheck=True)
    assert done.returncode == 0, done.stderr


def test_files_that_pytest_does_not_load_may_be_anything(place):
    place.add("tests/test_a.py", "def test_a():\n    pass\n")
    place.add("tests/data/broken.py", "def (\n")
    assert place.run("tests", is_precheck=True).returncode == 0


class TestAnInstallInPlace:
    """An editable install of the workspace in the image's own packages."""

    @pytest.fixture
    def python(self, tmp_path, place, monkeypatch):
        bare = tmp_path / "bare"
        argv = [sys.executable, "-m", "venv", "--without-pip", bare]
        subprocess.run(argv, check=True, timeout=60)
        monkeypatch.setattr(layout, "PYTEST_BUNDLE", str(Path(pytest.__file__).parents[1]))
        packages = next(bare.glob("lib/python3*/site-packages"))
        (packages / "__editable__.app.pth").write_text(f"{place.workspace}\n", encoding="utf-8")
        (packages / "_finder.py").write_text("import sys\nsys.found = 1\n", encoding="utf-8")
        (packages / "finder.pth").write_text("import _finder\n", encoding="utf-8")
        return str(bare / "bin/python3")

    def test_runs_nothing_of_the_candidate(self, place, python):
        place.add("tests/test_a.py", "def test_a():\n    assert 0\n")
        for name in ("sitecustomize", "usercustomize", "pluggy", "iniconfig", "pytest"):
            place.candidate(f"{name}.py", "import os\nos._exit(0)\n")
        naive = subprocess.run([python, "-I", "-c", "raise SystemExit(3)"], check=False, timeout=30)
        assert naive.returncode == 0, "the attack works where site runs"
        assert place.run("tests", python=python).returncode == 1

    def test_lets_tests_import_the_project(self, place, python):
        text = "import sys, solution\ndef test_a():\n"
        text += "    assert solution.answer() == 42 == 41 + sys.found\n"
        place.add("tests/test_a.py", text)
        place.candidate("solution.py", HONEST)
        done = place.run("tests", python=python)
        assert done.returncode == 0, done.stdout + done.stderr
