"""Keys of a Harbor task.toml: carried over, dropped with a remark, or refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from securebench.importers.task_folder import ImportFindings, check_keys, read_task

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

REFUSED = {
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


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_carried_over_is_refused_by_its_key(case: str) -> None:
    found = check_keys(tomllib.loads(REFUSED[case]))
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
