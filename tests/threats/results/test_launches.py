"""F4: what breaks a launch buys no pass, and what the agent breaks buys no second launch."""

from __future__ import annotations

import json
import signal
import time

import pytest

from securebench.run.observe import stage
from securebench.run.observe.pods import PodView, pod_view
from support.manifest_samples import policy_of, terminal_task
from support.release import Raw
from threats.honest import APP, TERMINAL, WRITE_ANSWER, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial
from threats.kit.signals import FORGE

CHECK_ANSWER = {"checker": {"command": 'test "$(cat answer.txt)" = 42'}}
SLOW_CHECK = {"checker": {"command": 'sleep 6; test "$(cat answer.txt)" = 42'}}
TIME_LIMIT_SECONDS = 120

LATE = Batch("f4-late", "terminal_task", defaults=APP)
"""Started by their tests: somebody must be there to break them."""
WRONG_AND_LOST = LATE.task("wrong", agent='open("answer.txt", "w").write("41")', grading=SLOW_CHECK)
RIGHT_AND_LOST = LATE.task("right", agent=WRITE_ANSWER, grading=SLOW_CHECK)
EVICTED = Batch("f4-evicted", "terminal_task", defaults=APP).task(
    "evicted", agent=f"import time\ntime.sleep(6)\n{WRITE_ANSWER}", grading=CHECK_ANSWER
)


def running(arena: Arena, trial: Trial, role: str, container: str) -> Raw:
    """Return a Pod of a trial as soon as a container of it runs."""
    release = arena.place(trial.batch).release
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while time.monotonic() < deadline:
        for pod in release.pods(trial.batch.name):
            is_of_role = pod["metadata"]["labels"]["securebench.dev/role"] == role
            index = pod["metadata"]["annotations"].get("securebench.dev/task-index")
            statuses = pod["status"].get("containerStatuses", [])
            is_running = any(
                each["name"] == container and "running" in each["state"] for each in statuses
            )
            if is_of_role and index == str(TASK_INDEX[trial.name]) and is_running:
                return pod
        time.sleep(0.2)
    raise AssertionError(f"no {role} Pod of {trial.name} ran")


TASK_INDEX = {"wrong": 0, "right": 1, "evicted": 0}


def delete_now(arena: Arena, trial: Trial, pod: Raw) -> None:
    """Take a Pod away as a lost node would."""
    words = ("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    arena.place(trial.batch).release.kubectl(*words)


@pytest.fixture(scope="module")
def lost(arena: Arena) -> Arena:
    """Return the arena after the verifier Pods of both late trials were taken away once."""
    trials = (WRONG_AND_LOST, RIGHT_AND_LOST)
    arena.start(trials)
    for trial in trials:
        delete_now(arena, trial, running(arena, trial, "verifier", "check"))
    return arena


def test_a_073_attack_on_a_pod(lost: Arena) -> None:
    record = lost.record(WRONG_AND_LOST)
    pods = lost.pods(WRONG_AND_LOST, "verifier")

    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert record["launches"] == 2
    assert [pod["metadata"]["annotations"]["securebench.dev/launch"] for pod in pods] == ["1", "2"]
    journal = lost.file(WRONG_AND_LOST, "journal.jsonl").decode()
    assert journal.count('"LaunchLost"') == 2


def passes_unless_it_failed(pod: Raw) -> bool:
    """Judge a Pod as a grader would that takes an early end for a good one."""
    states = [each["state"] for each in pod["status"]["containerStatuses"]]
    return not any(state.get("terminated", {}).get("exitCode") == 1 for state in states)


def test_a_073_twin_of_a_pod(lost: Arena) -> None:
    lost.record(WRONG_AND_LOST)
    first, second = lost.pods(WRONG_AND_LOST, "verifier")
    view = pod_view(first)
    assert view is not None

    assert passes_unless_it_failed(first)
    assert not passes_unless_it_failed(second)
    seen = stage.launch_stage(view, terminal_task().verification, view.created_at, policy_of(), 0)
    assert not isinstance(seen, stage.Ended)


def test_a_073_honest_after_a_loss(lost: Arena) -> None:
    record = lost.record(RIGHT_AND_LOST)

    assert_passed(lost, RIGHT_AND_LOST)
    assert record["launches"] == 2


ENDED = Batch(
    "f4-ended",
    "terminal_task",
    defaults=APP,
    spec={"resources": {"limits": {"memory": "128Mi"}, "requests": {"memory": "64Mi"}}},
)
KILL = """\
import os, signal, time
for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
    os.kill(1, number)
time.sleep(30)
"""
KILL_PARENT = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), 9)\n"
HOG = "hog = []\nwhile True: hog.append(bytearray(b'x') * (1 << 24))\n"
FILL = """\
import time
with open("full", "wb") as file:
    for _ in range(200):
        file.write(b"x" * (1 << 20))
time.sleep(50)
"""
BREAKS = {
    "kill": (KILL, {"agent"}),
    "forge": (FORGE, {"agent"}),
    "kill-parent": (KILL_PARENT, {"scored"}),
    "memory": (HOG, {"resource", "scored"}),
    "disk": (FILL, {"agent", "resource"}),
}
"""Where only processes of the agent died, what it left is judged. The candidate is too large when
the kubelet has not ended the Pod before."""
BROKEN = {
    name: ENDED.task(name, agent=agent, grading=CHECK_ANSWER) for name, (agent, _) in BREAKS.items()
}


@pytest.mark.trials(*BROKEN.values())
@pytest.mark.parametrize("how", BROKEN)
def test_a_076_attack(arena: Arena, how: str) -> None:
    record = arena.record(BROKEN[how])

    assert record["passed"] is False
    assert record["outcome"] in BREAKS[how][1]
    assert (record["attempt"], record["launches"]) == (1, 1)
    assert len(arena.pods(BROKEN[how], "harness")) == 1


@pytest.mark.trials(BROKEN["memory"])
def test_a_076_attack_by_memory(arena: Arena) -> None:
    """Some nodes kill all of a container at its memory limit, others its largest process."""
    (pod,) = arena.pods(BROKEN["memory"], "harness")
    (harness,) = (each["state"]["terminated"] for each in pod["status"]["containerStatuses"])

    is_killed = harness["exitCode"] == 128 + signal.SIGKILL
    assert arena.record(BROKEN["memory"])["outcome"] == ("resource" if is_killed else "scored")


def ended(arena: Arena, trial: Trial) -> PodView:
    """Return how the API server showed a harness Pod before the operator removed it."""
    (last,) = arena.pods(trial, "harness")
    views = [
        pod_view(state)
        for state in arena.place(trial.batch).pods.states()
        if state["metadata"]["uid"] == last["metadata"]["uid"]
    ]
    return next(view for view in reversed(views) if view and view.deleting_since is None)


def judged(view: PodView) -> stage.Stage:
    """Return the stage of an ended harness Pod."""
    return stage.launch_stage(
        view, stage.HARNESS_WORK, view.created_at, policy_of(), view.created_at + 60
    )


@pytest.mark.trials(BROKEN["kill"])
def test_a_076_twin(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    view = ended(arena, BROKEN["kill"])
    assert isinstance(judged(view), stage.Ended)

    monkeypatch.setattr(stage, "_killed_from_inside", lambda *_: None)

    assert isinstance(judged(view), stage.Interrupted)


@pytest.mark.trials(TERMINAL)
def test_a_076_honest(arena: Arena) -> None:
    assert_passed(arena, TERMINAL)
    assert arena.record(TERMINAL)["launches"] == 1


@pytest.mark.trials(TERMINAL)
def test_a_076_honest_when_evicted_from_outside(arena: Arena) -> None:
    arena.start([EVICTED])
    release = arena.place(EVICTED.batch).release
    name = running(arena, EVICTED, "harness", "harness")["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{release.namespace}/pods/{name}/eviction"
    release.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body).encode())

    assert_passed(arena, EVICTED)
    assert arena.record(EVICTED)["launches"] == 2
    assert len(arena.pods(EVICTED, "harness")) == 2
