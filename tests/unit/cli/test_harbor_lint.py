"""`securebench pack lint` on Harbor task folders, and what other commands say of them."""

import json
import re
import tarfile

import pytest

from harbor_folders.cases import files_of, write
from securebench.benchmark.harbor.keys import NO_HOOKS
from support.cli_shell import Shell
from support.harbor_packs import READY, folder_pack

UNKNOWN = "unknown key, which Harbor drops"
RUNS = "runs --network none --registry PREFIX"


@pytest.fixture
def tasks(tmp_path):
    folder = tmp_path / "tasks"
    write(folder / "good", files_of({"environment": {"build_timeout_sec": 60}}))
    write(folder / "odd", files_of({"agent": {"kwargs": {}}}))
    return folder


def test_each_folder_is_reported(shell: Shell, tasks) -> None:
    write(tasks / "bad", files_of("[environment]\ngpus = 1\n"))
    (tasks / "README.md").write_text("x")
    result = shell("pack", "lint", str(tasks))
    assert result.code == 1
    assert result.stdout.splitlines() == [
        "securebench: refused: bad",
        f"securebench: {RUNS}: good (ignored: environment.build_timeout_sec)",
        f"securebench: {RUNS}: odd",
        "securebench: no task folders: README.md",
        f"securebench: error: {tasks}/bad/task.toml: environment.gpus: tasks get no GPU",
        f"securebench: warning: {tasks}/odd/task.toml: agent.kwargs: {UNKNOWN}",
        "securebench: pack lint errors=1 warnings=1 folders=3 run=2 refused=1",
    ]


def test_an_unknown_key_is_an_error_with_strict(shell: Shell, tasks) -> None:
    assert shell("pack", "lint", str(tasks)).code == 0
    assert shell("pack", "lint", str(tasks), "--strict").code == 1
    assert shell("pack", "lint", str(tasks / "good"), "--strict").code == 0


def test_the_same_in_json(shell: Shell, tasks) -> None:
    (tasks / "good/task.toml").write_text("x")
    found = json.loads(shell("pack", "lint", str(tasks), "-o", "json").stdout)
    assert (found["errors"], found["warnings"]) == (1, 1)
    assert [(each["id"], each["runs"]) for each in found["folders"]] == [
        ("good", False),
        ("odd", True),
    ]
    assert found["folders"][1]["flags"] == ["--network none", "--registry PREFIX"]
    assert [(each["severity"], each["line"], each["rule"]) for each in found["findings"]] == [
        ("error", 1, "harbor-folder"),
        ("warning", None, "harbor-folder"),
    ]


def test_a_folder_around_the_tasks_says_where_they_are(shell: Shell, tasks) -> None:
    repository = tasks.parent / "repository"
    repository.mkdir()
    tasks.rename(repository / "tasks")
    result = shell("pack", "lint", str(repository))
    assert result.code == 1
    assert f"the Harbor task folders are in {repository / 'tasks'}" in result.stdout


def test_a_folder_with_a_tester_yaml_is_a_pack(shell: Shell, tasks) -> None:
    (tasks / "tester.yaml").write_text("benchmark: 1\n")
    result = shell("pack", "lint", str(tasks))
    assert "Harbor" not in result.stdout
    assert result.code == 1


def test_what_a_folder_says_is_shown(shell: Shell, tasks) -> None:
    config = {"verifier": {"env": {"KEY": "${JUDGE}"}}, "environment": {"docker_image": "a/b:1"}}
    write(tasks / "judged", files_of(config))
    assert shell("pack", "show", str(tasks)).stdout.splitlines() == [
        "securebench: folder good image=environment/Dockerfile",
        "securebench: folder judged image=a/b:1",
        "securebench: folder odd image=environment/Dockerfile",
    ]
    text = shell("pack", "show", "--config", str(tasks), "--task", "judged").stdout
    assert '{"verifier.env.KEY": {"name": "JUDGE", "default": null}}' in text
    found = json.loads(shell("pack", "show", str(tasks), "--all", "-o", "json").stdout)
    assert [each["image"] for each in found["tasks"]] == [
        "environment/Dockerfile",
        "a/b:1",
        "environment/Dockerfile",
    ]
    assert found["tasks"][1]["verifier"] == {
        "mode": "shared",
        "timeout_sec": 600.0,
        "user": None,
        "network": {"mode": "public", "hosts": []},
    }


def test_a_folder_that_is_refused_is_not_shown(shell: Shell, tasks) -> None:
    (tasks / "good/task.toml").write_text("[environment]\ngpus = 1\n")
    result = shell("pack", "show", str(tasks), "--all")
    assert result.code == 1
    assert f"{tasks}/good/task.toml: environment.gpus: tasks get no GPU" in result.stdout
    assert shell("pack", "show", str(tasks / "odd"), "--task", "even").code == 1


def test_a_folder_is_pushed_with_what_counts(shell: Shell, tmp_path) -> None:
    root = folder_pack(tmp_path / "mine", "fix-it")
    (root / "notes.txt").write_text("x")
    first = shell("pack", "push", str(root))
    assert first.code == 0, first.stdout
    (name,) = (each.name for each in (shell.folder / "volume/packs").glob("mine-*"))
    assert f"path={name} digest=sha256:{name.removeprefix('mine-')}" in first.stdout
    found = shell.folder / "volume/packs" / name
    assert {each.relative_to(found).as_posix() for each in found.rglob("*") if each.is_file()} == {
        "manifest.yaml",
        *(
            f"fix-it/{each}"
            for each in ("instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh")
        ),
    }
    assert "uploaded=false" in shell("pack", "push", str(root / "fix-it" / "..")).stdout


def test_layers_of_a_folder_keep_tests_and_solutions_apart(shell: Shell, tmp_path) -> None:
    root = folder_pack(tmp_path / "mine", "fix-it")
    result = shell("pack", "build", str(tmp_path / "layout"), str(root))
    assert result.code == 0, result.stdout
    blobs = tmp_path / "layout/blobs/sha256"
    names = []
    for blob in (each for each in blobs.iterdir() if each.read_bytes()[257:262] == b"ustar"):
        with tarfile.open(blob) as layer:
            names.append(set(layer.getnames()))
    public = {"manifest.yaml", "fix-it/instruction.md"}
    hidden = {"fix-it/task.toml", "fix-it/tests/test.sh", "fix-it/solution/solve.sh"}
    assert sorted(map(len, names)) == [2, 3]
    assert public in names
    assert hidden in names


def test_a_tester_yaml_names_the_folder(shell: Shell) -> None:
    tester = shell.yaml.read_text()
    files = "benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}\n"
    assert files in tester
    shell.yaml.write_text(tester.replace(files, "pack: mine\n"))
    assert "pack: there is no folder" in shell("pack", "lint", "--config", str(shell.yaml)).stdout
    (shell.folder / "mine").mkdir()
    missing = shell("pack", "lint", "--config", str(shell.yaml)).stdout
    assert "mine has no manifest.yaml, and holds no Harbor task folders" in missing
    folder_pack(shell.folder / "mine", "fix-it")
    result = shell("pack", "push", "--config", str(shell.yaml))
    assert result.code == 0, result.stdout
    assert "pack mine path=mine-" in result.stdout


@pytest.mark.parametrize("words", [["{root}"], ["--config", "{root}"]])
def test_a_folder_is_audited(shell: Shell, tmp_path, words) -> None:
    root = folder_pack(tmp_path / "mine", "fix-it")
    named = [word.format(root=root) for word in words]
    result = shell("audit", *named, "--static", "--output-dir", str(tmp_path / "out"))
    assert "audit: pack=mine" in result.stdout
    report = json.loads((tmp_path / "out/audit-report.json").read_text())
    failed = [each for each in report["findings"] if each["outcome"] == "failed"]
    assert failed == []


def test_what_this_release_cannot_run_is_refused(shell: Shell, tmp_path) -> None:
    root = folder_pack(tmp_path / "p", "ready")
    folder_pack(root, "hooks", config={**READY, "verifier": {"collect": [{"command": "x"}]}})
    lines = shell("pack", "lint", str(root)).stdout.splitlines()
    assert lines[:2] == ["securebench: refused: hooks", "securebench: runs: ready"]
    assert lines[2] == f"securebench: error: {root}/hooks/task.toml: verifier.collect: {NO_HOOKS}"


def test_show_prints_the_digest_of_a_folder_that_runs(shell: Shell, tmp_path) -> None:
    root = folder_pack(tmp_path / "mine", "fix-it")
    shown = shell("pack", "show", str(root)).stdout.splitlines()
    (digest,) = re.findall(r"sha256:[0-9a-f]{64}", shell("pack", "push", str(root)).stdout)
    assert shown == [
        f"securebench: pack mine digest={digest} tasks=1",
        "securebench: folder fix-it image=debian:12",
    ]
    assert json.loads(shell("pack", "show", str(root), "-o", "json").stdout)["digest"] == digest
