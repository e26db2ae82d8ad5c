"""Tasks of Terminal-Bench and of Harbor."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from securebench.benchmark.files.load import check_pack
from securebench.errors import ConfigErrors
from securebench.importers.task_folder import ImportFindings, check_keys, read_compose, read_task
from securebench.importers.terminal_bench import (
    defects,
    import_terminal_bench,
    instructions,
    read_script,
    with_additions,
    workdir,
)

COMPOSE = """\
services:
  client:
    build:
      dockerfile: Dockerfile
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${T_BENCH_TEST_DIR}
      - MODE=fast
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
"""
UV = """\
#!/bin/bash
# Install uv
apt-get update && apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env
uv venv .tests
source .tests/bin/activate
uv pip install pytest==8.4.1 numpy==2.3.1
pytest $TEST_DIR/test_outputs.py -rA
"""
UVX = """\
#!/bin/bash
if [ "$PWD" = "/" ]; then
    echo "Error: no working directory"
    exit 1
fi
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA

if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
REPORTS = """\
echo 'a > b | c & d' && echo "-> \\"x\\"" >&2 2>/dev/null
echo 1 > /logs/verifier/reward.txt
echo 1 >> "/logs/verifier/reward.txt"
. ~/.cargo/env
source "$HOME/.local/bin/env"
source venv/bin/activate
apt-get clean
pytest $TEST_DIR/a.py
"""
TERMINAL_BENCH = {
    "task.yaml": "instruction: |-\n  Make out.txt.\ndifficulty: easy\ntags: [a]\n"
    "max_agent_timeout_sec: 300.0\nmax_test_timeout_sec: 45\n",
    "Dockerfile": "FROM python:3.11-slim\nCOPY app /app\nWORKDIR /app\n",
    "docker-compose.yaml": COMPOSE,
    "run-tests.sh": "#!/bin/bash\npip install pytest\npytest $TEST_DIR/test_outputs.py -rA\n",
    "tests/test_outputs.py": "DATA = '/tests/data.json'\n\ndef test(): pass\n",
    "tests/data.json": "{}",
    "solution.sh": "#!/bin/bash\necho 1 > out.txt\n",
    "app/in.txt": "in",
}
HARBOR = {
    "task.toml": 'version = "1.0"\n[metadata]\ncategory = "x"\n[verifier]\ntimeout_sec = 30\n'
    "[agent]\ntimeout_sec = 70.5\n[environment.env]\nMODE = 'slow'\n",
    "instruction.md": "Make out.txt.\n",
    "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app/sub\n",
    "tests/test.sh": UVX,
    "tests/test_outputs.py": "def test(): pass\n",
    "solution/solve.sh": "echo 1 > out.txt\n",
}


def put(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def imported(tmp_path, tasks, **options):
    for name, files in tasks.items():
        put(tmp_path / "source" / name, files)
    target = tmp_path / "pack"
    result = import_terminal_bench(tmp_path / "source", target, pack_id="tb", **options)
    return target, result


def rows(target):
    lines = (target / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def refusals(tmp_path, tasks):
    with pytest.raises(ConfigErrors) as caught:
        imported(tmp_path, tasks)
    assert not (tmp_path / "pack").exists()
    return [str(error).replace(f"{tmp_path}/source/", "") for error in caught.value.errors]


def tree(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_a_task_of_terminal_bench(tmp_path):
    target, result = imported(tmp_path, {"first": TERMINAL_BENCH})
    assert (result.tasks, result.errors) == (("first",), ())
    assert tree(target) == [
        "hidden/first/data.json",
        "hidden/first/run-tests.sh",
        "hidden/first/test_outputs.py",
        "images/first/Dockerfile",
        "images/first/app/in.txt",
        "manifest.yaml",
        "oracle/answers.jsonl",
        "tasks.jsonl",
    ]
    (row,) = rows(target)
    assert row == {
        "id": "first",
        "input": {"instructions": "Make out.txt."},
        "environment": {
            "image": "securebench/tb-first:1",
            "workdir": "/app",
            "materialize_workdir_from_image": True,
            "timeout_seconds": 300.0,
        },
        "eval": {"checker": {"source": "pytest", "path": "first", "timeout_seconds": 45.0}},
        "metadata": {"format": "terminal-bench", "difficulty": "easy", "tags": ["a"]},
    }
    tests = (target / "hidden/first/test_outputs.py").read_text(encoding="utf-8")
    assert "'/opt/securebench/evaluator/first/data.json'" in tests
    dockerfile = (target / "images/first/Dockerfile").read_text(encoding="utf-8")
    assert dockerfile.startswith(TERMINAL_BENCH["Dockerfile"])
    assert 'ENV MODE="fast"' in dockerfile
    answer = json.loads((target / "oracle/answers.jsonl").read_text(encoding="utf-8"))
    assert answer["id"] == "first"
    assert "echo 1 > out.txt" in answer["command"]


def test_the_pack_holds(tmp_path):
    target, _ = imported(tmp_path, {"first": TERMINAL_BENCH, "second": HARBOR})
    checked = check_pack(target / "manifest.yaml", target / "tasks.jsonl")
    assert checked.errors == ()
    assert [task.id for _, task in checked.tasks] == ["first", "second"]


def test_a_task_of_harbor(tmp_path):
    target, _ = imported(tmp_path, {"second": HARBOR})
    (row,) = rows(target)
    assert row["environment"]["workdir"] == "/app/sub"
    assert row["environment"]["timeout_seconds"] == 70.5
    assert row["eval"]["checker"] == {"source": "pytest", "path": "second", "timeout_seconds": 30.0}
    assert row["metadata"] == {"format": "harbor", "category": "x"}
    assert 'ENV MODE="slow"' in (target / "images/second/Dockerfile").read_text(encoding="utf-8")
    assert "solve" not in str(tree(target / "images"))


def test_a_ready_image(tmp_path):
    files = {name: text for name, text in HARBOR.items() if not name.startswith("environment")}
    files["task.toml"] = '[environment]\ndocker_image = "example/image:2"\n'
    target, _ = imported(tmp_path, {"ready": files})
    (row,) = rows(target)
    assert row["environment"]["image"] == "example/image:2"
    assert row["environment"]["timeout_seconds"] == 600.0
    assert not (target / "images").exists()


def test_a_script_of_its_own_runs_as_a_command(tmp_path):
    script = "#!/bin/bash\ncd /app\n./compare.sh $TEST_DIR/want.txt\n"
    files = TERMINAL_BENCH | {
        "run-tests.sh": script,
        "tests/want.txt": "x",
        "tests/a.sh": "cat /tests/x",
    }
    target, _ = imported(tmp_path, {"own": files})
    (row,) = rows(target)
    place = "/app/securebench/evaluation_inputs/own"
    assert row["eval"] == {
        "checker": {
            "command": f"TEST_DIR={place} bash {place}/run-tests.sh",
            "timeout_seconds": 45.0,
        },
        "test_files": {"path": "own"},
    }
    assert (target / "hidden/own/a.sh").read_text(encoding="utf-8") == f"cat {place}/x"


def test_what_tests_fetch_comes_into_the_image(tmp_path):
    target, _ = imported(tmp_path, {"uv": TERMINAL_BENCH | {"run-tests.sh": UV}})
    dockerfile = (target / "images/uv/Dockerfile").read_text(encoding="utf-8")
    assert "apt-get install -y --no-install-recommends curl" in dockerfile
    assert "pip install --no-cache-dir numpy==2.3.1\n" in dockerfile
    assert "pytest" not in dockerfile


REFUSED = {
    "no instruction": (
        {"task.yaml": "difficulty: easy\n"},
        ["t/task.yaml: there is no instruction"],
    ),
    "broken YAML": ({"task.yaml": "a: [\n"}, ["t/task.yaml"]),
    "a time that is none": (
        {"task.yaml": "instruction: x\nmax_agent_timeout_sec: soon\n"},
        ["t/task.yaml: max_agent_timeout_sec must be a positive number"],
    ),
    "two services": (
        {"docker-compose.yaml": COMPOSE + "  db:\n    image: postgres\n"},
        ["t/docker-compose.yaml: only one service called client or main", "client, db"],
    ),
    "ports": (
        {"docker-compose.yaml": COMPOSE + "    ports: ['80:80']\n    privileged: true\n"},
        ["services.client.ports has no counterpart", "services.client.privileged has no"],
    ),
    "a working folder elsewhere": (
        {"Dockerfile": "FROM debian\nWORKDIR /root\n"},
        ["t/Dockerfile: WORKDIR /root cannot be a workspace"],
    ),
    "tests in the image": (
        {"Dockerfile": "FROM debian\nCOPY tests/data.json /app/\nWORKDIR /app\n"},
        ["t/Dockerfile:2: COPY puts 'tests/data.json' into the image"],
    ),
    "a service in the image": (
        {"Dockerfile": 'FROM debian\nENTRYPOINT ["/start.sh"]\nCMD ["nginx"]\n'},
        ["t/Dockerfile:2: ENTRYPOINT starts a program", "t/Dockerfile:3: CMD starts a program"],
    ),
    "no Dockerfile": ({"Dockerfile": None}, ["t/Dockerfile: cannot be read"]),
    "no script": ({"run-tests.sh": None}, ["t/run-tests.sh: cannot be read"]),
    "a script that fetches and more": (
        {"run-tests.sh": "apt-get update\nnode server.js &\npytest $TEST_DIR/test_outputs.py\n"},
        ["t/run-tests.sh:2: 'node server.js &' is neither"],
    ),
    "other tests": (
        {"tests/test_more.py": "def test(): pass\n"},
        ["t/run-tests.sh: runs other tests than all"],
    ),
    "words before no command": (
        {"run-tests.sh": "pip install x\nsudo\nDEBIAN_FRONTEND=a\npytest $TEST_DIR\n"},
        [
            "t/run-tests.sh:2: 'sudo' is neither",
            "t/run-tests.sh:3: 'DEBIAN_FRONTEND=a' is neither",
        ],
    ),
    "a list of Dockerfiles": (
        {"docker-compose.yaml": "services: {client: {build: {context: ., dockerfile: [x]}}}\n"},
        ["t/docker-compose.yaml: services.client.build.dockerfile must be Dockerfile"],
    ),
    "a deep command": (
        {"Dockerfile": f"FROM debian\nCMD {'[' * 60_000}\n"},
        ["t/Dockerfile:2: CMD starts a program"],
    ),
    "half a character": (
        {"task.yaml": 'instruction: "\\ud800"\n'},
        ["t/task.yaml: holds half of a surrogate pair"],
    ),
    "no tests": ({"run-tests.sh": "echo nothing\n"}, ["t/run-tests.sh: runs no tests"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    changes, want = REFUSED[name]
    files = {n: text for n, text in (TERMINAL_BENCH | changes).items() if text is not None}
    found = "\n".join(refusals(tmp_path, {"t": files}))
    for text in want:
        assert text in found


HARBOR_REFUSED = {
    "broken TOML": ({"task.toml": "a = \n"}, "t/task.toml: invalid TOML"),
    "deep TOML": (
        {"task.toml": f"a = {'[' * 3000}"},
        "t/task.toml: invalid TOML: values are nested too deeply",
    ),
    "less deep TOML": (
        {"task.toml": f"[metadata]\ntags = {'[' * 100}{']' * 100}\n"},
        "t/task.toml: invalid TOML: more than 64 nested values",
    ),
    "a long number": ({"task.toml": f"a = {'1' * 5000}\n"}, "t/task.toml: invalid TOML: a number"),
    "a long number of a label": (
        {"task.toml": f"[metadata]\ncategory = 0x{'f' * 5000}\n"},
        "t/task.toml: metadata.category: a number of more than 1000 characters",
    ),
    "a date": (
        {"task.toml": "[metadata]\ntags = [2024-01-01]\n"},
        "t/task.toml: metadata.tags: only strings, numbers, booleans, lists and mappings are known",
    ),
    "no number": (
        {"task.toml": "[metadata]\ndifficulty = nan\n"},
        "t/task.toml: metadata.difficulty: a number must be finite",
    ),
    "a time without end": (
        {"task.toml": "[agent]\ntimeout_sec = inf\n"},
        "t/task.toml: timeout_sec must be a positive number",
    ),
    "a long number of an image": (
        {
            "task.toml": f"[environment]\ndocker_image = 0x{'f' * 5000}\n",
            "environment/Dockerfile": None,
        },
        "t/task.toml: environment.docker_image has no counterpart here: it must be a string",
    ),
    "a long number of a system": (
        {"task.toml": f"[environment]\nos = 0x{'f' * 5000}\n"},
        "t/task.toml: environment.os has no counterpart here: tasks run on linux",
    ),
    "a variable that is no text": (
        {"task.toml": f"[environment.env]\nA = 0x{'f' * 5000}\n"},
        "t/task.toml: environment.env.A must be a string",
    ),
    "a GPU": ({"task.toml": "[environment]\ngpus = 1\n"}, "environment.gpus"),
    "variables of the verifier": (
        {"task.toml": "[verifier.env]\nA = 'b'\n"},
        "verifier.env has no",
    ),
    "a variable of the machine": (
        {"task.toml": "[environment.env]\nA = '${HOST_A}'\n"},
        "environment: A has no fixed value",
    ),
    "no instruction": ({"instruction.md": None}, "t/instruction.md: cannot be read"),
    "a script of its own": ({"tests/test.sh": "python3 /tests/grade.py\n"}, "t/tests/test.sh:1: "),
}


@pytest.mark.parametrize("name", HARBOR_REFUSED)
def test_refused_of_harbor(tmp_path, name):
    changes, want = HARBOR_REFUSED[name]
    files = {n: text for n, text in (HARBOR | changes).items() if text is not None}
    assert want in "\n".join(refusals(tmp_path, {"t": files}))


def test_all_refusals_come_together_and_nothing_is_written(tmp_path):
    bad = TERMINAL_BENCH | {"task.yaml": "a: 1\n", "Dockerfile": "FROM x\nWORKDIR /root\n"}
    found = refusals(tmp_path, {"a": bad, "b": TERMINAL_BENCH, "c": bad, "Upper": TERMINAL_BENCH})
    assert sorted(text.split(":")[0] for text in found) == [
        "Upper",
        "a/Dockerfile",
        "a/task.yaml",
        "c/Dockerfile",
        "c/task.yaml",
    ]


def test_refused_tasks_may_be_left_out(tmp_path):
    bad = TERMINAL_BENCH | {"task.yaml": "a: 1\n"}
    target, result = imported(tmp_path, {"bad": bad, "good": TERMINAL_BENCH}, skip=True)
    assert result.tasks == ("good",)
    assert len(result.errors) == 1
    assert [row["id"] for row in rows(target)] == ["good"]


def test_a_link_is_refused(tmp_path):
    put(tmp_path / "source/t", TERMINAL_BENCH)
    (tmp_path / "source/t/app/link").symlink_to("/etc/passwd")
    with pytest.raises(ConfigErrors, match=r"app/link: packs hold files and folders only"):
        imported(tmp_path, {})


def test_an_earlier_pack_is_replaced_only_when_asked(tmp_path):
    target, _ = imported(tmp_path, {"first": TERMINAL_BENCH})
    put(target, {"README.md": "mine", "hidden/old/x": "old"})
    with pytest.raises(ConfigErrors, match="already; remove it or use --replace"):
        imported(tmp_path, {})
    imported(tmp_path, {}, replace=True)
    assert (target / "README.md").read_text(encoding="utf-8") == "mine"
    assert not (target / "hidden/old").exists()


def contents(folder):
    return {name: (folder / name).read_bytes() for name in tree(folder)}


def test_an_earlier_pack_stays_until_the_next_one_is_complete(tmp_path, monkeypatch):
    target, _ = imported(tmp_path, {"first": TERMINAL_BENCH})
    before = contents(tmp_path)

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space"):
        imported(tmp_path, {}, replace=True)
    assert contents(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, "source"]


@pytest.mark.parametrize("failing", range(1, 11))
def test_an_earlier_pack_comes_back_when_it_cannot_be_replaced(tmp_path, monkeypatch, failing):
    _, _ = imported(tmp_path, {"first": TERMINAL_BENCH})
    before = contents(tmp_path / "pack")
    moves, move = [], shutil.move

    def fail_once(source, target):
        moves.append(source)
        if len(moves) == failing:
            raise OSError(5, "Input/output error")
        return move(source, target)

    monkeypatch.setattr(shutil, "move", fail_once)
    with pytest.raises(OSError, match="Input/output"):
        imported(tmp_path, {"second": TERMINAL_BENCH}, replace=True)
    assert contents(tmp_path / "pack") == before


def test_a_pack_is_written_where_a_link_and_the_current_folder_lead(tmp_path, monkeypatch):
    put(tmp_path / "source/first", TERMINAL_BENCH)
    (tmp_path / "elsewhere/pack").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere/pack")
    monkeypatch.chdir(tmp_path / "elsewhere/pack")
    import_terminal_bench(tmp_path / "source", Path(), pack_id="tb")
    import_terminal_bench(tmp_path / "source", tmp_path / "link", pack_id="tb", replace=True)
    names = sorted(path.name for path in (tmp_path / "elsewhere/pack").iterdir())
    assert names == ["hidden", "images", "manifest.yaml", "oracle", "tasks.jsonl"]
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["pack"]


def test_a_folder_without_tasks(tmp_path):
    (tmp_path / "source").mkdir()
    with pytest.raises(ConfigErrors, match=r"holds no task\.yaml or task\.toml"):
        imported(tmp_path, {})


def test_one_task_and_a_folder_of_tasks(tmp_path):
    put(tmp_path / "checkout/tasks/one", TERMINAL_BENCH)
    for number, folder in enumerate((tmp_path / "checkout", tmp_path / "checkout/tasks/one")):
        result = import_terminal_bench(folder, tmp_path / f"pack{number}", pack_id="tb")
        assert result.tasks == ("one",)


def test_an_id_that_is_no_image_name(tmp_path):
    with pytest.raises(ConfigErrors, match="cannot be part of an image's name"):
        import_terminal_bench(tmp_path, tmp_path / "pack", pack_id="Not This")


def test_a_solution_of_several_files_makes_no_oracle(tmp_path):
    files = HARBOR | {"solution/data.bin": "x"}
    target, result = imported(tmp_path, {"t": files})
    assert (target / "oracle/answers.jsonl").read_text(encoding="utf-8") == ""
    assert "needs further files" in result.remarks[0]


# The parts

SCRIPTS = {
    "plain": ("pytest $TEST_DIR\n", (), (), (".",)),
    "quoted": ('pytest "$TEST_DIR"/test_a.py -v\n', (), (), ("test_a.py",)),
    "by module": ("python3 -m pytest ${TEST_DIR}/test_a.py\n", (), (), ("test_a.py",)),
    "from inside": ("cd $TEST_DIR\nuv run pytest test_a.py\n", (), (), ("test_a.py",)),
    "all from inside": ("cd /tests && pytest -rA\n", (), (), (".",)),
    "uv": (UV, ("curl",), ("numpy==2.3.1",), ("test_outputs.py",)),
    "uvx": (UVX, (), (), ("test_outputs.py",)),
    "words and reports": (REPORTS, (), (), ("a.py",)),
    "in a condition": ("if pytest /tests/test_a.py; then\n echo 1\nfi\n", (), (), ("test_a.py",)),
    "uv add": (
        "uv init\nuv add pytest pandas\nuv run pytest $TEST_DIR/a.py\n",
        (),
        ("pandas",),
        ("a.py",),
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_that_only_run_pytest(name):
    text, apt, pip, targets = SCRIPTS[name]
    script = read_script(text)
    assert (script.apt, script.pip, script.targets) == (apt, pip, targets)
    assert script.is_plain_pytest


@pytest.mark.parametrize(
    "step",
    [
        "pytest $TEST_DIR/a.py -k fast",
        "pytest /elsewhere/a.py",
        "python3 grade.py",
        "X=$(pytest $TEST_DIR/a.py)",
        "echo $(rm -rf /app)",
        "make -C /app test",
        "export MODE=fast",
        "'unbalanced",
        "echo 5 > /app/input.txt",
        "echo 5 >/logs/../app/input.txt",
        "echo 'a # b' > /app/input.txt",
        "echo it\\'s > '/app/input.txt'",
        'printf "y" | ./setup.sh',
        "echo hi & ./start.sh",
        ": > /app/input.txt",
        "source ./start_services.sh",
        ". /app/start.sh",
        "source venv/bin/activate ./start.sh > /app/log",
        "then ./start.sh",
        'if [ "$(./start.sh)" = 1 ]',
        "apt-get remove -y nginx",
        "apt-get update & ./start.sh",
    ],
)
def test_scripts_that_do_more(step):
    script = read_script(f"pytest $TEST_DIR/a.py\n{step}\n")
    assert [found.line for found in script.unmapped] == [2]
    assert not script.is_plain_pytest


def test_tests_beside_a_folder_that_was_left_are_others():
    script = read_script("cd $TEST_DIR\ncd /app\npytest\n")
    assert [found.text for found in script.unmapped] == ["pytest"]


def test_dockerfile_instructions():
    found = instructions(
        "# syntax=x\nFROM a AS build\nRUN one \\\n  # note\n  && two\n"
        "COPY <<EOF /app/x\nENTRYPOINT no\nEOF\nfrom b\nworkdir sub\nWORKDIR deeper/\n"
    )
    assert [(item.name, item.line) for item in found] == [
        ("FROM", 2),
        ("RUN", 3),
        ("COPY", 6),
        ("FROM", 9),
        ("WORKDIR", 10),
        ("WORKDIR", 11),
    ]
    assert workdir(found) == "/app/sub/deeper"


STAGES = {
    "a name": ("FROM a AS base\nWORKDIR /workspace\nFROM base\n", "/workspace"),
    "in capitals": ("FROM a as Base\nWORKDIR /workspace\nFROM BASE\n", "/workspace"),
    "a number": ("FROM a\nWORKDIR /workspace\nFROM b\nFROM 0\n", "/workspace"),
    "for a platform": (
        "FROM --platform=linux/amd64 a AS base\nWORKDIR /workspace\nFROM --platform=x base\n",
        "/workspace",
    ),
    "two steps, and below": (
        "FROM a AS one\nWORKDIR /workspace\nFROM one AS two\nWORKDIR sub\nFROM two\n",
        "/workspace/sub",
    ),
    "its own name": ("FROM base AS base\nWORKDIR sub\nFROM base\n", "/app/sub"),
    "another image": ("FROM a AS base\nWORKDIR /workspace\nFROM b\n", "/app"),
    "a stage that follows": ("FROM base\nFROM a AS base\nWORKDIR /x\nFROM b\n", "/app"),
    "no image": ("WORKDIR /workspace\nFROM\n", "/app"),
    "a tab": ("FROM\ta\nWORKDIR\t/workspace\n", "/workspace"),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_begins_in_the_folder_of_the_one_it_is_made_from(name):
    text, want = STAGES[name]
    assert workdir(instructions(text)) == want


@pytest.mark.parametrize(
    "line",
    ['CMD ["bash"]', "CMD sleep infinity", 'CMD ["sh", "-c", "sleep infinity"]', "CMD python3"],
)
def test_idle_commands(line):
    assert defects(instructions(f"FROM a\n{line}\n")) == []


@pytest.mark.parametrize(
    "line",
    [
        'CMD ["sh", "-c", "nginx && sleep infinity"]',
        "CMD service cron start",
        "CMD python3 /app/serve.py",
        "WORKDIR $HOME",
        "COPY ./solution.sh /x",
        'ADD ["solution", "/x"]',
    ],
)
def test_defects(line):
    (found,) = defects(instructions(f"FROM a\n{line}\n"), {"solution", "solution.sh"})
    assert found.line == 2


def test_a_dockerfile_without_additions_is_kept():
    assert with_additions("FROM a\n", {}) == "FROM a\n"


def test_additions_keep_the_user():
    text = with_additions("FROM debian\nUSER me\n", {"A": 'x "y"'}, needs_python=True)
    assert text.splitlines()[-4:] == [
        "USER root",
        'ENV A="x \\"y\\""',
        (
            "RUN apt-get update && apt-get install -y --no-install-recommends python3"
            " && rm -rf /var/lib/apt/lists/*"
        ),
        "USER me",
    ]


def test_additions_keep_the_user_of_an_earlier_stage():
    text = "FROM debian AS base\nUSER me\nFROM base\n"
    added = with_additions(text, {"A": "x"}).splitlines()
    assert added[-3:] == ["USER root", 'ENV A="x"', "USER me"]
    assert "USER root" not in with_additions(text + "FROM debian\n", {"A": "x"})


COMPOSE_PROBLEMS = {
    "no services": ("a: 1\n", "there are no services"),
    "another name": ("services: {web: {build: .}}\n", "only one service"),
    "networks": ("services: {client: {build: .}}\nnetworks: {}\n", "'networks' has no counterpart"),
    "arguments": ("services: {client: {build: {args: {A: b}}}}\n", "build.args has no counterpart"),
    "another context": ("services: {client: {build: ../x}}\n", "build.context must be"),
    "another file": (
        "services: {client: {build: {dockerfile: Other}}}\n",
        "build.dockerfile must be",
    ),
    "a working folder": (
        "services: {client: {working_dir: /srv}}\n",
        "services.client.working_dir has no counterpart here; write it as WORKDIR",
    ),
    "a program": ("services: {client: {command: nginx}}\n", "command starts a program"),
    "a volume": ("services: {client: {volumes: ['./x:/y']}}\n", "volumes may only name"),
    "a variable": ("services: {client: {environment: [TOKEN]}}\n", "TOKEN has no fixed value"),
}


@pytest.mark.parametrize("name", COMPOSE_PROBLEMS)
def test_compose_problems(name):
    text, want = COMPOSE_PROBLEMS[name]
    assert want in "\n".join(read_compose(text).problems)


def test_compose_that_maps():
    found = read_compose(COMPOSE + "    mem_limit: 2g\n")
    assert (found.variables, found.problems) == ({"MODE": "fast"}, ())
    assert found.remarks == ("mem_limit has no effect",)


PACK = Path(__file__).parents[3] / "benchmarks/terminal-bench-first10"


def test_the_committed_pack_is_a_fresh_import(tmp_path):
    target = tmp_path / PACK.name
    import_terminal_bench(PACK / "source", target, pack_id=PACK.name)
    names = tree(target)
    assert len(names) > 50
    for name in names:
        assert (target / name).read_bytes() == (PACK / name).read_bytes(), name
    for folder in ("hidden", "images", "oracle"):
        assert tree(PACK / folder) == tree(target / folder)


CARRIED = """\
version = "1.0"
artifacts = []
steps = []
[metadata]
difficulty = "easy"
category = "x"
tags = ["a"]
[environment]
docker_image = "example/image:2"
os = "Linux"
gpus = 0
gpu_types = []
network_mode = "no-network"
allowed_hosts = []
allow_internet = false
mcp_servers = []
skills_dir = ""
[environment.env]
MODE = "slow"
[agent]
timeout_sec = 70.5
network_mode = "no-network"
[verifier]
timeout_sec = 30
environment_mode = "shared"
network_mode = "no-network"
collect = []
[verifier.env]
[solution.env]
"""

TOML_REFUSED = {
    "artifacts": "artifacts = ['/app/out']",
    "artifacts of tables": "[[artifacts]]\nsource = '/app/out'",
    "steps": "[[steps]]\nname = 'one'",
    "multi_step_reward_strategy": "multi_step_reward_strategy = 'mean'",
    "schema_version": "schema_version = 1.4",
    "environment.cpus": "[environment]\ncpus = 2",
    "environment.cpus of nothing": "[environment]\ncpus = 0",
    "environment.memory_mb": "[environment]\nmemory_mb = 1024",
    "environment.storage_mb": "[environment]\nstorage_mb = 1024",
    "environment.memory": "[environment]\nmemory = '2G'",
    "environment.storage": "[environment]\nstorage = '2G'",
    "environment.gpus": "[environment]\ngpus = 1",
    "environment.gpu_types": "[environment]\ngpu_types = ['x']",
    "environment.tpu": "[environment.tpu]\ntype = 'x'",
    "environment.os": "[environment]\nos = 'windows'",
    "environment.workdir": "[environment]\nworkdir = '/root'",
    "environment.docker_image": "[environment]\ndocker_image = 3",
    "environment.network_mode": "[environment]\nnetwork_mode = 'public'",
    "environment.allowed_hosts": "[environment]\nallowed_hosts = ['a.dev']",
    "environment.allow_internet": "[environment]\nallow_internet = true",
    "environment.healthcheck": "[environment.healthcheck]\ncommand = 'true'",
    "environment.mcp_servers": "[[environment.mcp_servers]]\nname = 'x'",
    "environment.skills_dir": "[environment]\nskills_dir = '/skills'",
    "agent.user": "[agent]\nuser = 'agent'",
    "agent.network_mode": "[agent]\nnetwork_mode = 'allowlist'",
    "agent.allowed_hosts": "[agent]\nallowed_hosts = ['a.dev']",
    "verifier.env": "[verifier.env]\nA = 'b'",
    "verifier.user": "[verifier]\nuser = 0",
    "verifier.environment_mode": "[verifier]\nenvironment_mode = 'separate'",
    "verifier.environment": "[verifier.environment]",
    "verifier.collect": "[[verifier.collect]]\ncommand = 'true'",
    "verifier.network_mode": "[verifier]\nnetwork_mode = 'public'",
    "verifier.allowed_hosts": "[verifier]\nallowed_hosts = ['a.dev']",
    "solution.env": "[solution.env]\nA = 'b'",
}


def test_what_means_the_same_here_is_carried_over() -> None:
    assert check_keys(tomllib.loads(CARRIED)).refused == []
    assert check_keys(tomllib.loads(CARRIED)).without_effect == []


@pytest.mark.parametrize("case", TOML_REFUSED)
def test_what_is_not_carried_over_is_refused_by_its_key(case: str) -> None:
    found = check_keys(tomllib.loads(TOML_REFUSED[case]))
    (reason,) = found.refused
    assert reason.startswith(f"{case.split(maxsplit=1)[0]} has no counterpart here")
    assert found.without_effect == []


UNKNOWN = {
    "root": ("environment_x = 1", "environment_x is an unknown key, did you mean 'environment'?"),
    "agent": ("[agent]\nkwargs = {}", "agent.kwargs is an unknown key"),
    "near": (
        "[verifier]\ntimeout_secs = 3",
        "verifier.timeout_secs is an unknown key, did you mean 'timeout_sec'?",
    ),
    "agent has no allow_internet": (
        "[agent]\nallow_internet = true",
        "agent.allow_internet is an unknown key",
    ),
    "no table": ("environment = 3", "environment must be a table"),
    "list of tables": ("[[verifier]]\nuser = 1", "verifier must be a table"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_keys_are_refused(case: str) -> None:
    text, want = UNKNOWN[case]
    assert check_keys(tomllib.loads(text)).refused == [want]


def test_what_says_nothing_about_grading_is_dropped_with_a_remark() -> None:
    found = check_keys(
        tomllib.loads(
            "source = 's'\n[task]\nname = 'org/x'\n[metadata]\nauthor_name = 'me'\ntags = ['t']\n"
            "created = 2026-01-01\n[environment]\nbuild_timeout_sec = 600.0"
        )
    )
    assert found.refused == []
    assert found.without_effect == [
        "source",
        "task.name",
        "metadata.author_name",
        "metadata.created",
        "environment.build_timeout_sec",
    ]


def folder_of(root: Path, config: str, *files: str) -> Path:
    for name in ("environment/Dockerfile", "tests/test.sh", *files):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "instruction.md").write_text("do")
    (root / "task.toml").write_text(config)
    return root


FOLDERS = {
    "key": ("[environment]\nworkdir = '/root'", (), "task.toml: environment.workdir has no"),
    "image beside a Dockerfile": (
        "[environment]\ndocker_image = 'x'",
        (),
        "task.toml: environment.docker_image stands beside a Dockerfile; keep one of them",
    ),
    "trajectory": ("", ("trajectory.json",), "trajectory.json: has no counterpart here"),
    "ignored files": ("", (".harborignore",), ".harborignore: has no counterpart here"),
    "folder of steps": ("", ("steps/one/instruction.md",), "steps: has no counterpart here"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_refusal_names_file_and_key(tmp_path: Path, case: str) -> None:
    config, files, want = FOLDERS[case]
    findings = ImportFindings()
    read_task(folder_of(tmp_path, config, *files), findings)
    (error,) = findings.errors
    assert str(error).startswith(f"{tmp_path}/{want}")


def test_a_remark_names_the_file(tmp_path: Path) -> None:
    findings = ImportFindings()
    read_task(folder_of(tmp_path, "[metadata]\nauthor_name = 'me'"), findings)
    want = "task.toml: not kept, no effect on grading: metadata.author_name"
    assert (findings.errors, findings.remarks) == ([], [f"{tmp_path}/{want}"])
