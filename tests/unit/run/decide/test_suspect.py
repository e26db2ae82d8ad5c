"""Contract 21.16: what fails twice at what the agent left is the agent's, else the cluster's."""

from dataclasses import replace

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import Begin, Wait, attempt_step
from securebench.run.observe.stage import HARNESS_WORK, Interrupted, launch_stage
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import LaunchBegun, LaunchLost, Produced
from securebench.run.state.history import run_history
from support.build import (
    DISRUPTED,
    HARNESS,
    KEY,
    NOW,
    VERIFIER,
    ended,
    harness_done,
    history_of,
    live,
    lost_launch,
    pod_status,
    production,
    running,
    supervise_message,
    view_of,
    waiting,
)
from support.manifest_samples import policy_of, run_plan, terminal_task, text_task

POLICY = policy_of(infrastructure_retries=2, backoff_seconds=4.0, backoff_limit_seconds=10.0)
SEALED = ended("courier", 0, message="{}")
HARNESS_ENDED = ended("harness", 0)
STAGING = supervise_message(90, phase="candidate", error="candidate: link leads out")
LANE = supervise_message(90, phase="", error="lane: the digest is not the expected one")


def failed(*containers, **pod):
    return pod_status("Failed", *containers, **pod)


STAGES = {
    # what the Pod is for, status, whether the agent may have caused it
    "courier out of memory": (
        (HARNESS_WORK, failed(ended("courier", 137, "OOMKilled"), HARNESS_ENDED)),
        True,
    ),
    "courier crashed": ((HARNESS_WORK, failed(ended("courier", 1), HARNESS_ENDED)), True),
    "courier killed": ((HARNESS_WORK, failed(ended("courier", 137), HARNESS_ENDED)), True),
    "supervisor killed, courier crashed": (
        (HARNESS_WORK, failed(ended("courier", 1), ended("harness", 137))),
        True,
    ),
    "courier failed by a disk": (
        (
            HARNESS_WORK,
            failed(ended("courier", 74, message="No space left on device"), HARNESS_ENDED),
        ),
        False,
    ),
    "courier's end unknown to the kubelet": (
        (HARNESS_WORK, failed(ended("courier", 137, "ContainerStatusUnknown"), HARNESS_ENDED)),
        False,
    ),
    "courier gone": ((HARNESS_WORK, failed(HARNESS_ENDED)), False),
    "courier evicted": (
        (
            HARNESS_WORK,
            failed(ended("courier", 137), HARNESS_ENDED, reason="Evicted", conditions=[DISRUPTED]),
        ),
        False,
    ),
    "courier on a node that is shut down": (
        (HARNESS_WORK, failed(ended("courier", 137), HARNESS_ENDED, reason="NodeShutdown")),
        False,
    ),
    "courier restarts below a harness that runs": (
        (HARNESS_WORK, pod_status("Running", waiting("courier", restarts=3), running("harness"))),
        True,
    ),
    "courier does not start": (
        (HARNESS_WORK, pod_status("Pending", waiting("courier", restarts=3), waiting("harness"))),
        False,
    ),
    "staging of a harness": ((HARNESS_WORK, harness_done(90)), False),
    "a diff that a disk may have failed": (
        (HARNESS_WORK, failed(SEALED, ended("harness", 90, message=STAGING))),
        True,
    ),
    "harness evicted": ((HARNESS_WORK, failed(reason="NodeLost")), False),
    "staging of a candidate": (
        (terminal_task().verification, failed(SEALED, ended("check", 90, message=STAGING))),
        True,
    ),
    "staging of a lane": (
        (terminal_task().verification, failed(SEALED, ended("check", 90, message=LANE))),
        False,
    ),
    "courier of a check": (
        (terminal_task().verification, failed(ended("courier", 1), ended("check", 1))),
        True,
    ),
    "text verifier out of memory": (
        (text_task().verification, failed(ended("verifier", 137, "OOMKilled"))),
        True,
    ),
    "text verifier disrupted": (
        (text_task().verification, failed(ended("verifier", 143), conditions=[DISRUPTED])),
        False,
    ),
}


@pytest.mark.parametrize("name", STAGES)
def test_what_the_agent_may_have_caused(name):
    (work, status), want = STAGES[name]
    view = view_of(HARNESS if work is HARNESS_WORK else VERIFIER, status)
    found = launch_stage(view, work, NOW, POLICY, NOW)
    assert isinstance(found, Interrupted)
    assert found.is_suspect is want


def test_a_pod_that_somebody_deletes_says_nothing_of_its_candidate():
    status = failed(ended("courier", 137), HARNESS_ENDED)
    view = view_of(HARNESS, status, deleting_at=NOW)
    found = launch_stage(view, HARNESS_WORK, NOW, POLICY, NOW)
    assert found == Interrupted(found.reason, found.message, is_suspect=False)


def test_what_staging_said_is_told_without_its_form():
    view = view_of(VERIFIER, failed(SEALED, ended("check", 90, message=STAGING)))
    found = launch_stage(view, terminal_task().verification, NOW, POLICY, NOW)
    message = "staging failed: exit code 90, candidate: link leads out"
    assert found == Interrupted("materialization_failed", message, is_suspect=True)


def test_a_disk_is_named():
    status = failed(ended("courier", 74, message="No space left on device"), HARNESS_ENDED)
    found = launch_stage(view_of(HARNESS, status), HARNESS_WORK, NOW, POLICY, NOW)
    message = "the courier could not seal: No space left on device"
    assert found == Interrupted("extraction_failed", message)


# The machine


def step(history, view=None, now=NOW):
    return attempt_step(run_plan(text_task(), policy=POLICY), history, view, now)


def test_a_suspect_launch_is_lost_as_such():
    view = view_of(HARNESS, failed(ended("courier", 1), HARNESS_ENDED))
    message = "the courier ended with exit code 1 (Error) before it sealed"
    assert step(live(), view) == Lost(HARNESS, "extraction_failed", message, NOW, is_suspect=True)


def suspected(launch, *roles, **changes):
    lost = replace(lost_launch(launch, reason="extraction_failed"), is_suspect=True)
    return history_of(launches=len(roles), suspect=roles, last_lost=lost, **changes)


@pytest.mark.parametrize(
    ("launch", "phase"), [(HARNESS, "candidate_extraction"), (VERIFIER, "verification")]
)
def test_the_second_time_is_the_agents(launch, phase):
    made = production() if launch is VERIFIER else None
    once = suspected(launch, launch.role, production=made)
    assert step(once, now=NOW + 3.9) == Wait(NOW + 4)
    assert step(once, now=NOW + 4) == Begin(LaunchKey(0, 1, launch.role, 2))

    twice = suspected(launch, launch.role, launch.role, production=made)
    message = "Pod was evicted; what the agent left does that each time (extraction_failed)"
    assert step(twice) == Finish(
        KEY, Outcome.AGENT, "candidate_invalid", phase, message, passed=False
    )


def test_once_is_tried_again_also_without_retries():
    policy = replace(POLICY, infrastructure_retries=0)
    once = suspected(HARNESS, Role.HARNESS)
    found = attempt_step(run_plan(text_task(), policy=policy), once, None, NOW + 4)
    assert found == Begin(LaunchKey(0, 1, Role.HARNESS, 2))


def test_a_workspace_and_its_candidate_are_two_things():
    history = suspected(VERIFIER, Role.HARNESS, Role.VERIFIER, production=production())
    assert step(history, now=NOW + 8) == Begin(LaunchKey(0, 1, Role.VERIFIER, 3))


def test_what_the_cluster_did_stays_the_clusters():
    lost = lost_launch(reason="node_lost")
    history = history_of(
        retries=(Role.HARNESS,) * 3, suspect=(Role.HARNESS,), launches=4, last_lost=lost
    )
    assert step(history).outcome is Outcome.INFRASTRUCTURE


def test_the_journal_counts_what_is_suspect_apart():
    again, check, last = (HARNESS._replace(launch=2), verifier_launch(3), verifier_launch(4))
    entries = [
        LaunchBegun(HARNESS, NOW),
        LaunchLost(replace(lost_launch(HARNESS), is_suspect=True)),
        LaunchBegun(again, NOW),
        LaunchLost(lost_launch(again)),
        LaunchBegun(HARNESS._replace(launch=3), NOW),
        Produced(KEY, production()),
        LaunchBegun(check, NOW),
        LaunchLost(replace(lost_launch(check), is_suspect=True)),
        LaunchBegun(last, NOW),
    ]
    known = run_history(run_plan(text_task()), entries).attempts[KEY]
    assert (known.retries, known.suspect) == ((Role.HARNESS,), (Role.HARNESS, Role.VERIFIER))
    assert known.lost == 3


def verifier_launch(launch):
    return LaunchKey(KEY.task, KEY.attempt, Role.VERIFIER, launch)
