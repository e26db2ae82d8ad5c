"""A folder of Harbor task folders is a pack."""

import json
import subprocess
from pathlib import Path

import pytest

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.folders import (
    is_folder_pack,
    read_folder_pack,
    task_digest,
)
from securebench.benchmark.files.load import CheckedPack, check_upload, load_tasks, pack_digest
from securebench.benchmark.files.materialize import write_answer, write_lanes
from securebench.benchmark.harbor.folder import read_folders
from securebench.benchmark.pack.oracle import reference_answers
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import AssetRoots, BenchmarkManifest
from securebench.errors import ConfigErrors
from securebench.run.records.redaction import task_secrets
from support.harbor_packs import READY, folder_pack


def checked(root: Path, **options) -> CheckedPack:
    return check_upload(root / "manifest.yaml", root / "tasks.jsonl", **options)


def said(root: Path, **options) -> list[str]:
    return [str(each).replace(f"{root}/", "") for each in checked(root, **options).errors]


def digest(root: Path) -> str:
    return pack_digest(root / "manifest.yaml", root / "tasks.jsonl", AssetRoots())


def test_each_folder_is_a_task(tmp_path):
    root = folder_pack(tmp_path / "mine", "b", "a")
    (root / "README.md").write_text("about the tasks\n")
    found = load_tasks(root / "manifest.yaml", root / "tasks.jsonl")
    assert [task.id for task in found.tasks] == ["a", "b"]
    assert (found.pack.manifest.id, found.pack.manifest.version) == ("mine", 1)
    (task, _) = found.tasks
    assert task.agent_payload() == {"instruction": "Do it.\n"}
    assert task.environment == {"image": "debian:12"}
    assert len(checked(root, limit=1).tasks) == 1


def test_a_task_folder_is_a_pack_of_one(tmp_path):
    root = folder_pack(tmp_path, "fix-it") / "fix-it"
    found = checked(root)
    assert [task.id for _, task in found.tasks] == ["fix-it"]
    assert found.pack.manifest.id == "fix-it"
    assert sorted(read_folder_pack(root / "manifest.yaml").files) == [
        "fix-it/instruction.md",
        "fix-it/solution/solve.sh",
        "fix-it/task.toml",
        "fix-it/tests/test.sh",
        "manifest.yaml",
    ]


def test_what_the_table_says_reaches_the_task(tmp_path):
    config = {
        "metadata": {"difficulty": "hard", "tags": ["x"]},
        "environment": {
            "docker_image": "debian:12",
            "network_mode": "no-network",
            "cpus": 2,
            "memory": "4G",
            "storage_mb": 100,
            "workdir": "/srv",
            "env": {"A": "b", "C": "${C:-d}"},
        },
        "agent": {"timeout_sec": 30, "user": "me"},
        "verifier": {"timeout_sec": 9, "env": {"A": "z"}, "user": 0},
        "solution": {"env": {"KEY": "it's"}},
    }
    root = folder_pack(tmp_path / "p", "t", config=config)
    ((_, task),) = checked(root).tasks
    container = {
        "workdir": "/srv",
        "cpus": 2,
        "memory_mb": 4096,
        "storage_mb": 100,
    }
    assert task.environment == {
        **container,
        "image": "debian:12",
        "env": {"A": "b", "C": "d"},
        "timeout_seconds": 30.0,
        "user": "me",
    }
    assert task.resources.value("verifier") == {
        "environment": {**container, "image": "", "env": {"A": "z"}, "user": 0},
        "timeout_seconds": 9.0,
    }
    assert task.metadata["difficulty"] == "hard"
    assert task.metadata["harbor"]["networks"] == {"agent": "no-network", "verifier": "no-network"}
    assert task_secrets(task.resources) == {"z", "it's"}
    answers = reference_answers(None, [task], {"t"}, is_whole=True)
    assert "export KEY='it'\"'\"'s'\n" in answers.by_id["t"].text


def test_lanes_have_the_files_where_harbor_has_them(tmp_path):
    files = {
        "tests/data/in.txt": "1",
        "tests/.harborignore": "*.log\n",
        "tests/left.log": "x",
        "solution/helper.py": "pass\n",
    }
    root = folder_pack(tmp_path / "p", "t", **files)
    ((_, task),) = checked(root).tasks
    lanes = tmp_path / "lanes"
    write_lanes(task, root, lanes)
    answer = reference_answers(None, [task], {"t"}, is_whole=True).by_id["t"]
    write_answer(answer, task, root, lanes)
    found = {path.relative_to(lanes).as_posix() for path in lanes.rglob("*") if path.is_file()}
    assert {name for name in found if not name.startswith(("public/", "hidden/public/"))} == {
        "evaluation_inputs/test.sh",
        "evaluation_inputs/data/in.txt",
        "oracle/command",
        "oracle/solution/solve.sh",
        "oracle/solution/helper.py",
    }
    shown = "".join((lanes / name).read_text() for name in found if name.startswith("public/"))
    assert "Do it." in shown
    assert "solve" not in shown
    assert "reward" not in shown


def test_a_task_without_a_solution_has_no_oracle(tmp_path):
    root = folder_pack(tmp_path / "p", "a", "b", **{"solution/solve.sh": None})
    tasks = [task for _, task in checked(root).tasks]
    with pytest.raises(ConfigErrors) as caught:
        reference_answers(None, tasks, {"b"}, is_whole=True)
    assert [each.reason for each in caught.value.errors] == [
        "task 'b' has no solve.sh, which an oracle runs"
    ]


def test_one_bad_folder_stops_the_pack(tmp_path):
    root = folder_pack(tmp_path / "p", "good")
    folder_pack(root, "bad", **{"tests/test.sh": None})
    (root / "notes").mkdir()
    assert said(root) == [
        "bad/tests/test.sh: is missing, and no image of a separate verifier brings it",
        "notes/task.toml: is missing, so this is no task folder",
    ]
    assert [task.id for _, task in checked(root).tasks] == ["good"]


def test_what_cannot_run_is_named(tmp_path):
    asked = {
        "built": ({"environment": {}}, "has a Dockerfile and no ready image"),
        "steps": (
            {**READY, "steps": [{"name": "one"}]},
            "task.toml: steps",
        ),
        "apart": (
            {**READY, "verifier": {"environment_mode": "separate"}, "artifacts": ["/proc/1"]},
            "task.toml: artifacts[0].source",
        ),
        "other": (
            {
                **READY,
                "verifier": {"environment_mode": "separate"},
                "artifacts": [{"source": "/a", "service": "db"}],
            },
            "task.toml: artifacts[0].service",
        ),
        "hooks": ({**READY, "verifier": {"collect": [{"command": "x"}]}}, "verifier.collect"),
        "keys": ({**READY, "verifier": {"env": {"K": "${JUDGE}"}}}, "verifier.env.K"),
    }
    root = tmp_path / "p"
    for name, (config, _) in asked.items():
        step = {"steps/one/instruction.md": "x"} if name == "steps" else {}
        folder_pack(root, name, config=config, **{"environment/Dockerfile": "FROM x\n", **step})
    found = said(root)
    assert len(found) == len(asked)
    for name, (_, words) in asked.items():
        assert any(each.startswith(name) and words in each for each in found), (name, found)


SEPARATE = {
    **READY,
    "artifacts": ["out", {"source": "/data", "exclude": ["*.pyc"], "destination": "d"}],
    "verifier": {
        "environment": {
            "docker_image": "judge:1",
            "network_mode": "no-network",
            "cpus": 3,
            "env": {"A": "b"},
        },
        "env": {"C": "d"},
        "user": "judge",
    },
}


def reward_request(root: Path):
    pack = read_folder_pack(root / "manifest.yaml", registry="registry.example/t")
    (task,) = [each.task for each in pack.tasks]
    return task, FAMILIES[task.task_type].reward(task)


def test_a_separate_verifier_has_an_environment_of_its_own(tmp_path):
    config = {**SEPARATE, "environment": {**READY["environment"], "cpus": 1, "env": {"X": "y"}}}
    root = folder_pack(tmp_path / "p", "t", config=config)
    task, request = reward_request(root)
    assert request.environment == {
        "image": "judge:1",
        "cpus": 3,
        "env": {"A": "b", "C": "d"},
        "user": "judge",
    }
    assert request.artifacts == (
        ("/logs/artifacts", ()),
        ("out", ()),
        ("/data", ("*.pyc",)),
    )
    assert request.brings_tests
    assert task_secrets(task.resources) == {"b", "d", "judge"}
    recorded = FAMILIES[task.task_type].record_metadata(task)
    assert recorded["artifacts"] == ["/logs/artifacts", "out", "/data"]


def test_a_separate_verifier_may_have_the_image_of_the_agent(tmp_path):
    config = {
        **READY,
        "artifacts": [{"source": "/logs/artifacts", "exclude": ["x"]}],
        "verifier": {"environment_mode": "separate"},
    }
    _, request = reward_request(folder_pack(tmp_path / "p", "t", config=config))
    assert (request.environment["image"], request.brings_tests) == ("", False)
    assert request.artifacts == (("/logs/artifacts", ("x",)),)


def test_the_image_of_a_separate_verifier_is_named_by_its_folder(tmp_path):
    config = {**READY, "verifier": {"environment_mode": "separate"}}
    root = folder_pack(tmp_path / "p", "t", config=config, **{"tests/Dockerfile": "FROM x\n"})
    assert said(root)[0].endswith("give the run the same --registry")
    _, request = reward_request(root)
    first = request.environment["image"]
    assert first.startswith("registry.example/t/t-tests:")
    (root / "t/tests/test.sh").write_text("exit 1\n")
    _, request = reward_request(root)
    assert request.environment["image"] != first
    (root / "t/tests/.harborignore").write_text("*.log\n")
    (root / "t/tests/a.log").write_text("x")
    assert any("takes out a file from which" in each for each in said(root))


def test_the_digest_covers_what_counts(tmp_path):
    root = folder_pack(tmp_path / "p", "t")
    first = digest(root)
    (root / "notes.txt").write_text("x")
    (root / "t/evidence").mkdir()
    (root / "t/evidence/log").write_text("x")
    (root / "t/tests/.harborignore").write_text("*.log\n")
    (root / "t/tests/a.log").write_text("x")
    (root / "t/tests/test.sh").chmod(0o755)
    assert digest(root) == first
    for name in ("task.toml", "instruction.md", "tests/test.sh", "solution/solve.sh"):
        path = root / "t" / name
        text = path.read_text()
        path.write_text(f"{text}\n")
        assert digest(root) != first, name
        path.write_text(text)
    (root / "t").rename(root / "u")
    assert digest(root) != first
    (root / "u").rename(root / "t")
    root.rename(tmp_path / "q")
    assert digest(tmp_path / "q") != first


def test_a_manifest_may_name_the_pack(tmp_path):
    root = folder_pack(tmp_path / "p", "t")
    (root / "manifest.yaml").write_text("id: named\nversion: 3\n")
    manifest = checked(root).pack.manifest
    assert (manifest.id, manifest.version) == ("named", 3)
    (root / "manifest.yaml").write_text("id: named\nversion: 3\nasset_roots:\n  eval: x\n")
    (problem,) = said(root)
    assert problem.startswith("manifest.yaml:3: the tasks of this pack are folders; its manifest")


def test_a_pack_names_the_score_that_passes(tmp_path):
    root = folder_pack(tmp_path / "p", "t")
    (root / "manifest.yaml").write_text("id: named\nversion: 3\nthreshold: 0.5\n")
    ((_, task),) = checked(root).tasks
    assert FAMILIES["harbor_task"].reward(task).threshold == 0.5
    pack = read_folder_pack(root / "manifest.yaml", registry="r.example/team")
    assert json.loads(pack.files["manifest.yaml"])["threshold"] == 0.5
    ((_, plain),) = checked(folder_pack(tmp_path / "q", "t")).tasks
    assert FAMILIES["harbor_task"].reward(plain).threshold == 1


@pytest.mark.parametrize("text", ["yes", "'1'", "true", "null", "[1]"])
def test_a_score_that_passes_is_a_number(text, tmp_path):
    root = folder_pack(tmp_path / "p", "t")
    (root / "manifest.yaml").write_text(f"id: named\nversion: 3\nthreshold: {text}\n")
    (problem,) = said(root)
    assert problem.startswith("manifest.yaml:3: ")


def test_a_task_file_wins(tmp_path):
    root = folder_pack(tmp_path / "p", "t")
    assert is_folder_pack(root / "manifest.yaml", root / "tasks.jsonl")
    (root / "tasks.jsonl").write_text("{}\n")
    assert not is_folder_pack(root / "manifest.yaml", root / "tasks.jsonl")


def test_no_row_names_the_family():
    row = {"id": "a", "family": "harbor_task", "input": {"instruction": "x"}, "eval": {}}
    with pytest.raises(ConfigErrors, match="its tasks are folders"):
        compile_benchmark_row(row, manifest=BenchmarkManifest("demo", 1))


def test_times_of_toml_are_text(tmp_path):
    text = (
        '[environment]\ndocker_image = "x"\nnetwork_mode = "no-network"\n'
        "[metadata]\nday = 2026-01-02\nall = [1, inf]\n"
    )
    root = folder_pack(tmp_path / "p", "t", config=text)
    ((_, task),) = checked(root).tasks
    assert task.metadata["day"] == "2026-01-02"
    assert task.metadata["all"] == [1, "inf"]


@pytest.mark.parametrize(
    ("domains", "want"),
    [
        ((), "allowlist (pypi.org, *.example.org) for the agent"),
        (("pypi.org",), "allowlist (*.example.org) for the agent"),
        (("org",), ""),
        (("pypi.org", "example.org"), ""),
        (("x.pypi.org", "ypi.org", "example.org"), "allowlist (pypi.org) for the agent"),
    ],
)
def test_hosts_of_an_agent_may_be_those_that_the_run_opens(tmp_path, domains, want):
    hosts = {"network_mode": "allowlist", "allowed_hosts": ["PyPI.org", "*.example.org"]}
    root = folder_pack(tmp_path / "p", "t", config={**READY, "agent": hosts})
    ((_, task),) = checked(root).tasks
    assert FAMILIES["harbor_task"].asked_network(task, domains) == want


COMPOSE = """\
services:
  main: {depends_on: [db]}
  db: {image: "postgres:16", environment: {PASSWORD: hidden-word}}
"""


def test_both_sides_have_the_services_of_a_task(tmp_path):
    root = folder_pack(tmp_path, "a", **{"environment/docker-compose.yaml": COMPOSE})
    (task,) = load_tasks(root / "manifest.yaml", root / "tasks.jsonl").tasks
    want = [{"name": "db", "image": "postgres:16", "env": {"PASSWORD": "hidden-word"}}]
    verifier = task.resources.value("verifier")
    assert (task.environment["services"], verifier["environment"]["services"]) == (want, want)
    assert "hidden-word" not in str(task.agent_payload())


def test_what_a_service_cannot_have_stops_a_run(tmp_path):
    text = COMPOSE.replace("PASSWORD: hidden-word", "PASSWORD: ")
    root = folder_pack(tmp_path, "a", **{"environment/docker-compose.yaml": text})
    (error,) = said(root)
    assert "environment/docker-compose.yaml" in error
    assert "services.db.environment" in error


@pytest.mark.parametrize(
    ("ignored", "want"),
    [
        (None, "0a8c9bc4c50e01ff4c8c5be8183ac200916a9589834499a474f5dfa38b8c364b"),
        (
            "deep/\n*.sh\n!test.sh\n/environment\n",
            "69cffa0a20007f7c183ad9557273998bdf65d74a5a6dd17877abbc62e2dd292f",
        ),
    ],
)
def test_the_digest_of_a_task_is_harbors(tmp_path, ignored, want):
    """As ``Packager.compute_content_hash`` of Harbor 0.26.0 says it of these files."""
    files = {
        "tests/__pycache__/x.pyc": "x",
        "tests/.harborignore": "*.md\n",
        "tests/notes.md": "n",
        "environment/a~": "x",
        "README.md": "about\n",
        "solution/deep/er.txt": "e",
        ".gitignore": ignored,
    }
    root = folder_pack(tmp_path / "p", "t", **files)
    (reading,) = read_folders(root).tasks
    assert task_digest(reading.task) == f"sha256:{want}"


def test_a_gitignore_that_is_none_gives_no_digest(tmp_path):
    root = folder_pack(tmp_path / "p", "t", **{".gitignore": "[b--a]\n"})
    (reading,) = read_folders(root).tasks
    assert task_digest(reading.task) == ""


@pytest.mark.parametrize(
    ("changes", "command", "want", "tries"),
    [
        ({}, "true", 0, 1),
        ({"retries": 3}, "false", 1, 3),
        ({"retries": 3}, '[ "$(wc -l < log)" = 3 ]', 0, 3),
        ({"retries": 2}, '[ "$(wc -l < log)" = 3 ]', 1, 2),
        ({"retries": 1, "start_period_sec": 60}, '[ "$(wc -l < log)" = 4 ]', 0, 4),
    ],
)
def test_a_health_check_is_tried_as_often_as_it_says(tmp_path, changes, command, want, tries):
    pauses = {"interval_sec": 0.01, "start_interval_sec": 0.01}
    check = {"command": f"echo x >> log; {command}", "timeout_sec": 5, **pauses, **changes}
    config = {"environment": {**READY["environment"], "healthcheck": check}}
    ((_, task),) = checked(folder_pack(tmp_path / "p", "t", config=config)).tasks
    ended = subprocess.run(task.environment["check"], cwd=tmp_path, check=False, timeout=30)
    assert ended.returncode == want
    assert len((tmp_path / "log").read_text().splitlines()) == tries
    assert task.environment["check_seconds"] > check["timeout_sec"]
