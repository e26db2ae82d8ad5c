"""What is looked at before a candidate is there."""

import subprocess
import sys
from dataclasses import replace

import pytest

from securebench.run.verification.checks import (
    COMPILE,
    COMPILED,
    FILE,
    PROGRAM,
    command_prechecks,
    is_of_candidate,
)
from securebench.run.verification.checks import test_compiler as compiler_of
from support.manifest_samples import terminal_task

BELOW = "securebench/evaluation_inputs"


def check(command, workdir="/app"):
    argv = ("sh", "-lc", command) if isinstance(command, str) else tuple(command)
    return replace(terminal_task().verification.check, command=argv, workdir=workdir)


@pytest.mark.parametrize(
    ("command", "want"),
    {
        f"A=1 sh {BELOW}/run.sh": {PROGRAM: "sh", FILE: f"/app/{BELOW}/run.sh"},
        f"python3 -I -B {BELOW}/a.py": {
            PROGRAM: "python3",
            FILE: f"/app/{BELOW}/a.py",
            COMPILED: f"/app/{BELOW}/a.py",
        },
        f"python3 -W error /app/{BELOW}/a.py": {
            PROGRAM: "python3",
            FILE: f"/app/{BELOW}/a.py",
            COMPILED: f"/app/{BELOW}/a.py",
        },
        "test -e answer.txt": {PROGRAM: "test"},
        "./run.sh": {},
        "PATH=/app/bin:$PATH tool": {},
        "python3 -m pytest -q": {PROGRAM: "python3"},
        f"python3 -c 'x' {BELOW}/a.py": {PROGRAM: "python3"},
        "python3 solution.py": {PROGRAM: "python3"},
        f"grep -q x {BELOW}/a.py": {PROGRAM: "grep"},
        f"cd /tmp && python3 {BELOW}/a.py": {PROGRAM: "cd"},
        "echo 'open": {},
        "(cd x; y)": {},
    }.items(),
)
def test_what_is_certain_of_a_text_for_the_shell(command, want):
    found = {phase.name: phase.command[-1] for phase in command_prechecks(check(command), "/app")}
    assert found == want


def test_an_argv_is_looked_for_by_supervise_itself():
    phases = command_prechecks(check(["python3", "-I", f"{BELOW}/a.py"]), "/app")
    assert [(each.name, each.command[0]) for each in phases] == [
        (FILE, "sh"),
        (COMPILED, "python3"),
    ]


@pytest.mark.parametrize(
    ("program", "want"),
    {
        "python3": False,
        "/usr/bin/env": False,
        "./run": True,
        "/app/run": True,
        f"{BELOW}/run": False,
        f"/app/{BELOW}/run": False,
    }.items(),
)
def test_a_program_of_the_candidate_need_not_be_there_before_it(program, want):
    assert is_of_candidate(check([program]), "/app") is want


@pytest.mark.parametrize(
    ("command", "want"),
    {
        "python3 -m pytest -q": "python3",
        "cd src && A=1 python3.11 -m pytest -q": "python3.11",
        "PYTHONPATH=src /opt/conda/bin/python -m pytest": "/opt/conda/bin/python",
        "pytest -q": None,
        ". env/bin/activate && python3 -m pytest": None,
        "tox": None,
    }.items(),
)
def test_the_interpreter_of_a_patchs_tests(command, want):
    phase = compiler_of(check(command))
    assert (None if phase is None else phase.command[3]) == want


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("a.py", "x = 1\n", ""),
        ("a.py", "x = (\n", "a.py:1: SyntaxError: '(' was never closed"),
        ("a.py", "x = 1\0", "a.py:1: "),
        ("a.json", '{"code": "assert 1"}', ""),
        ("a.json", '{"code": "assert ("}', "a.json:1: SyntaxError"),
        ("a.json", "{}", "KeyError"),
    ],
)
def test_the_compilers_words(tmp_path, name, text, want):
    (tmp_path / name).write_text(text)
    argv = [sys.executable, *COMPILE, str(tmp_path / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == (1 if want else 0)
    assert want in done.stderr


def test_a_missing_file_is_named(tmp_path):
    argv = [sys.executable, *COMPILE, str(tmp_path / "b.py")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert "No such file" in done.stderr
