"""F3: candidate code does not decide about itself, in Pods."""

from __future__ import annotations

import json

import pytest

from securebench.controller.volume.folders import INSTALLED_TOOLS, RUNS
from threats.candidate_code.forged_success import (
    FORGED,
    NO_ASSERTIONS,
    SEEKING,
    UNLESS_CONTROLLED,
    WITH_CONTROL,
    WITHOUT_CONTROL,
)
from threats.candidate_code.probe import HIJACK, PROBE, report_of
from threats.grading.counted_patches import uncounted
from threats.honest import (
    APP,
    REPO_DEFAULTS,
    REPO_INPUT,
    REPO_ROW,
    assert_passed,
)
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Weakening
from threats.kit.canaries import canary
from threats.kit.local_judging import ANSWER, BROKEN, CHANNEL, INCOMPLETE

SECRETS = {name: canary() for name in ("tests", "reference", "canonical")}
HIDDEN = {
    "tests": {"source": "inline", "code": f"{ANSWER}# {SECRETS['tests']}\n"},
    "reference_solution": f"# {SECRETS['reference']}\n",
    "canonical_solution": f"# {SECRETS['canonical']}\n",
}


def limited(seconds: float) -> dict[str, object]:
    return {"tests": {"source": "inline", "code": ANSWER, "timeout_seconds": seconds}}


WRONG_PROBE = f"{PROBE}{HIJACK}def answer(_): return 7\n"
SLEEPY = """\
import time
sleep = time.sleep
time.time = time.monotonic = time.perf_counter = lambda: 0.0
def answer(number):
    sleep(3)
    return number * 7
"""

CODES = Batch("f3-code", "code_completion")
ENDS = CODES.task("ends", candidate="import os\ndef answer(_): os._exit(0)\n", grading=HIDDEN)
GUESSES = CODES.task(
    "guesses",
    candidate=f"{CHANNEL}def answer(_):\n    send(forged(42))\n    return 7\n",
    grading=HIDDEN,
)
HALF = CODES.task(
    "half",
    candidate=f'{CHANNEL}def answer(_):\n    channel().sendall(b"\\0\\0\\0\\x63[")\n'
    "    import time; time.sleep(60)\n",
    grading=limited(2),
)
SEEKS = CODES.task("seeks", candidate=WRONG_PROBE, grading=HIDDEN)
SLEEPS = CODES.task("sleeps", candidate=SLEEPY, grading=limited(30))
TOO_SLOW = CODES.task("too-slow", candidate=SLEEPY, grading=limited(2))

INPUTS = "/opt/securebench/evaluation_inputs"
SEES_TESTS = Batch(
    "f3-sees-tests",
    "code_completion",
    weakening=Weakening(
        (
            (
                '[JSONPatch{op: "add", path: "/spec/initContainers/1/volumeMounts/-", value: '
                f"object.spec.containers[0].volumeMounts.filter(m, m.mountPath == '{INPUTS}')[0]}}]"
            ),
        ),
        role="verifier",
    ),
).task("seeks", candidate=WRONG_PROBE, grading=HIDDEN)
AS_ROOT = Batch(
    "f3-as-root",
    "code_completion",
    weakening=Weakening(
        (
            (
                '[JSONPatch{op: "replace", path: "/spec/initContainers/1/securityContext",'
                ' value: {"runAsUser": 0}}]'
            ),
        ),
        role="verifier",
    ),
).task("seeks", candidate=WRONG_PROBE, grading=HIDDEN)

LEAVE_PROBE = f'open("probe.py", "w").write({PROBE + HIJACK!r})\n'
RUN_PROBE = {"checker": {"command": "python3 probe.py; exit 1", "timeout_seconds": 60}}
TASKS = Batch("f3-terminal", "terminal_task", defaults=APP)
TRACES = TASKS.task("traces", agent=LEAVE_PROBE, grading=RUN_PROBE)
MAY_TRACE = Batch(
    "f3-may-trace",
    "terminal_task",
    defaults=APP,
    weakening=Weakening(
        (
            (
                '[JSONPatch{op: "add", path: "/spec/containers/0/securityContext/capabilities/add",'
                ' value: ["SYS_PTRACE"]}]'
            ),
        ),
        role="verifier",
    ),
).task("traces", agent=LEAVE_PROBE, grading=RUN_PROBE)

REPOS = Batch("f3-repo", "repo_patch", defaults=REPO_DEFAULTS)
FORGES = REPOS.task("forges", candidate=FORGED, given=REPO_INPUT, grading=REPO_ROW["eval"])
UNCONTROLLED = uncounted("uncontrolled", FORGED, control=None)
"""Where only the exit code of the tests decides."""
DISARMS = REPOS.task("disarms", candidate=NO_ASSERTIONS, given=REPO_INPUT, grading=REPO_ROW["eval"])
DISARMS_CHECKED = REPOS.task(
    "disarms-checked", candidate=NO_ASSERTIONS, given=REPO_INPUT, grading=WITH_CONTROL
)
LOOKS = REPOS.task("looks", candidate=UNLESS_CONTROLLED, given=REPO_INPUT, grading=REPO_ROW["eval"])
DISARMS_UNSEEN = REPOS.task(
    "disarms-unseen", candidate=NO_ASSERTIONS, given=REPO_INPUT, grading=WITHOUT_CONTROL
)

VERIFIED = {"isolation": {"require": "Verified"}}
"""The canary runs and shows that Pods get a user namespace of their own."""
TRACES_CONFINED = Batch("f3-terminal-verified", "terminal_task", defaults=APP, spec=VERIFIED).task(
    "traces", agent=LEAVE_PROBE, grading=RUN_PROBE
)
SEEKS_IN_REPO = Batch("f3-repo-verified", "repo_patch", defaults=REPO_DEFAULTS, spec=VERIFIED).task(
    "seeks",
    candidate=SEEKING,
    given=REPO_INPUT,
    grading={**REPO_ROW["eval"], "gold_patch": f"# {canary()}\n"},
)


def assert_failed(arena: Arena, trial, words: str) -> None:
    record = arena.record(trial)
    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert words in record["verifier_stderr"]


@pytest.mark.short
@pytest.mark.trials(ENDS)
def test_a_040_attack_in_code(arena: Arena) -> None:
    assert_failed(arena, ENDS, INCOMPLETE)


@pytest.mark.short
@pytest.mark.trials(FORGES)
def test_a_040_attack_in_a_repository(arena: Arena) -> None:
    record = arena.record(FORGES)
    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert "the tests ended before they were complete" in record["verifier_stderr"]
    assert record["labels"]["grading"] == "tests"


@pytest.mark.trials(LOOKS)
def test_a_040_attack_that_looks_for_the_control(arena: Arena) -> None:
    """Code in the tests' own interpreter can tell the two runs apart; the record says so."""
    record = arena.record(LOOKS)
    assert record["outcome"] == "scored"
    assert record["passed"] is False or (
        record["labels"]["grading"],
        record["verifier_metadata"]["containment_profile"],
    ) == ("tests", "shared_runtime")


@pytest.mark.trials(UNCONTROLLED)
def test_a_040_twin_in_a_repository(arena: Arena) -> None:
    assert arena.record(UNCONTROLLED)["passed"] is True


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(DISARMS, marks=pytest.mark.trials(DISARMS), id="control of the pack"),
        pytest.param(
            DISARMS_CHECKED,
            marks=pytest.mark.trials(DISARMS_CHECKED),
            id="control that tries every helper",
        ),
    ],
)
def test_a_042_attack_in_a_repository(arena: Arena, trial) -> None:
    record = arena.record(trial)
    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert record["failure_reason"] == "evaluator_tampered"


@pytest.mark.trials(DISARMS_UNSEEN)
def test_a_042_twin_in_a_repository(arena: Arena) -> None:
    assert arena.record(DISARMS_UNSEEN)["passed"] is True


def of_results(pod, container: str) -> list[tuple[str, bool]]:
    """Return the first folder of each mount of the results volume, and whether it is read-only."""
    (found,) = (
        item
        for item in pod["spec"]["initContainers"] + pod["spec"]["containers"]
        if item["name"] == container
    )
    return [
        (mount["subPath"].split("/")[0], mount.get("readOnly", False))
        for mount in found["volumeMounts"]
        if mount["name"] == "results"
    ]


@pytest.mark.short
@pytest.mark.trials(SEEKS)
def test_a_045_attack(arena: Arena) -> None:
    (pod,) = arena.pods(SEEKS, "verifier")
    assert of_results(pod, "candidate") == [(INSTALLED_TOOLS, True)]
    assert (RUNS, True) in of_results(pod, "verifier")
    report = report_of(arena.record(SEEKS))
    assert report["found"] == []
    assert "done" not in report["read"].values()
    assert "done" not in report["links"].values()
    assert set(report["processes"]) <= {"supervise", "python3"}
    assert arena.record(SEEKS)["passed"] is False


@pytest.mark.trials(SEES_TESTS)
def test_a_045_twin(arena: Arena) -> None:
    report = report_of(arena.record(SEES_TESTS))
    assert any(place.startswith(INPUTS) for place in report["found"])


@pytest.mark.trials(SEEKS_IN_REPO)
def test_a_045_attack_in_a_repository(arena: Arena) -> None:
    """Tests lie in the open there, and the record says so; the gold patch does not."""
    record = arena.record(SEEKS_IN_REPO)
    assert report_of(record)["found"] == []
    assert record["passed"] is False
    assert record["verifier_metadata"]["hidden_test_runtime_secrecy"] is False


def can_reach(report) -> list[str]:
    """Return what the probe could do to PID 1."""
    tried = {**report["read"], **report["links"], **report["peek"], "memory": report["memory"]}
    return [name for name, result in tried.items() if result == "done"]


@pytest.mark.short
@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(SEEKS, marks=pytest.mark.trials(SEEKS), id="code"),
        pytest.param(TRACES, marks=pytest.mark.trials(TRACES), id="terminal"),
    ],
)
def test_a_046_attack(arena: Arena, trial) -> None:
    record = arena.record(trial)
    assert can_reach(report_of(record)) == []
    assert "hijack=EPERM" in record["verifier_stdout"]
    assert (record["outcome"], record["passed"]) == ("scored", False)


@pytest.mark.trials(MAY_TRACE)
def test_a_046_twin(arena: Arena) -> None:
    """A candidate that may trace PID 1 makes it end with the exit value of a pass."""
    assert arena.record(MAY_TRACE)["passed"] is True


@pytest.mark.short
@pytest.mark.trials(GUESSES)
def test_a_048_attack_in_a_pod(arena: Arena) -> None:
    assert_failed(arena, GUESSES, BROKEN)


@pytest.mark.trials(HALF)
def test_a_048_attack_by_half_a_frame(arena: Arena) -> None:
    record = arena.record(HALF)
    assert (record["outcome"], record["passed"]) == ("scored", False)
    assert record["failure_reason"] == "verifier_timeout"


@pytest.mark.trials(SLEEPS, TOO_SLOW)
def test_a_050_attack_in_a_pod(arena: Arena) -> None:
    assert 3 <= arena.record(SLEEPS)["verifier_metadata"]["duration_seconds"] < 15
    record = arena.record(TOO_SLOW)
    assert (record["passed"], record["failure_reason"]) == (False, "verifier_timeout")


@pytest.mark.trials(SLEEPS)
def test_a_050_honest_slow_work_within_the_limit(arena: Arena) -> None:
    assert_passed(arena, SLEEPS)


def is_powerless(report) -> bool:
    status = report["status"]
    has_caps = any(int(status[name], 16) for name in ("CapEff", "CapPrm"))
    return not has_caps and status["NoNewPrivs"] == "1"


@pytest.mark.short
@pytest.mark.trials(SEEKS)
def test_a_060_attack(arena: Arena) -> None:
    (pod,) = arena.pods(SEEKS, "verifier")
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    report = report_of(arena.record(SEEKS))
    assert is_powerless(report), json.dumps(report["status"])
    assert report["status"]["Uid"] != "0"
    assert "done" not in report["write"].values()


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(trial, marks=pytest.mark.trials(trial), id=trial.batch.name)
        for trial in (TRACES, TRACES_CONFINED, SEEKS_IN_REPO)
    ],
)
def test_a_060_attack_as_the_root_of_an_image(arena: Arena, trial) -> None:
    """The user is the image's; the record says whether its 0 is somebody else outside."""
    record = arena.record(trial)
    report = report_of(record)
    assert is_powerless(report), json.dumps(report)
    assert record["labels"]["user_namespace"] is (report["ids"][0][:2] != ["0", "0"])
    assert report["write"]["/opt/securebench/tools/supervise"] in ("EROFS", "EACCES")
    assert report["write"]["/opt/securebench/candidate/x"] in ("EROFS", "EACCES")
    assert can_reach(report) == []


@pytest.mark.trials(AS_ROOT)
def test_a_060_twin(arena: Arena) -> None:
    report = report_of(arena.record(AS_ROOT))
    assert not is_powerless(report)
    assert report["status"]["Uid"] == "0"
