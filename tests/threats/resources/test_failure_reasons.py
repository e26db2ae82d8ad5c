"""F10: why an agent handed nothing in is named, and no way to fail buys another launch."""

from __future__ import annotations

import json

import pytest

from threats.honest import assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial
from threats.resources.small_memory import EATS, SMALL_MEMORY

ANSWER = {"accepted_answers": ["4"]}
CHILD_EATS = f"""\
import subprocess, sys
child = subprocess.run([sys.executable, "-c", {EATS!r}])
if child.returncode == 0:
    print("4")
print("the model is too large", file=sys.stderr)
"""
FORGES = """\
import contextlib
for name in ("memory.events", "memory/memory.oom_control", "memory/memory.events"):
    with contextlib.suppress(OSError):
        with open(f"/sys/fs/cgroup/{name}", "w") as file:
            file.write("oom_kill 9\\n")
"""
SMALL = Batch("f10-reasons", "short_answer", spec={"resources": SMALL_MEMORY})
ATTACKS: dict[str, tuple[Trial, str, str, str]] = {
    "memory": (
        SMALL.task("memory", agent=CHILD_EATS, grading=ANSWER),
        "resource",
        "oom_killed",
        "memory limit of its container",
    ),
    "exit code": (
        SMALL.task("code", agent='raise SystemExit("no model")', grading=ANSWER),
        "agent",
        "harness_failed",
        "exit code 1: the candidate is empty; last line of stderr: no model",
    ),
    "a code of supervise": (
        SMALL.task("supervise", agent="raise SystemExit(92)", grading=ANSWER),
        "agent",
        "harness_failed",
        "exit code 92",
    ),
    "a forged count": (
        SMALL.task("forged", agent=FORGES, grading=ANSWER),
        "agent",
        "empty_candidate",
        "the candidate is empty",
    ),
    "no program": (
        Batch(
            "f10-no-program",
            "short_answer",
            spec={"harness": {"type": "command", "config": {"command": ["my-agent", "--fast"]}}},
        ).task("program", grading=ANSWER),
        "agent",
        "harness_not_started",
        "my-agent",
    ),
}
ENOUGH = Batch("f10-reasons-enough", "short_answer").task(
    "memory", agent=CHILD_EATS, grading=ANSWER
)


@pytest.mark.short
@pytest.mark.trials(*(attack[0] for attack in ATTACKS.values()))
@pytest.mark.parametrize("name", ATTACKS)
def test_a_320_attack(arena: Arena, name: str) -> None:
    trial, outcome, reason, words = ATTACKS[name]
    record = arena.record(trial)

    assert (record["outcome"], record["failure_reason"]) == (outcome, reason)
    assert (record["passed"], record["launches"]) == (False, 1)
    assert words in record["failure_message"]


@pytest.mark.short
@pytest.mark.trials(ATTACKS["memory"][0])
def test_a_320_attack_is_counted_by_supervise(arena: Arena) -> None:
    """The kubelet may say it too, but not on every runtime: supervise reads its own cgroup."""
    (pod,) = arena.pods(ATTACKS["memory"][0], "harness")
    ends = {each["name"]: each["state"] for each in pod["status"]["containerStatuses"]}
    assert json.loads(ends["harness"]["terminated"]["message"])["memory_kills"] >= 1


@pytest.mark.trials(ENOUGH)
def test_a_320_twin(arena: Arena) -> None:
    assert_passed(arena, ENOUGH)
