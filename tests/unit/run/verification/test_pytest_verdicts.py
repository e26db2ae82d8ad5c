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


FIRST = "import pytest, unittest\n"
EARLY = (
    FIRST
    + "import os, sys\nsys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\nimport solution\n"
)
BODY = "def test_a(self=None):\n    assert 0\n"
METHOD = "    def test_a(self):\n        assert 0\n"
DECLARED = {
    "a mark": f"@pytest.mark.skip\n{BODY}",
    "a mark with a reason": f"@pytest.mark.skip(reason='x')\n{BODY}",
    "a mark of the module": f"pytestmark = [pytest.mark.skip]\n{BODY}",
    "a class": f"@unittest.skip('x')\nclass A(unittest.TestCase):\n{METHOD}",
    "a method": f"class A(unittest.TestCase):\n    @unittest.skip('x')\n{METHOD}",
    "a mark of a method": f"class TestA:\n    @pytest.mark.skip\n{METHOD}",
    "a failure": f"@pytest.mark.xfail\n{BODY}",
    "a failure that does not come": "@pytest.mark.xfail\ndef test_a():\n    pass\n",
    "a failure that does not run": f"@pytest.mark.xfail(run=False)\n{BODY}",
    "a failure of unittest": (
        f"class A(unittest.TestCase):\n    @unittest.expectedFailure\n{METHOD}"
    ),
}


@pytest.mark.parametrize("first", [FIRST, EARLY], ids=["alone", "with the candidate"])
@pytest.mark.parametrize("name", DECLARED)
def test_what_a_file_skips_without_a_condition_counts_as_neither(place, name, first):
    place.add("tests/test_a.py", first + DECLARED[name])
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 1, "nothing passed"
    place.add("tests/test_b.py", "def test_b():\n    pass\n")
    assert place.run("tests", is_precheck=True).returncode == 0
    done = place.run("tests")
    assert done.returncode == 0, done.stdout + done.stderr


OUT = "import os, pathlib\nOUT = pathlib.Path(os.environ['SECUREBENCH_WORKSPACE'], 'out.txt')\n"
CONDITIONAL = {
    "a mark": f"@pytest.mark.skipif(sys.version_info > (3,), reason='x')\n{BODY}",
    "a decorator": f"class A(unittest.TestCase):\n    @unittest.skipIf(True, 'x')\n{METHOD}",
    "a failure": f"@pytest.mark.xfail(True, reason='x')\n{BODY}",
    "a body": "def test_a():\n    pytest.skip('x')\n",
    "a method": "class A(unittest.TestCase):\n    def test_a(self):\n        self.skipTest('x')\n",
    "a fixture": "@pytest.fixture\ndef no():\n    pytest.skip('x')\ndef test_a(no):\n    pass\n",
    "an import": "pytest.importorskip('no_such_module')\n",
    "a set-up": (
        "class A(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n"
        f"        raise unittest.SkipTest('x')\n{METHOD}"
    ),
    "a file": f"{OUT}@pytest.mark.skipif(not OUT.exists(), reason='x')\n{BODY}",
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_what_is_skipped_without_the_candidate_too_counts_as_neither(place, name):
    place.add("tests/test_a.py", f"import sys\n{FIRST}{CONDITIONAL[name]}")
    place.add("tests/test_b.py", IMPORTING)
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", HONEST)
    done = place.run("tests")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CONDITIONAL)
def test_who_hands_in_nothing_gains_nothing_by_it(place, name):
    place.add("tests/test_a.py", f"import sys\n{FIRST}{CONDITIONAL[name]}")
    place.add("tests/test_b.py", OTHER)
    assert place.run("tests", is_precheck=True).returncode == 0
    done = place.run("tests")
    assert done.returncode == 1
    assert "no test passes that did not without the candidate" in done.stderr


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_skip_that_came_with_the_candidate_fails_unless_the_row_names_it(place, name):
    """The control run knows nothing of a test: its report is not there."""
    place.add("tests/test_a.py", f"import sys\n{FIRST}{CONDITIONAL[name]}")
    place.add("tests/test_b.py", IMPORTING)
    place.candidate("solution.py", HONEST)
    done = place.run("tests")
    assert done.returncode == 1
    assert "which the row does not name" in done.stderr
    assert place.run("tests", skips=("tests/test_a.py*",)).returncode == 0


REPORTS = {
    "alone": (
        f"{OUT}import pytest\nFILES = sorted(OUT.parent.glob('*.json'))\n"
        "@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)\n"
        "def test_each(path):\n    assert path.read_text() == 'right'\n"
    ),
    "beside a fixed one": (
        f"{OUT}import pytest\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "@pytest.mark.parametrize('path', sorted(OUT.parent.glob('*.json')))\n"
        "def test_each(path, number):\n    assert path.read_text() == 'right'\n"
    ),
    "by a hook": (
        f"{OUT}def pytest_generate_tests(metafunc):\n"
        "    if 'path' in metafunc.fixturenames:\n"
        "        metafunc.parametrize('path', sorted(OUT.parent.glob('*.json')))\n"
        "def test_each(path):\n    assert path.read_text() == 'right'\n"
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_parameters_that_the_candidate_makes(place, name):
    """Right files pass, wrong ones and none at all fail; a row may let there be none."""
    place.add("tests/test_a.py", REPORTS[name])
    place.add("tests/test_b.py", OTHER)
    assert place.run("tests", is_precheck=True).returncode == 0
    done = place.run("tests")
    assert done.returncode == 1
    assert "has no parameters: what it tests is not there" in done.stderr
    assert place.run("tests", skips=("tests/test_a.py::test_each",)).returncode == 0
    place.candidate("a.json", "right")
    place.candidate("b.json", "right")
    done = place.run("tests")
    assert done.returncode == 0, done.stdout + done.stderr
    place.candidate("b.json", "wrong")
    assert place.run("tests").returncode == 1


TWICE = {
    "subtests": "def test_a(subtests):\n    with subtests.test(n=1):\n        check()\n",
    "subtests of unittest": (
        "class A(unittest.TestCase):\n    def test_a(self):\n"
        "        with self.subTest(n=1):\n            check()\n"
    ),
}
CHECKED = EARLY + "def check():\n    assert solution.answer() == 42\n"


@pytest.mark.parametrize("raised", ["unittest's skip", "pytest's skip", "an expected failure"])
@pytest.mark.parametrize("name", TWICE)
def test_the_worst_report_of_a_test_counts(place, name, raised):
    place.add("tests/test_a.py", CHECKED + TWICE[name] + OTHER)
    assert place.run("tests", is_precheck=True).returncode == 0
    place.candidate("solution.py", RAISED[raised])
    assert place.run("tests").returncode == 1
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


RERUN = (
    "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
    "def pytest_runtest_protocol(item, nextitem):\n"
    "    from _pytest.runner import runtestprotocol\n"
    "    for _ in range(2):\n"
    "        reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
    "        for report in reports:\n"
    "            if report.failed and not hasattr(item, 'again'):\n"
    "                report.outcome = 'rerun'\n"
    "            item.ihook.pytest_runtest_logreport(report=report)\n"
    "        item.again = True\n"
    "        if all(each.passed for each in reports):\n            return True\n"
    "    return True\n"
)
ONCE = "times = []\ndef answer():\n    times.append(1)\n    return 41 + len(times) // 2\n"


def test_a_failure_before_a_rerun_is_a_failure(place):
    place.add("tests/conftest.py", RERUN)
    place.add("tests/test_a.py", IMPORTING)
    place.candidate("solution.py", ONCE)
    done = place.run("tests")
    assert done.returncode == 1
    assert "failed before it was run again" in done.stderr
    place.candidate("solution.py", HONEST)
    assert place.run("tests").returncode == 0


ASYNC = (
    "import asyncio, pytest\n@pytest.mark.asyncio\nasync def test_a():\n    import os, sys\n"
    "    sys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\n    import solution\n"
    "    await asyncio.sleep(0)\n    assert solution.answer() == 42\n"
)


def test_asynchronous_tests_run_where_the_row_names_the_plugin(place):
    place.add("tests/test_a.py", ASYNC)
    place.add("tests/test_b.py", OTHER)
    place.candidate("solution.py", HONEST)
    done = place.run("tests")
    assert done.returncode == 1
    assert "test_a did not pass; it is asynchronous, which takes a plugin" in done.stderr
    for name in ("pytest_asyncio", "pytest-asyncio", "asyncio"):
        done = place.run("tests", plugins=(name,))
        assert done.returncode == 0, done.stdout + done.stderr
    place.candidate("solution.py", "def answer():\n    return 41\n")
    assert place.run("tests", plugins=("pytest_asyncio",)).returncode == 1


def test_a_plugin_that_is_not_there_is_the_packs_fault(place):
    place.add("tests/test_a.py", ASYNC)
    done = place.run("tests", is_precheck=True, plugins=("pytest_nothing",))
    assert done.returncode == 1
    assert "plugins: there is no pytest plugin pytest_nothing" in done.stderr
    assert place.run("tests", is_precheck=True, plugins=("pytest_asyncio",)).returncode == 0


def test_a_control_run_leaves_nothing_in_the_workspace(place):
    writes = "import os, pathlib, pytest\ndef test_a():\n    pathlib.Path('skip.txt').touch()\n"
    writes += f"    pathlib.Path({str(place.workspace)!r}, 'left').mkdir()\n"
    place.add("tests/test_a.py", writes)
    assert place.run("tests", is_precheck=True).returncode == 0
    assert list(place.workspace.iterdir()) == []


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
