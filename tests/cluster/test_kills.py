"""Killing the operator at random moments neither loses nor repeats a finished task."""

from __future__ import annotations

import json
import time
from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from securebench.run.state.entries import Finished, LaunchBegun, LaunchLost, Opened, RunEnded
from support.comparable import comparable
from support.node import kill_process
from support.release import (
    OPERATOR,
    CommandError,
    Release,
    benchmark_run,
    condition,
    keyed_pack,
    release,
)

pytestmark = pytest.mark.cluster

MANIFEST = b"""\
id: kills
version: 1
defaults:
  family: short_answer
  environment: {image: "python:3.11-slim", timeout_seconds: 60}
"""
HARNESS = """
import json, time

first, _, second = json.load(open("task.json"))["question"].split()
time.sleep(1)
print(int(first) + int(second) + (int(first) % 5 == 0))
"""


class Form(NamedTuple):
    """How large the test is.

    Args:
        tasks: Rows of the pack.
        kills: That hit an operator which had taken the run over; others come on top.
        parallelism: Of the run.
        seed: Makes the pauses repeatable.
    """

    tasks: int
    kills: int
    parallelism: int
    seed: int


SHORT = Form(tasks=12, kills=3, parallelism=3, seed=3)
LONG = Form(tasks=40, kills=20, parallelism=2, seed=20)
PAUSES = (0.5, 7.0)
"""Seconds between two kills; an operator needs two to four to take its runs over."""

LEASE = {"leaseSeconds": 3, "renewSeconds": 2, "retrySeconds": 0.5}
"""So short that the successor of a Pod that was deleted by force works before the next kill."""


@pytest.mark.parametrize(
    "form", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_records_do_not_show_that_the_operator_was_killed(form: Form) -> None:
    with release("sb-kills", {"settings.leadership": LEASE}) as own:
        kill_and_compare(own, form)


def kill_and_compare(own: Release, form: Form) -> None:
    make_pack(own, form.tasks)
    start(own, "shielded", form.parallelism)
    assert condition(own.wait_ended("shielded"))["reason"] == "Completed"
    start(own, "disturbed", form.parallelism)
    kill_at_random_moments(own, "disturbed", form)
    ended = own.wait_ended("disturbed")
    assert condition(ended)["reason"] == "Completed"
    assert ended["status"]["tasks"]["done"] == form.tasks
    check_journal(own, "disturbed", form)
    want, seen = (own.records(run) for run in ("shielded", "disturbed"))
    assert [comparable(record) for record in seen] == [comparable(record) for record in want]
    assert {record["passed"] for record in want} == {True, False}


def make_pack(own: Release, count: int) -> None:
    """Create the ConfigMap ``kills`` with that many sums."""
    rows = "".join(
        json.dumps(
            {
                "id": f"sum-{number}",
                "input": {"question": f"{number} + {number * 7}"},
                "eval": {"accepted_answers": [number * 8]},
            }
        )
        + "\n"
        for number in range(count)
    )
    pack, _ = keyed_pack(
        "ConfigMap", "kills", {"manifest.yaml": MANIFEST, "tasks.jsonl": rows.encode()}
    )
    own.create(pack)


def start(own: Release, name: str, parallelism: int) -> None:
    config = {"command": ["python3", "-c", HARNESS]}
    spec = {
        "runId": "kills",
        "pack": {"configMap": {"name": "kills"}},
        "harness": {"type": "command", "config": config},
        "parallelism": parallelism,
    }
    own.create(benchmark_run(name, spec))


def kill_at_random_moments(own: Release, run: str, form: Form) -> None:
    """Kill the operator, now its Pod and now its process, while the run goes on."""
    random = Random(form.seed)  # noqa: S311 - repeatable, not secret
    own.wait(run, lambda seen: condition(seen)["reason"] != "")
    hits = epoch = 0
    while hits < form.kills:
        time.sleep(random.uniform(*PAUSES))
        assert condition(own.get("brun", run))["status"] == "Unknown", f"over after {hits} kills"
        last, epoch = epoch, max(epoch, last_epoch(own, run))
        hits += epoch > last
        if random.random() < 0.5:
            delete_operator(own)
        else:
            kill_operator(own)


def last_epoch(own: Release, run: str) -> int:
    """Return how often the journal was taken over; 0 while the operator cannot be asked."""
    try:
        entries = own.entries(run)
    except CommandError:
        return 0
    return max((entry.epoch for entry in entries if isinstance(entry, Opened)), default=0)


def delete_operator(own: Release) -> None:
    own.kubectl("delete", "pod", OPERATOR, "--force", "--grace-period=0", "--wait=false")


def kill_operator(own: Release) -> None:
    """Kill -9 the operator's process from the node's side, as soon as there is one."""
    kill_process(lambda: own.pod_uid(OPERATOR), lambda process: process.has(b"operator"))


def check_journal(own: Release, run: str, form: Form) -> None:
    """Nothing was begun or finished twice, and the kills really made new operators."""
    entries = own.entries(run)
    finished = Counter(entry.finish.key for entry in entries if isinstance(entry, Finished))
    begun = Counter(entry.launch for entry in entries if isinstance(entry, LaunchBegun))
    epochs = [entry.epoch for entry in entries if isinstance(entry, Opened)]
    assert len(finished) == form.tasks
    assert set(finished.values()) == {1}
    assert set(begun.values()) == {1}
    assert len(begun) == 2 * form.tasks
    assert not [entry for entry in entries if isinstance(entry, LaunchLost)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > form.kills
    assert isinstance(entries[-1], RunEnded)
