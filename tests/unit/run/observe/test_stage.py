"""Design 12.1 to 12.4 and 12.14: what a launch Pod's status means."""

import pytest

from securebench.run.observe.stage import (
    HALTED_WORDS,
    HARNESS_WORK,
    NETWORK_WORDS,
    Ended,
    InProgress,
    Interrupted,
    launch_stage,
)
from support.build import (
    DISRUPTED,
    HARNESS,
    NOW,
    VERIFIER,
    ended,
    harness_done,
    pod_status,
    running,
    view_of,
    waiting,
)
from support.manifest_samples import code_task, policy_of, terminal_task, text_task

PREEMPTED = {
    "type": "TerminationTarget",
    "status": "True",
    "reason": "WorkloadEvicted",
    "message": "Preempted to accommodate a workload",
}
POLICY = policy_of(lost_after_seconds=60.0, image_wait_seconds=60.0)
SEALED = ended("courier", 0, message="{}")
LIVE_COURIER = running("courier")

OOM = "the memory limit ended the container"
DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."


def killed_from_inside(code):
    message = f"supervise was ended from inside its container (exit code {code})"
    return Ended(code, "supervisor_killed", message)


HARNESS_CASES = {
    # fact 1: the codes of supervise's table, and no other
    "completed": (harness_done(0), Ended(0)),
    "an exit of 1": (harness_done(1), Ended(1)),
    "preflight failed": (
        harness_done(64, exit_code=127),
        Interrupted("preflight_failed", "exit code 127"),
    ),
    "second phase failed": (harness_done(65), Ended(65)),
    "last phase failed": (harness_done(89), Ended(89)),
    "time limit": (harness_done(124), Ended(124)),
    "staging failed": (
        harness_done(90, error="lane digest differs"),
        Interrupted("materialization_failed", "staging failed: exit code 90, "),
    ),
    "told to stop from inside": (harness_done(91), killed_from_inside(91)),
    "told to stop by the node": (harness_done(96), Interrupted("pod_lost", HALTED_WORDS)),
    "told to stop by the node after a child ran out of memory": (
        pod_status("Failed", SEALED, ended("harness", 96, "OOMKilled")),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: OOMKilled"),
    ),
    "own fault": (
        harness_done(92),
        Interrupted("materialization_failed", "supervise failed: exit code 92, "),
    ),
    "network open": (
        harness_done(93),
        Interrupted("egress_setup_failed", NETWORK_WORDS),
    ),
    "just below the phases": (harness_done(63), killed_from_inside(63)),
    "killed by nobody known": (harness_done(137), killed_from_inside(137)),
    "shell code 127": (harness_done(127), killed_from_inside(127)),
    "highest byte": (harness_done(255), killed_from_inside(255)),
    "end that the kubelet did not see": (
        pod_status("Failed", SEALED, ended("harness", 137, "ContainerStatusUnknown")),
        Interrupted("pod_lost", "Pod sb-"),
    ),
    "container that could not start": (
        pod_status("Failed", SEALED, ended("harness", 128, "StartError")),
        Interrupted("pod_lost", "Pod sb-"),
    ),
    "killed together with the courier": (
        pod_status("Failed", ended("courier", 137), ended("harness", 137)),
        Interrupted("extraction_failed", "the courier ended with exit code 137 (Error)"),
    ),
    # fact 2: out of memory
    "PID 1 killed for memory": (
        pod_status("Failed", SEALED, ended("harness", 137, "OOMKilled")),
        Ended(137, "oom_killed", OOM),
    ),
    "a child killed for memory, PID 1 lives": (
        pod_status("Succeeded", SEALED, ended("harness", 0, "OOMKilled")),
        Ended(0),
    ),
    "a child killed for memory, time limit": (
        pod_status("Failed", SEALED, ended("harness", 124, "OOMKilled")),
        Ended(124),
    ),
    "memory limit, courier still writes": (
        pod_status("Running", LIVE_COURIER, ended("harness", 137, "OOMKilled")),
        InProgress(),
    ),
    "memory limit, courier died": (
        pod_status("Failed", ended("courier", 137), ended("harness", 137, "OOMKilled")),
        Ended(137, "oom_killed", OOM),
    ),
    # fact 3: evictions
    "own disk limit": (
        pod_status(
            "Failed", ended("courier", 137), ended("harness", 91), reason="Evicted", message=DISK
        ),
        Ended(91, "disk_limit_exceeded", DISK),
    ),
    "own disk limit, no words": (
        pod_status("Failed", ended("harness", 137), reason="Evicted"),
        Ended(137, "disk_limit_exceeded", "a disk limit was hit"),
    ),
    "own disk limit before the harness showed": (
        pod_status("Failed", ended("courier", 137), reason="Evicted", message=DISK),
        Ended(91, "disk_limit_exceeded", DISK),
    ),
    "own disk limit found while sealing": (
        pod_status(
            "Failed", ended("courier", 137), ended("harness", 0), reason="Evicted", message=DISK
        ),
        Ended(0, "disk_limit_exceeded", DISK),
    ),
    "node pressure": (
        pod_status(
            "Failed",
            ended("courier", 137),
            ended("harness", 91),
            reason="Evicted",
            message="The node was low on resource: memory.",
            conditions=[DISRUPTED],
        ),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Evicted"),
    ),
    "node pressure before the harness": (
        pod_status("Failed", reason="Evicted", conditions=[DISRUPTED]),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Evicted"),
    ),
    "taken back by a queue": (
        pod_status("Failed", ended("courier", 137), ended("harness", 137), conditions=[PREEMPTED]),
        Interrupted(
            "pod_lost",
            "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: WorkloadEvicted: Preempted to "
            "accommodate a workload",
        ),
    ),
    "node pressure while sealing": (
        pod_status(
            "Failed",
            ended("courier", 137),
            ended("harness", 0),
            reason="Evicted",
            conditions=[DISRUPTED],
        ),
        Interrupted("extraction_failed", "the courier ended with exit code 137 (Error)"),
    ),
    # fact 4: deadline and grace; container states first
    "deadline passed while the courier sealed": (
        pod_status("Failed", SEALED, ended("harness", 0), reason="DeadlineExceeded"),
        Ended(0),
    ),
    "deadline passed and the courier was killed": (
        pod_status("Failed", ended("courier", 137), ended("harness"), reason="DeadlineExceeded"),
        Interrupted("extraction_failed", "the courier ended with exit code 137 (Error)"),
    ),
    "deadline ended the harness": (
        pod_status("Failed", SEALED, ended("harness", 91), reason="DeadlineExceeded"),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Deadline"),
    ),
    "deadline ended the harness, as a later supervise says it": (
        pod_status("Failed", SEALED, ended("harness", 96), reason="DeadlineExceeded"),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Deadline"),
    ),
    "deadline before the harness": (
        pod_status("Failed", SEALED, waiting("harness"), reason="DeadlineExceeded"),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Deadline"),
    ),
    "courier gone without a word": (
        pod_status("Failed", ended("harness", 0)),
        Interrupted("extraction_failed", "the courier was gone before it sealed"),
    ),
    "courier seals": (pod_status("Running", LIVE_COURIER, ended("harness", 0)), InProgress()),
    "courier sealed, Pod not terminal yet": (
        pod_status("Running", SEALED, ended("harness", 0)),
        Ended(0),
    ),
    # before the harness
    "pending": ({"phase": "Pending"}, InProgress()),
    "running": (pod_status("Running", LIVE_COURIER, running("harness")), InProgress()),
    "image cannot be named": (
        pod_status("Pending", waiting("harness", "InvalidImageName", "bad reference")),
        Interrupted(
            "image_pull_failed", "container harness: InvalidImageName: bad reference", is_final=True
        ),
    ),
    "image never pulled": (
        pod_status("Pending", waiting("harness", "ErrImageNeverPull")),
        Interrupted("image_pull_failed", "container harness: ErrImageNeverPull: ", is_final=True),
    ),
    "image pull backs off": (
        pod_status("Pending", waiting("harness", "ImagePullBackOff")),
        InProgress(wake_at=NOW + 60),
    ),
    **{
        f"no such image: {words}": (
            pod_status("Pending", waiting("harness", reason, words)),
            Interrupted("image_pull_failed", f"container harness: {reason}: {words}"),
        )
        for reason, words in (
            ("ErrImagePull", "rpc error: code = NotFound desc = x:1: not found"),
            ("ImagePullBackOff", 'Back-off pulling image "x:1": ErrImagePull: manifest unknown'),
            ("ErrImagePull", "manifest for x:1 not found: manifest unknown"),
            ("ErrImagePull", "pull access denied, repository does not exist"),
        )
    },
    **{
        f"perhaps an image: {words}": (
            pod_status("Pending", waiting("harness", "ErrImagePull", words)),
            InProgress(wake_at=NOW + 60),
        )
        for words in ("dial tcp: lookup registry.example: no such host", "host not found", "EOF")
    },
    "words of another trouble": (
        pod_status("Pending", waiting("harness", "CreateContainerError", "code = NotFound")),
        InProgress(wake_at=NOW + 60),
    ),
    "container cannot be made yet": (
        pod_status("Pending", waiting("harness", "CreateContainerConfigError")),
        InProgress(wake_at=NOW + 60),
    ),
    "courier restarts": (
        pod_status("Pending", running("courier", restarts=2)),
        InProgress(),
    ),
    "a service is started": (pod_status("Pending", running("service-db")), InProgress()),
    "a service does not become ready": (
        pod_status("Pending", waiting("service-db", "CrashLoopBackOff", restarts=1)),
        Interrupted("materialization_failed", "service 'db' does not become ready"),
    ),
    "a service ends under the commands": (
        pod_status("Running", running("service-db", restarts=2), running("harness")),
        InProgress(),
    ),
    "courier does not stay up": (
        pod_status("Pending", waiting("courier", "CrashLoopBackOff", restarts=3)),
        Interrupted("materialization_failed", "the courier does not stay up"),
    ),
    "materialize failed": (
        pod_status("Failed", SEALED, ended("materialize", 2, message="no such folder")),
        Interrupted(
            "materialization_failed",
            "failed to materialize benchmark image workdir: exit code 2, no such folder",
        ),
    ),
    "materialized, then the Pod failed": (
        pod_status("Failed", ended("materialize", 0), reason="UnexpectedAdmissionError"),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: Unexpected"),
    ),
    "materialize runs, Pod failed": (
        pod_status("Failed", running("materialize")),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 ended before a result: no reason"),
    ),
    # fact 14: dead nodes
    "node lost": (
        pod_status("Failed", running("harness"), reason="NodeLost"),
        Interrupted("node_lost", "the node gave the Pod up: NodeLost"),
    ),
    "node shut down": (
        pod_status("Failed", ended("harness", 137), reason="NodeShutdown"),
        Interrupted("node_lost", "the node gave the Pod up: NodeShutdown"),
    ),
}


def assert_stage(found, want):
    assert type(found) is type(want)
    match want:
        case Interrupted(reason, message):
            assert found.reason == reason
            assert found.message.startswith(message)
        case _:
            assert found == want


@pytest.mark.parametrize("name", HARNESS_CASES)
def test_harness_stage(name):
    status, want = HARNESS_CASES[name]
    assert_stage(launch_stage(view_of(HARNESS, status), HARNESS_WORK, NOW, POLICY, NOW + 5), want)


CHECK_CASES = {
    "pass": (0, Ended(0)),
    "fail": (1, Ended(1)),
    "time limit": (124, Ended(124)),
    "base commit": (64, Ended(64)),
    "staging": (90, Interrupted("materialization_failed", "staging failed: ")),
    "killed": (137, killed_from_inside(137)),
    "told to stop from inside": (91, killed_from_inside(91)),
    "told to stop by the node": (96, Interrupted("pod_lost", HALTED_WORDS)),
}


@pytest.mark.parametrize("name", CHECK_CASES)
def test_check_stage(name):
    code, want = CHECK_CASES[name]
    status = pod_status("Failed", SEALED, ended("check", code))
    assert_stage(
        launch_stage(view_of(VERIFIER, status), terminal_task().verification, NOW, POLICY, NOW),
        want,
    )


def again(name, code, reason):
    """Return a sidecar that was started again after its end."""
    end = ended(name, code, reason)["state"]
    return {**running(name, restarts=1), "lastState": end}


DISTURBED = Ended(
    94, "supervisor_killed", "the candidate told the supervise of its container to stop"
)
MEMORY = "the memory limit ended the candidate or a process of it"
CODE_CASES = {
    "pass": (0, running("candidate"), Ended(0)),
    "fail": (1, ended("candidate", 91), Ended(1)),
    "time limit": (124, ended("candidate", 91), Ended(124)),
    "no worker": (
        92,
        ended("candidate", 92),
        Interrupted("materialization_failed", "supervise failed"),
    ),
    "candidate out of memory": (
        1,
        again("candidate", 137, "OOMKilled"),
        Ended(1, "oom_killed", MEMORY),
    ),
    "a part of the candidate out of memory": (
        1,
        again("candidate", 0, "OOMKilled"),
        Ended(1, "oom_killed", MEMORY),
    ),
    "passed all the same": (0, again("candidate", 137, "OOMKilled"), Ended(0)),
    "PID 1 told to stop": (1, ended("candidate", 94), DISTURBED),
    "PID 1 told to stop, right answers": (0, again("candidate", 94, "Error"), DISTURBED),
    "PID 1 told to stop, too late": (124, again("candidate", 94, "Error"), Ended(124)),
    "no candidate's container": (0, running("another"), Ended(0)),
}


@pytest.mark.parametrize("name", CODE_CASES)
def test_code_stage(name):
    code, candidate, want = CODE_CASES[name]
    status = pod_status("Failed", SEALED, candidate, ended("verifier", code))
    assert_stage(
        launch_stage(view_of(VERIFIER, status), code_task().verification, NOW, POLICY, NOW), want
    )


TEXT_CASES = {
    "verdict": (pod_status("Succeeded", ended("verifier", 0, message="{}")), Ended(0)),
    "no courier is waited for": (pod_status("Running", ended("verifier", 0)), Ended(0)),
    "crash": (
        pod_status("Failed", ended("verifier", 1)),
        Ended(1, "verifier_error", "the text verifier ended with exit code 1"),
    ),
    "a trusted helper out of memory": (
        pod_status("Failed", ended("verifier", 137, "OOMKilled")),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1v1 ended before a result: OOMKilled"),
    ),
    "killed on the node": (
        pod_status("Failed", ended("verifier", 137)),
        Interrupted("pod_lost", HALTED_WORDS),
    ),
    "killed by a node that goes": (
        pod_status("Failed", ended("verifier", 137), reason="NodeShutdown"),
        Interrupted("node_lost", "the node gave the Pod up: NodeShutdown"),
    ),
    "killed at its deadline": (
        pod_status("Failed", ended("verifier", 137), reason="DeadlineExceeded"),
        Ended(137, "verifier_error", "the text verifier ended with exit code 137"),
    ),
    "disrupted": (
        pod_status("Failed", ended("verifier", 143), conditions=[DISRUPTED]),
        Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1v1 ended before a result: Error"),
    ),
    "running": (pod_status("Running", running("verifier")), InProgress()),
}


@pytest.mark.parametrize("name", TEXT_CASES)
def test_text_verifier_stage(name):
    status, want = TEXT_CASES[name]
    assert_stage(
        launch_stage(view_of(VERIFIER, status), text_task().verification, NOW, POLICY, NOW), want
    )


def test_a_deleted_text_verifier_is_interrupted():
    view = view_of(VERIFIER, pod_status("Failed", ended("verifier", 143)), deleting_at=NOW)
    stage = launch_stage(view, text_task().verification, NOW, POLICY, NOW)
    assert_stage(stage, Interrupted("pod_lost", "Pod sb-"))


DELETING = {
    "nothing ran yet": {"phase": "Pending"},
    "the harness runs": pod_status("Running", LIVE_COURIER, running("harness")),
    "the courier seals on a node that does not answer": pod_status(
        "Running", LIVE_COURIER, ended("harness", 0)
    ),
}


@pytest.mark.parametrize("name", DELETING)
def test_a_pod_that_stays_terminating_is_lost_after_grace_and_margin(name):
    view = view_of(HARNESS, DELETING[name], deleting_at=NOW + 120)
    before = launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW + 179)
    after = launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW + 180)
    assert before == InProgress(wake_at=NOW + 180)
    assert_stage(after, Interrupted("pod_lost", "Pod sb-3f2a9c1e5b7d-0-1h1 was deleted"))


def test_a_result_counts_although_the_pod_is_being_deleted():
    view = view_of(HARNESS, harness_done(0), deleting_at=NOW)
    assert launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW + 1000) == Ended(0)


IMAGE_WAITS = {
    "ImagePullBackOff": "image_pull_failed",
    "ErrImagePull": "image_pull_failed",
    "ImageInspectError": "image_pull_failed",
    "CreateContainerConfigError": "materialization_failed",
    "CreateContainerError": "materialization_failed",
    "RunContainerError": "materialization_failed",
}


@pytest.mark.parametrize("reason", IMAGE_WAITS)
def test_a_container_that_cannot_start_is_given_up_in_time(reason):
    view = view_of(HARNESS, pod_status("Pending", waiting("harness", reason, "no such image")))
    stage = launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW + 60)
    want = Interrupted(IMAGE_WAITS[reason], f"container harness: {reason}: no such image")
    assert_stage(stage, want)


def test_the_image_wait_counts_from_the_pod_where_a_quota_held_it_back():
    status = pod_status("Pending", waiting("harness", "ErrImagePull"))
    view = view_of(HARNESS, status, created_at=NOW + 600)
    assert launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW + 601) == InProgress(wake_at=NOW + 660)


def test_a_long_message_of_staging_is_cut():
    status = pod_status("Failed", SEALED, ended("harness", 90, message="x" * 4000))
    stage = launch_stage(view_of(HARNESS, status), HARNESS_WORK, NOW, POLICY, NOW)
    assert isinstance(stage, Interrupted)
    assert len(stage.message) < 600
