"""`securebench run --harbor-job`: a job configuration of Harbor in place of flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.client.harbor_job import JOB_KEYS, HarborJob, read_job
from securebench.errors import ConfigErrors
from support.cli_shell import Shell
from support.harbor_packs import folder_pack

UNIT_TESTS = Path(__file__).parents[1]
FIRST = (UNIT_TESTS / "analysis/recorded_jobs.jsonl").read_text().splitlines()[0]
KEYS = json.loads(FIRST)["keys"]
AGENT = {"name": "claude-code", "model_name": "anthropic/m"}
BASE = {"datasets": [{"path": "tasks"}], "agents": [AGENT]}


@pytest.fixture
def write(tmp_path):
    def write(job: object) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    return write


def test_every_key_of_harbor_has_its_use() -> None:
    tables = {key.partition(".")[0] for key in JOB_KEYS if "." in key}
    missing = {
        key
        for key in KEYS
        if key not in JOB_KEYS
        and f"{key}[]" not in tables | set(JOB_KEYS)
        and key not in tables
        and not any(key.startswith((f"{each}.", f"{each}[].")) for each in JOB_KEYS)
    }
    assert missing == set()
    assert set(JOB_KEYS) <= set(KEYS)


def test_keys_with_a_counterpart(write) -> None:
    job = {
        **BASE,
        "n_attempts": 3,
        "n_concurrent_trials": 8,
        "quiet": True,
        "datasets": [{"path": "/x/tasks", "task_names": ["a*", "b"]}],
    }
    assert read_job(write(job)) == HarborJob(
        Path("/x/tasks"), "claude_code", "m", 3, 8, ("a*", "b"), None, is_quiet=True
    )


def test_absent_keys_and_null_leave_the_defaults(write) -> None:
    want = HarborJob(Path("t"), "oracle", "", None, None, (), None, is_quiet=False)
    null = {"agents": [{"name": None}], "environment": None, "retry": {"max_retries": None}}
    for more in ({}, null):
        assert read_job(write({"tasks": [{"path": "t"}], **more})) == want


NEUTRAL = {
    "timeout_multiplier": 1.0,
    "retry": {"max_retries": 0},
    "environment": {"type": "docker", "delete": True, "override_cpus": None, "env": {}},
    "verifier": {"disable": False, "env": {}},
    "metrics": [],
    "artifacts": [],
    "job_name": "x",
}


def test_values_that_mean_absence_are_accepted(write) -> None:
    assert read_job(write({**BASE, **NEUTRAL})).agent == "claude_code"


REFUSED = {
    "timeout_multiplier: the time limits": {"timeout_multiplier": 2},
    "retry.max_retries: launches": {"retry": {"max_retries": 1}},
    "environment.override_cpus: limits": {"environment": {"override_cpus": 4}},
    "verifier.disable: every task": {"verifier": {"disable": True}},
    "agents[].env: keys": {"agents": [{"env": {"KEY": "x"}}]},
    "agents: a run has one agent": {"agents": [AGENT, AGENT]},
    "agents[].name: there is no agent 'aider'": {"agents": [{"name": "aider"}]},
    "claude_code has another provider than 'bedrock'": {
        "agents": [{"name": "claude-code", "model_name": "bedrock/m"}]
    },
    "datasets[].name: the tasks are a folder": {"datasets": [{"name": "org/set"}]},
    "a run has one folder, and these name 2": {"datasets": [{"path": "a"}, {"path": "b"}]},
    "a run has one folder, and these name 0": {"datasets": []},
    "n_tasks: not beside task_names": {
        "datasets": [{"path": "a", "task_names": ["a"], "n_tasks": 1}]
    },
    "datasets[].task_names: a list of names": {"datasets": [{"path": "a", "task_names": "a"}]},
    "n_attempts: a whole number": {"n_attempts": 0},
    "n_concurrent_trials: a whole number": {"n_concurrent_trials": True},
    "quiet: true or false": {"quiet": "yes"},
    "odd: Harbor has no such key": {"odd": None},
    "agents[].odd: Harbor has no such key": {"agents": [{"odd": 1}]},
    "environment: it has another form": {"environment": []},
    "agents: its items are mappings": {"agents": ["codex"]},
}


@pytest.mark.parametrize("want", REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(write, want) -> None:
    with pytest.raises(ConfigErrors) as caught:
        read_job(write({**BASE, **REFUSED[want]}))
    assert any(want in each.reason for each in caught.value.errors)


def test_all_that_is_refused_is_named_at_once(write) -> None:
    with pytest.raises(ConfigErrors) as caught:
        read_job(write({**BASE, "odd": 1, "source_jobs": [{}], "n_attempts": "2"}))
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize("text", ["[]", "{", "a: 1\na: 2"])
def test_a_file_that_is_no_job_is_one_line(tmp_path, text) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        read_job(path)
    assert len(caught.value.errors) == 1


def test_a_job_runs(shell: Shell, write) -> None:
    tasks = folder_pack(shell.folder / "mine", "a", "b")
    job = write({"tasks": [], "datasets": [{"path": str(tasks)}], "n_attempts": 2})
    result = shell("run", "--harbor-job", str(job), "--task", "a")
    assert result.code == 0, result.stdout
    (run,) = shell.namespace.runs()
    assert run["spec"]["harness"]["type"] == "oracle"
    assert run["spec"]["attempts"] == 2
    assert run["spec"]["taskSelector"]["include"] == ["a"]


@pytest.mark.parametrize("words", [["."], ["--agent", "nop"], ["--config", "x"]])
def test_a_job_names_folder_and_agent(shell: Shell, write, words) -> None:
    result = shell("run", "--harbor-job", str(write(BASE)), *words)
    assert result.code == 2
    assert "--harbor-job names folder and agent" in " ".join(result.stderr.split())


def test_a_job_that_is_refused_is_said_in_a_line(shell: Shell, write) -> None:
    result = shell("run", "--harbor-job", str(write({**BASE, "n_attempts": 0})))
    assert result.code == 1
    assert "job.yaml" in result.last
    assert "n_attempts: a whole number from 1" in result.last
