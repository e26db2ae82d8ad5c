"""The rows of real-bugs-mini fit the repositories that their images hold."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from securebench.benchmark.families.repo_patch import candidate_policy
from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import judge_patch
from unit.benchmarks.test_benchmark_packs import (
    COMPILED_ONLY,
    WANT_FAILED,
    answers_of,
    harness_of,
    tasks_of,
)

PACK = "real-bugs-mini"
ROOT = Path(__file__).parents[3] / "benchmarks" / PACK
TASKS = {task.id: task for task in tasks_of(PACK)}
GOLD = {
    row["id"]: row["command"].removeprefix("cat <<'EOF'\n").removesuffix("EOF\n")
    for row in map(json.loads, (ROOT / "oracle/answers.jsonl").read_text().splitlines())
}
ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


def git(folder, *words, stdin=""):
    name = ("-c", "user.name=SecureBench", "-c", "user.email=securebench@example.invalid")
    done = subprocess.run(
        ["git", *name, *words],
        cwd=folder,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout


@pytest.fixture
def testbed(tmp_path):
    """Make the repository of a task as the Dockerfile does."""

    def make(task_id):
        lines = (ROOT / "images" / task_id / "build.args").read_text().splitlines()
        args = dict(line.split("=", 1) for line in lines)
        archive = ROOT / "images" / "sdists" / args["SDIST"]
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == args["SHA256"]
        flags = ["--no-same-owner", "--no-same-permissions"]
        subprocess.run(["tar", "-xzf", archive, "-C", tmp_path, *flags], check=True)
        (folder,) = tmp_path.iterdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", "-A", "-f")
        git(folder, "commit", "-q", "-m", args["SDIST"])
        return folder

    return make


def policy_of(task):
    return CandidatePolicy.of(candidate_policy(task.resources.value("tests"), None))


def test_every_row_has_its_image_and_its_answer():
    images = {path.parent.name for path in ROOT.glob("images/*/build.args")}
    assert set(GOLD) == set(TASKS) == images


def test_the_rows_for_codex_are_rows_of_this_pack():
    for task in tasks_of(COMPILED_ONLY):
        same = TASKS[task.id]
        assert task.agent_payload() == same.agent_payload()
        assert task.resources.value("tests") == same.resources.value("tests")
        assert task.environment["image"] == same.environment["image"]
        assert task.hidden_payload()["gold_patch"] == GOLD[task.id]
        assert answers_of(COMPILED_ONLY)[task.id]["candidate"] == GOLD[task.id]


@pytest.mark.parametrize("task_id", TASKS)
def test_a_row_fits_its_repository(task_id, testbed):
    task, folder = TASKS[task_id], testbed(task_id)
    tests = task.resources.value("tests")
    assert git(folder, "rev-parse", "HEAD").strip() == task.resources.value("base_commit")
    judgement = judge_patch(GOLD[task_id], policy_of(task))
    assert judgement.problem is None, judgement.message
    for patch in (judgement.text.decode(), tests["test_patch"], tests["control"]):
        git(folder, "apply", "--binary", "-", stdin=patch)
    changed = git(folder, "diff", "--name-only", "HEAD").split()
    assert set(judgement.changed) <= set(changed)
    tested = judge_patch(tests["test_patch"], policy_of(task))
    assert tested.denied or tested.dropped, "a candidate may touch the tests"


@pytest.mark.parametrize("task_id", ["pathspec-match-file-none", "boltons-sentinel-copy"])
def test_the_harness_answers_as_the_readme_says(task_id, testbed, tmp_path_factory):
    workspace = tmp_path_factory.mktemp("workspace")
    payload = TASKS[task_id].agent_payload()
    (workspace / "task.json").write_text(json.dumps(payload), encoding="utf-8")
    folder = str(testbed(task_id))
    argv = [word.replace("/testbed", folder) for word in harness_of(PACK).argv]
    done = subprocess.run(argv, cwd=workspace, capture_output=True, check=True, text=True)
    problem = judge_patch(done.stdout, policy_of(TASKS[task_id])).problem
    assert (problem is None) == (task_id not in WANT_FAILED[PACK])
