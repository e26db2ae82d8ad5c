"""Harbor task folders on the real node: their oracles are right, and who does nothing is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.release import ROOT, Record, Release, call

pytestmark = pytest.mark.e2e

TASKS = ROOT / "benchmarks" / "harbor-tasks" / "tasks"
IDS = sorted(path.parent.name for path in TASKS.glob("*/task.toml"))
AGENTS = ("oracle", "nop")

Runs = Mapping[str, Mapping[str, Record]]


@pytest.fixture(scope="module")
def runs(shared: Release) -> Runs:
    """The records of an oracle and of a nop by task; the folder is all that they are given."""
    names = {}
    for agent in AGENTS:
        place = ("-n", shared.namespace, "-o", "json")
        told = call("securebench", "submit", str(TASKS), "--agent", agent, *place)
        names[agent] = json.loads(told)["name"]
    for name in names.values():
        shared.wait_ended(name)
    return {
        agent: {record["task_id"]: record for record in shared.records(name)}
        for agent, name in names.items()
    }


@pytest.mark.parametrize("task", IDS)
def test_the_solution_gets_the_whole_reward(task: str, runs: Runs) -> None:
    record = runs["oracle"][task]
    assert (record["outcome"], record["passed"], record["score"]) == ("scored", True, 1.0), record


@pytest.mark.parametrize("task", IDS)
def test_doing_nothing_gets_no_reward(task: str, runs: Runs) -> None:
    record = runs["nop"][task]
    assert (record["outcome"], record["passed"], record["score"]) == ("scored", False, 0.0), record


def test_records_say_what_the_tasks_asked_for(runs: Runs) -> None:
    for record in runs["oracle"].values():
        asked = record["verifier_metadata"]["asked_network"]
        assert asked == {"agent": "no-network", "verifier": "no-network"}


def test_one_task_folder_runs_alone(shared: Release, tmp_path: Path) -> None:
    folder = TASKS / "count-errors"
    output = tmp_path / "out"
    place = ("-n", shared.namespace, "--output-dir", str(output), "--quiet")
    call("securebench", "run", str(folder), "--agent", "oracle", *place, seconds=300)
    (line,) = (output / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["task_id"] == "count-errors"
