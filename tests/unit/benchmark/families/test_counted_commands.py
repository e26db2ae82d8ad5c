"""Commands in which our runner takes the place of pytest, and those whose exit code decides."""

import pytest

from securebench.benchmark.families.counted_commands import (
    argv_of,
    counted_calls,
    exit_code_alone,
    names_test_tool,
    with_runner,
)


def replaced(command):
    def words(script):
        return ("R", script) if script else ("R",)

    return with_runner(argv_of(command), words, lambda script: ('"$R"', *words(script)[1:]))


COUNTED = {
    "python3 -m pytest -q": 'python3 "$R" -q',
    "A=1 /opt/bin/python3.11  -m  pytest": 'A=1 /opt/bin/python3.11 "$R"',
    ". x/activate; python -m pytest | cat": '. x/activate; python "$R" | cat',
    "pytest -q tests": 'python3 "$R" pytest -q tests',
    "py.test": 'python3 "$R" py.test',
    "/opt/venv/bin/pytest -q": '/opt/venv/bin/python3 "$R" /opt/venv/bin/pytest -q',
    "python3 -W error -bb -X dev -m pytest": 'python3 -W error -bb -X dev "$R"',
    "python3 -W 'error::x y' -m pytest": "python3 -W 'error::x y' \"$R\"",
    "python3 -Werror -u -m pytest": 'python3 -Werror -u "$R"',
    "python3 -m pytest a || true": 'python3 "$R" a || true',
    "pytest a && pytest b": 'python3 "$R" pytest a && python3 "$R" pytest b',
    "set -e\npytest a\n# pytest\ncd b; pytest": (
        'set -e\npython3 "$R" pytest a\n# pytest\ncd b; python3 "$R" pytest'
    ),
    "timeout -k 5 60s pytest": 'timeout -k 5 60s python3 "$R" pytest',
    "env -u X A=1 nice -n 5 nohup pytest": 'env -u X A=1 nice -n 5 nohup python3 "$R" pytest',
    "uv run --extra dev pytest -q": 'uv run --extra dev python3 "$R" pytest -q',
    "uv run python -m pytest": 'uv run python "$R"',
    "poetry run pytest": 'poetry run python3 "$R" pytest',
    "time pytest": 'time python3 "$R" pytest',
    "exec pytest": 'exec python3 "$R" pytest',
    "(cd a; pytest)": '(cd a; python3 "$R" pytest)',
    "if pytest; then exit 0; fi": 'if python3 "$R" pytest; then exit 0; fi',
    "pytest -k 'a or b' > out 2>&1": "python3 \"$R\" pytest -k 'a or b' > out 2>&1",
    "cp pytest.ini x && pytest": 'cp pytest.ini x && python3 "$R" pytest',
    "pip install pytest && pytest": 'pip install pytest && python3 "$R" pytest',
    "bash -c 'cd x && pytest'": "bash -c 'cd x && python3 \"$R\" pytest'",
    "bash -lc \"cd x && pytest -k 'a or b'\"": (
        'bash -lc "cd x && python3 \\"\\$R\\" pytest -k \'a or b\'"'
    ),
}


@pytest.mark.parametrize("command", COUNTED)
def test_our_runner_takes_the_place_of_pytest_in_a_text(command):
    assert replaced(command) == ("sh", "-lc", COUNTED[command])


ARGVS = {
    ("python3", "-m", "pytest", "-q"): ("python3", "R", "-q"),
    ("python3", "-W", "error", "-m", "pytest"): ("python3", "-W", "error", "R"),
    ("pytest", "-q"): ("python3", "R", "pytest", "-q"),
    ("env", "A=1", "python3", "-m", "pytest"): ("env", "A=1", "python3", "R"),
    ("/usr/bin/env", "timeout", "9", "pytest"): (
        *("/usr/bin/env", "timeout", "9", "python3", "R", "pytest"),
    ),
    ("sh", "-c", "python3 -m pytest"): ("sh", "-c", 'python3 "$R"'),
    ("bash", "-e", "-o", "pipefail", "-c", "pytest"): (
        *("bash", "-e", "-o", "pipefail", "-c", 'python3 "$R" pytest'),
    ),
}


@pytest.mark.parametrize("command", ARGVS)
def test_our_runner_takes_the_place_of_pytest_in_an_argv(command):
    assert replaced(command) == ARGVS[command]


UNCOUNTED = [
    "tox",
    "nox -s tests",
    "make test",
    "npm test",
    "python3 -m unittest",
    "python3 -m unittest && python3 -m pytest",
    "python3 -m pytest_other",
    "mypython3 -m pytest",
    "python3 -I -m pytest",
    "python3 -mpytest",
    "python3 -um pytest",
    "coverage run -m pytest",
    "python3 -m coverage run -m pytest",
    "uv run -m pytest",
    "uv run --with pytest python -m x",
    "hatch run pytest",
    "pdm run pytest",
    "conda run -n x pytest",
    "sudo pytest",
    "env -i pytest",
    "xargs pytest < files",
    "$PYTHON -m pytest",
    "! pytest",
    "for each in a b; do pytest $each; done",
    "f() { pytest; }; f; f",
    "pytest a || pytest b",
    "pytest a & pytest b; wait",
    "pytest a; pytest b; pytest c; pytest d; pytest e",
    "x=`pytest`",
    "pytest <<EOF\nx\nEOF",
    "pytest 'x",
    "python3 -c 'import pytest; pytest.main()'",
    'sh -c "pytest -k \\"a\\""',
    "bash run_pytest.sh",
    "",
]


@pytest.mark.parametrize("command", UNCOUNTED)
def test_what_is_not_certain_is_not_counted(command):
    assert counted_calls(argv_of(command)) == 0


def test_what_is_said_of_it():
    assert "our runner cannot take the place of tox in it" in exit_code_alone("cd x && tox")
    assert "it starts no pytest" in exit_code_alone(["npm", "test"])
    assert names_test_tool("python3 -m unittest")
    assert not names_test_tool(["cat", "pytest.ini", "mypytest"])
