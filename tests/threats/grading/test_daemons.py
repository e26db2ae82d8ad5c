"""F2: a candidate is copied when every process of its agent is dead, and that copy is graded."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from threats.capture.trap_agents import REAL_COURIER, as_courier
from threats.grading.terminal_tasks import AGENTS, WRITE, by_command, is_refused, twin
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import Batch

SEAL_SECONDS = 10.0
"""Enough on a busy node for the twin's courier to seal before the answer is made wrong."""
# The twin's courier refuses files that change while it copies them: the daemon is still meanwhile.
DAEMON = (
    WRITE
    + """
import time
me = os.getpid()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    gone = 0
    while True:
        if not os.path.exists(f"/proc/{me}"):
            gone += 1
        if gone > 200:
            write("answer.txt", "42\\n")
        if os.path.exists("last.txt") or not os.path.exists("still"):
            write("beat.txt", str(time.time()))
        time.sleep(0.001)
write("answer.txt", "42\\n")
write("still", "")
time.sleep(1)
write("done", "")
time.sleep(SEAL_SECONDS)
write("answer.txt", "41\\n")
write("last.txt", "")
""".replace("SEAL_SECONDS", f"{SEAL_SECONDS:g}")
)
DAEMON_ENDS = DAEMON
DAEMON_HOGS = DAEMON + 'hog = [bytearray(b"x") * (1 << 24) for _ in range(64)]\n'
DAEMON_STAYS = DAEMON + "time.sleep(600)\n"
SHOW_FILES = by_command("ls; cat answer.txt")
LITTLE = Batch(
    "f2-little-memory",
    "terminal_task",
    defaults=APP,
    spec={"resources": {"limits": {"memory": "128Mi"}, "requests": {"memory": "64Mi"}}},
)
DAEMON_AT_END = AGENTS.task("daemon", agent=DAEMON_ENDS, grading=SHOW_FILES)
DAEMON_AT_LIMIT = LITTLE.task("daemon-memory", agent=DAEMON_HOGS, grading=SHOW_FILES)
DAEMON_AT_DEADLINE = AGENTS.task(
    "daemon-deadline",
    agent=DAEMON_STAYS,
    grading=SHOW_FILES,
    environment={**APP["environment"], "timeout_seconds": 3},
)
SEAL_WHEN_TOLD = (
    REAL_COURIER
    + """\
while not os.path.exists("/work/workspace/done"):
    time.sleep(0.01)
code = seal()
signal.sigwait({signal.SIGTERM})
sys.exit(code)
"""
)
"""A courier that believes a file of the shared volume instead of the kubelet."""
DAEMON_TWIN = twin("f2-sealed-alive", *as_courier(SEAL_WHEN_TOLD).patches, role="harness").task(
    "daemon", agent=DAEMON_ENDS, grading=SHOW_FILES
)


def ends(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how each container of a Pod ended."""
    fields = ("initContainerStatuses", "containerStatuses")
    each = [status for field in fields for status in pod["status"][field]]
    return {status["name"]: status["state"]["terminated"] for status in each}


@pytest.mark.short
@pytest.mark.trials(DAEMON_AT_END)
def test_a_027_attack(arena: Arena) -> None:
    record = arena.record(DAEMON_AT_END)
    (harness,) = arena.pods(DAEMON_AT_END, "harness")
    (verifier,) = arena.pods(DAEMON_AT_END, "verifier")
    ended = ends(harness)
    sealed = json.loads(ended["courier"]["message"])

    assert is_refused(record)
    assert "last.txt" in record["verifier_stdout"].splitlines()
    times = [datetime.fromisoformat(ended[name]["finishedAt"]) for name in ("harness", "courier")]
    assert times == sorted(times)
    assert sealed["digest"] in verifier["spec"]["containers"][0]["command"][3]
    assert sealed["candidate_sha256"] == record["producer_metadata"]["candidate_sha256"]
    assert verifier["metadata"]["creationTimestamp"] >= ended["harness"]["finishedAt"]


@pytest.mark.trials(DAEMON_AT_LIMIT)
def test_a_027_attack_by_memory(arena: Arena) -> None:
    record = arena.record(DAEMON_AT_LIMIT)

    assert record["passed"] is False
    assert record["launches"] == 1


@pytest.mark.trials(DAEMON_AT_DEADLINE)
def test_a_027_attack_by_deadline(arena: Arena) -> None:
    record = arena.record(DAEMON_AT_DEADLINE)

    assert (record["outcome"], record["passed"]) == ("agent", False)
    assert record["failure_reason"] == "producer_timeout"
    assert not arena.pods(DAEMON_AT_DEADLINE, "verifier")


@pytest.mark.trials(DAEMON_TWIN)
def test_a_027_twin(arena: Arena) -> None:
    record = arena.record(DAEMON_TWIN)

    assert record["passed"] is True
    assert "last.txt" not in record["verifier_stdout"].splitlines()
