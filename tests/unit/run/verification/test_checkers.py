import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.protocol.messages import spec_object
from securebench.run import layout
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.verification.base import Member, verifier_pod
from securebench.run.verification.command import TESTS, checker_phases
from support.manifest_samples import FACTS, LANES, candidate, run_plan, terminal_task
from support.pytest_place import IMPORTING, phases, prechecks, task

FAILING = "def test_it():\n    assert False\n"
PASSING = "def test_it():\n    assert True\n"
ANSWER = (
    "import os, pathlib\n"
    "def test_it():\n"
    "    folder = pathlib.Path(os.environ['SECUREBENCH_WORKSPACE'])\n"
    "    assert (folder / 'answer.txt').read_text() == '42'\n"
)


def test_a_command_is_one_phase_with_the_variables_of_the_image():
    one = terminal_task()
    (phase,) = checker_phases(one, one.verification.check, LANES)
    assert (phase.name, phase.command, phase.env) == ("checker", one.verification.check.command, {})
    assert "script" not in spec_object(phase)


@pytest.mark.parametrize(
    ("path", "is_folder", "want"),
    [
        ("lab/tests", True, "/opt/securebench/evaluator/lab/tests"),
        ("lab/tests/test_a.py", False, "/opt/securebench/evaluator/lab/tests"),
        ("test_a.py", False, "/opt/securebench/evaluator"),
    ],
)
@pytest.mark.parametrize("kind", ["pytest", "script"])
def test_variables_of_the_source_form(kind, path, is_folder, want):
    phase = phases(task(kind, path), is_folder=is_folder)[-1]
    row = {"SECUREBENCH_TESTS": '{"skips": [], "plugins": [], "calls": 1}'}
    assert phase.env == {
        "SECUREBENCH_WORKSPACE": "/app",
        "SECUREBENCH_EVALUATOR": "/opt/securebench/evaluator",
        "TEST_DIR": want,
        **(row if kind == "pytest" else {}),
    }
    assert (phase.name, phase.workdir, phase.timeout_seconds) == ("checker", "/app", 40.0)


def test_a_script_is_started_by_its_first_line():
    (phase,) = phases(task("script", "lab/check.sh"))
    assert phase.command == ("/opt/securebench/evaluator/lab/check.sh",)
    assert spec_object(phase)["script"] is True
    assert not task("script").verification.check.is_pytest


def test_the_packs_tests_are_looked_at_before_the_candidate_is_there():
    (tests,) = phases(task())
    (look,) = prechecks(task())
    assert look.name == TESTS
    assert look.command[:5] == tests.command[:5] == ("python3", "-I", "-S", "-B", "-c")
    words = ("/app", "/opt/securebench/tools/pytest", "/opt/securebench/evaluator")
    words += ("/opt/securebench/evaluator/lab/tests", "/opt/securebench/output/collected.json")
    assert look.command[6:] == ("check", *words)
    assert tests.command[6:] == ("run", *words)
    assert look.env == tests.env
    assert task().verification.check.is_pytest


def test_the_checkers_files_are_mounted_read_only_at_both_places():
    checker = Resource("checker", Lane.EVALUATION_INPUTS, "json", {"source": "script", "path": "a"})
    one = task("script")
    resources = ResourceBundle((*one.task.resources.in_lane(Lane.PUBLIC), checker))
    one = replace(one, task=replace(one.task, resources=resources))
    key = LaunchKey(one.index, 1, Role.VERIFIER, 1)
    pod = verifier_pod(run_plan(one), [Member(one, key, LANES, candidate("workspace.tar"))], FACTS)
    (container,) = pod["spec"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    for path in ("/app/securebench/evaluation_inputs", "/opt/securebench/evaluator"):
        assert mounts[path]["readOnly"] is True
        assert mounts[path]["subPath"].endswith("lanes/evaluation_inputs")


@pytest.mark.parametrize("path", ["tests", "tests/test_a.py"])
@pytest.mark.parametrize(("text", "want"), [(PASSING, 0), (FAILING, 1)])
def test_the_verdict_is_that_of_the_tests(place, path, text, want):
    place.add("tests/test_a.py", text)
    assert place.run("tests", is_precheck=True).returncode == 0
    assert place.run(path).returncode == want
    assert list(place.workspace.iterdir()) == []
    assert [entry.name for entry in (place.evaluator / "tests").iterdir()] == ["test_a.py"]


def test_no_tests_is_no_pass(place):
    place.add("tests/readme.txt", "nothing here")
    assert place.run("tests").returncode == 5


def test_the_packs_own_fixtures_and_helpers_are_used(place):
    place.add("tests/conftest.py", "import pytest\n@pytest.fixture\ndef two():\n    return 2\n")
    place.add("tests/helper.py", "HALF = 1\n")
    place.add(
        "tests/test_a.py", "import helper\ndef test_it(two):\n    assert two == 2 * helper.HALF\n"
    )
    done = place.run("tests")
    assert done.returncode == 0, done.stdout


def test_an_honest_workspace_passes_and_another_fails(place):
    place.add("tests/test_a.py", ANSWER)
    place.candidate("answer.txt", "42")
    assert place.run("tests").returncode == 0
    place.candidate("answer.txt", "43")
    assert place.run("tests").returncode == 1


def test_the_candidates_modules_can_be_imported_by_tests_that_want_to(place):
    place.add("tests/test_a.py", IMPORTING)
    place.candidate("solution.py", "def answer():\n    return 42\n")
    assert place.run("tests").returncode == 0


PASS_ALL = (
    "import pytest\n"
    "@pytest.hookimpl(hookwrapper=True)\n"
    "def pytest_runtest_makereport(item, call):\n"
    "    outcome = yield\n"
    "    outcome.get_result().outcome = 'passed'\n"
    "def pytest_sessionfinish(session, exitstatus):\n"
    "    session.exitstatus = 0\n"
)
FAKE_MODULE = "import os\nos._exit(0)\n"
PLANTED = {
    "conftest.py": PASS_ALL,
    "tests/conftest.py": PASS_ALL,
    "pytest.ini": "[pytest]\naddopts = --collect-only\npython_functions = never_*\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
    "tox.ini": "[pytest]\naddopts = --version\n",
    "setup.cfg": "[tool:pytest]\naddopts = --version\n",
    "sitecustomize.py": FAKE_MODULE,
    "usercustomize.py": FAKE_MODULE,
    "pytest/__init__.py": FAKE_MODULE,
    "_pytest/__init__.py": FAKE_MODULE,
    "pluggy.py": FAKE_MODULE,
    "json.py": FAKE_MODULE,
    "typing.py": FAKE_MODULE,
    "python3": "#!/bin/sh\nexit 0\n",
    "evil.py": PASS_ALL,
    "evil-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n",
    "evil-1.0.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
    ".pytest_cache/v/cache/lastfailed": "{}",
    ".local/lib/python3.11/site-packages/usercustomize.py": FAKE_MODULE,
}


@pytest.mark.parametrize(("text", "want"), [(FAILING, 1), (PASSING, 0)])
def test_what_a_candidate_plants_changes_no_verdict(place, text, want):
    place.add("tests/test_a.py", text)
    for name, content in PLANTED.items():
        place.candidate(name, content)
        (place.workspace / name).chmod(0o755)
    done = place.run("tests")
    assert done.returncode == want, done.stdout + done.stderr
    assert "1 failed" in done.stdout or "1 passed" in done.stdout


def test_the_planted_files_would_work_without_the_defence(place):
    place.add("tests/test_a.py", FAILING)
    place.candidate("tests/conftest.py", PASS_ALL)
    place.candidate("tests/test_a.py", FAILING)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(argv, cwd=place.workspace, check=False, capture_output=True, timeout=30)
    assert done.returncode == 0
    place.candidate("pytest/__init__.py", FAKE_MODULE)
    assert subprocess.run(argv, cwd=place.workspace, check=False, timeout=30).returncode == 0


ENDINGS = {
    "at import": "import os\nos._exit(0)\n",
    "in the call": "import os\ndef answer():\n    os._exit(0)\n",
    "at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef answer():\n    return 0\n",
    "by a signal": "import os\nos.kill(os.getpid(), 9)\n",
    "in a thread": (
        "import os, threading\nthreading.Timer(0, os._exit, (0,)).start()\n"
        "import time\ntime.sleep(3)\n"
    ),
    "by leaving": "import sys\nsys.exit(0)\n",
    "with an answer of its own": (
        "import os\n"
        "for number in range(3, 20):\n"
        "    try:\n"
        "        os.write(number, bytes(17))\n"
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)\n"
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_candidate_that_ends_the_tests_fails(place, name):
    place.add("tests/test_a.py", IMPORTING)
    place.candidate("solution.py", ENDINGS[name])
    done = place.run("tests")
    assert done.returncode == 1
    if "_exit" in ENDINGS[name] and "atexit" not in ENDINGS[name]:
        assert "before they were complete" in done.stderr


def test_variables_of_the_image_add_no_options(place, monkeypatch):
    place.add("tests/test_a.py", FAILING)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_module")
    monkeypatch.setenv("PYTHONPATH", str(place.workspace))
    place.candidate("pytest.py", FAKE_MODULE)
    assert place.run("tests").returncode == 1


class TestWhereTheImageHasNoPytest:
    @pytest.fixture
    def bare(self, tmp_path):
        """Return a python3 without third-party packages."""
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"],
            check=True,
            timeout=60,
        )
        return str(tmp_path / "bare/bin/python3")

    def code(self, python, place, phase):
        made = (prechecks, phases)[phase]
        (one,) = made(task(path="tests", workspace=str(place.workspace)))
        return subprocess.run(
            [python, *one.command[1:]],
            cwd=place.workspace,
            check=False,
            capture_output=True,
            timeout=30,
        ).returncode

    def test_the_first_phase_fails(self, place, bare):
        place.add("tests/test_a.py", PASSING)
        place.candidate("pytest.py", FAKE_MODULE)
        assert self.code(bare, place, 0) == 1
        assert self.code(bare, place, 1) == 1

    def test_the_bundle_is_used(self, place, bare, monkeypatch):
        monkeypatch.setattr(layout, "PYTEST_BUNDLE", str(Path(pytest.__file__).parents[1]))
        place.add("tests/test_a.py", PASSING)
        assert self.code(bare, place, 0) == 0
        assert self.code(bare, place, 1) == 0
        place.add("tests/test_a.py", FAILING)
        assert self.code(bare, place, 1) == 1

    def test_an_install_in_place_of_the_workspace_gives_no_pytest(self, place, bare):
        packages = next(Path(bare).parents[1].glob("lib/python3*/site-packages"))
        (packages / "project.pth").write_text(f"{place.workspace}\n", encoding="utf-8")
        place.candidate("pytest.py", FAKE_MODULE)
        assert self.code(bare, place, 0) == 1
