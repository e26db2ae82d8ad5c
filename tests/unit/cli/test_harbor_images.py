"""`securebench pack build-images`, and runs of tasks whose images it names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from securebench.benchmark.files.load import check_upload
from support.cli_shell import Shell
from support.harbor_packs import folder_pack

BUILT = {"environment": {"network_mode": "no-network"}}
PREFIX = "registry.example/team"


@pytest.fixture
def tasks(tmp_path):
    root = folder_pack(tmp_path / "mine", "ready")
    dockerfile = {"environment/Dockerfile": "FROM debian:12\n"}
    return folder_pack(root, "built", "twin", config=BUILT, **dockerfile)


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """A docker that writes down what it is asked for."""
    log = tmp_path / "calls"
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" != "$BROKEN" ]\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return log


def names(shell: Shell, root: Path) -> list[str]:
    result = shell("pack", "build-images", str(root), "--registry", PREFIX)
    assert result.code == 0, result.stdout
    return re.findall(r"^securebench: image (\S+)$", result.stdout, re.MULTILINE)


def test_each_image_is_named_by_its_content(shell: Shell, tasks, builder) -> None:
    first = names(shell, tasks)
    assert [re.sub("[0-9a-f]{24}$", "#", each) for each in first] == [
        f"{PREFIX}/built:#",
        f"{PREFIX}/twin:#",
    ]
    assert builder.read_text().splitlines()[0] == f"build -t {first[0]} {tasks}/built/environment"
    (tasks / "built/instruction.md").write_text("another text\n")
    assert names(shell, tasks) == first
    (tasks / "built/environment/data").write_text("x")
    changed = names(shell, tasks)
    assert changed[0] != first[0]
    assert changed[1] == first[1]


def test_they_are_pushed_and_a_failure_ends_it(shell: Shell, tasks, builder, monkeypatch) -> None:
    words = ("pack", "build-images", str(tasks), "--registry", PREFIX, "--push")
    assert shell(*words).code == 0
    assert [line.split()[0] for line in builder.read_text().splitlines()] == ["build", "push"] * 2
    monkeypatch.setenv("BROKEN", "push")
    result = shell(*words)
    assert result.code == 1
    assert re.search(r"docker push \S+ ended with exit code 1", result.last)


def test_without_a_builder_a_script_is_written(shell: Shell, tasks, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("pack", "build-images", str(tasks), "--registry", PREFIX)
    assert "neither docker nor buildah" in shell(*words).last
    script = tmp_path / "build.sh"
    assert shell(*words, "--write", str(script)).code == 0
    env = {"EXECUTOR": "echo", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", script], cwd=tasks, env=env, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"--context dir://{tasks}/built/environment --dockerfile Dockerfile")
    assert f"--destination {PREFIX}/built:" in lines[0]


@pytest.mark.usefixtures("builder")
def test_a_run_needs_to_know_where_they_are(shell: Shell, tasks) -> None:
    files = (tasks / "manifest.yaml", tasks / "tasks.jsonl")
    missing = [str(each) for each in check_upload(*files).errors]
    assert len(missing) == 2
    assert missing[0].startswith(
        f"{tasks}/built: the task or its verifier has a Dockerfile and no ready image:"
    )
    assert "pack build-images DIR --registry PREFIX" in missing[0]
    (tasks / "manifest.yaml").write_text(f"id: mine\nversion: 2\nimages: {PREFIX}\n")
    images = [task.environment["image"] for _, task in check_upload(*files).tasks]
    assert images == [names(shell, tasks)[0], "debian:12", names(shell, tasks)[1]]


def test_a_link_in_a_build_folder_is_refused(shell: Shell, tasks) -> None:
    (tasks / "built/environment/link").symlink_to("Dockerfile")
    result = shell("pack", "build-images", str(tasks), "--registry", PREFIX)
    assert f"{tasks}/built/environment/link: is a symbolic link" in result.last
