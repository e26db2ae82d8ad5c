"""Contract 15.1: every end of an attempt that the machine reaches."""

import pytest

from securebench.protocol.candidate import Extraction
from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import (
    Begin,
    Capture,
    Wait,
    after_production,
    attempt_step,
    is_judged_late,
    launch_backoff,
)
from securebench.run.observe.stage import Ended
from securebench.run.plan.model import LaunchKey, Refusal, Role
from securebench.run.state.attempts import CommandReport, Finish, Lost, PodFacts
from support.build import (
    HARNESS,
    IMAGE_ID,
    KEY,
    NOW,
    VERIFIER,
    check_done,
    check_task,
    harness_done,
    history_of,
    live,
    lost_launch,
    pod_status,
    production,
    sealed,
    unverified_task,
    verification,
    verifier_done,
    view_of,
    waiting,
)
from support.manifest_samples import candidate, policy_of, root_task, run_plan, text_task

POLICY = policy_of(infrastructure_retries=2, backoff_seconds=4.0, backoff_limit_seconds=10.0)
TIMED_OUT = CommandReport(exit_code=None, timed_out=True, phase="harness")
REFUSAL = Refusal("verifier", "verifier_configuration", "verification", "no answers", {})
POLICY_REFUSAL = Refusal("agent", "denied", "checker", "not allowed", {"a": 1})
DENIAL = Refusal(
    "agent", "verifier_dangerous_command_denied", "checker", "disabled", {"exit_code": None}
)


def step(history, view=None, task=None, now=NOW):
    return attempt_step(run_plan(task or text_task(), policy=POLICY), history, view, now)


def produced(task=None, **changes):
    return step(history_of(production=production(**changes)), task=task)


def verified(task=None, *, made=None, **changes):
    return step(
        history_of(production=made or production(), verification=verification(**changes)),
        task=task or check_task(),
    )


def failed(outcome, reason, phase, message, **changes):
    return Finish(KEY, outcome, reason, phase, message, **{"passed": False} | changes)


def test_a_fresh_attempt_begins_its_harness():
    assert step(history_of()) == Begin(HARNESS)


def test_a_produced_attempt_begins_its_verifier():
    assert produced() == Begin(VERIFIER)


@pytest.mark.parametrize("harness_retries", [0, 1])
def test_numbers_of_launches_go_on_after_the_harness(harness_retries):
    history = history_of(
        production=production(launch=harness_retries + 1),
        retries=(Role.HARNESS,) * harness_retries,
        last_lost=lost_launch() if harness_retries else None,
    )
    found = step(history, now=NOW + 100)
    assert found == Begin(LaunchKey(0, 1, Role.VERIFIER, harness_retries + 1))


@pytest.mark.parametrize(("kind", "is_judged"), [("root", True), ("workspace", False)])
def test_what_an_agent_left_at_its_time_limit(kind, is_judged):
    """Harbor grades the state of a container whose agent ran out of time."""
    task = root_task(extraction=Extraction("root_diff", kind))
    late = production(command=TIMED_OUT, candidate=candidate("root.tar"))
    assert is_judged_late(task, late) is is_judged
    assert not is_judged_late(task, production(command=TIMED_OUT, candidate=None))
    end = after_production(task, KEY, late)
    assert (end is not None and end.reason == "producer_timeout") is not is_judged


AFTER_PRODUCTION = {
    "producer_timeout": (
        {"command": TIMED_OUT},
        failed(
            Outcome.AGENT,
            "producer_timeout",
            "producer",
            "candidate production timed out after 60 seconds",
        ),
    ),
    "producer_timeout comes before everything": (
        {"command": TIMED_OUT, "problem": "oom_killed", "candidate": None},
        failed(
            Outcome.AGENT,
            "producer_timeout",
            "producer",
            "candidate production timed out after 60 seconds",
        ),
    ),
    "oom_killed": (
        {"problem": "oom_killed", "candidate": None},
        failed(
            Outcome.RESOURCE,
            "oom_killed",
            "producer",
            "the harness container was killed at its memory limit",
        ),
    ),
    "disk_limit_exceeded": (
        {"problem": "disk_limit_exceeded"},
        failed(
            Outcome.RESOURCE,
            "disk_limit_exceeded",
            "producer",
            "the harness Pod was evicted at its disk limit",
        ),
    ),
    "supervisor_killed": (
        {"problem": "supervisor_killed"},
        failed(
            Outcome.AGENT,
            "supervisor_killed",
            "producer",
            "the harness ended the supervisor of its own container",
        ),
    ),
    "an empty candidate": (
        {"candidate": sealed(is_blank=True)},
        failed(Outcome.AGENT, "empty_candidate", "verification", "the candidate is empty"),
    ),
    "no candidate at all": (
        {"candidate": None},
        failed(Outcome.AGENT, "candidate_missing", "candidate_extraction", "there is no candidate"),
    ),
    **{
        problem: (
            {"candidate": sealed(problem=problem, message="why", file=None)},
            failed(Outcome.AGENT, problem, "candidate_extraction", "why"),
        )
        for problem in ("candidate_missing", "candidate_too_large", "candidate_invalid")
    },
}


@pytest.mark.parametrize("name", AFTER_PRODUCTION)
def test_ends_without_a_verifier(name):
    changes, want = AFTER_PRODUCTION[name]
    assert produced(**changes) == want


def test_a_command_without_a_limit_that_timed_out():
    task = text_task(timeout_seconds=None)
    found = after_production(task, KEY, production(command=TIMED_OUT))
    assert found is not None
    assert found.message == "candidate production timed out after 0 seconds"


def test_a_family_without_verifier_ends_with_null():
    assert produced(task=unverified_task()) == Finish(KEY, Outcome.NOT_VERIFIED)
    assert produced(task=unverified_task(), candidate=None) == Finish(KEY, Outcome.NOT_VERIFIED)


def test_a_family_without_verifier_still_has_its_limits():
    found = produced(task=unverified_task(), problem="oom_killed")
    assert isinstance(found, Finish)
    assert found.outcome is Outcome.RESOURCE


def test_a_denied_checker_is_an_end_after_the_harness():
    assert step(history_of(), task=check_task(denial=DENIAL)) == Begin(HARNESS)
    assert produced(task=check_task(denial=DENIAL)) == failed(
        Outcome.AGENT,
        "verifier_dangerous_command_denied",
        "checker",
        "disabled",
        metadata={"exit_code": None},
    )


def test_a_checker_cannot_judge_a_file():
    task = check_task(extraction=Extraction(mode="file", kind="text", path="out.txt"))
    assert produced(task=task) == failed(
        Outcome.AGENT,
        "candidate_missing",
        "candidate_extraction",
        "the harness hands in a file; the checker needs a workspace directory",
    )


REFUSALS = {
    "verifier_configuration": (
        REFUSAL,
        Finish(KEY, Outcome.VERIFIER, "verifier_configuration", "verification", "no answers", None),
    ),
    "agent": (
        POLICY_REFUSAL,
        failed(Outcome.AGENT, "denied", "checker", "not allowed", metadata={"a": 1}),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_task_ends_without_a_pod(name):
    refusal, want = REFUSALS[name]
    assert step(history_of(), task=text_task(refusal=refusal)) == want


AFTER_VERIFICATION = {
    "passed": ({"passed": True}, Finish(KEY, Outcome.SCORED, passed=True)),
    "failed": ({"passed": False}, Finish(KEY, Outcome.SCORED, passed=False)),
    "verifier_timeout": (
        {"passed": False, "command": CommandReport(timed_out=True, phase="checks")},
        failed(Outcome.SCORED, "verifier_timeout", "checks", "the check ran into its time limit"),
    ),
    "verifier_timeout without a phase": (
        {"passed": False, "command": CommandReport(timed_out=True)},
        failed(Outcome.SCORED, "verifier_timeout", "checker", "the check ran into its time limit"),
    ),
    "oom_killed": (
        {"problem": "oom_killed", "message": "ignored"},
        failed(
            Outcome.RESOURCE,
            "oom_killed",
            "verification",
            "the verifier container was killed at its memory limit",
        ),
    ),
    "disk_limit_exceeded": (
        {"problem": "disk_limit_exceeded"},
        failed(
            Outcome.RESOURCE,
            "disk_limit_exceeded",
            "verification",
            "the verifier Pod was evicted at its disk limit",
        ),
    ),
    "supervisor_killed": (
        {"problem": "supervisor_killed"},
        failed(
            Outcome.SCORED,
            "supervisor_killed",
            "verification",
            "the candidate ended the supervisor of the check",
        ),
    ),
    "verifier_error": (
        {"problem": "verifier_error", "message": "exit code 1"},
        Finish(KEY, Outcome.VERIFIER, "verifier_error", "verification", "exit code 1"),
    ),
    "image_changed": (
        {"passed": True, "facts": PodFacts(image_id="other")},
        Finish(
            KEY,
            Outcome.INFRASTRUCTURE,
            "image_changed",
            "verification",
            "the task image resolved to different contents in harness and verifier",
        ),
    ),
    "an unknown image is no other image": (
        {"passed": True, "facts": PodFacts()},
        Finish(KEY, Outcome.SCORED, passed=True),
    ),
}


@pytest.mark.parametrize("name", AFTER_VERIFICATION)
def test_ends_after_the_verifier(name):
    changes, want = AFTER_VERIFICATION[name]
    assert verified(**changes) == want


def test_a_text_verifier_has_an_image_of_its_own():
    found = verified(text_task(), facts=PodFacts(image_id="ours"))
    assert found == Finish(KEY, Outcome.SCORED, passed=True)


# Retries


@pytest.mark.parametrize(
    ("retries", "seconds"), [(1, 4.0), (2, 8.0), (3, 10.0), (4, 10.0), (10, 10.0)]
)
def test_backoff_doubles_up_to_its_limit(retries, seconds):
    assert launch_backoff(POLICY, retries) == seconds


def test_a_lost_launch_is_repeated_after_a_pause():
    history = history_of(retries=(Role.HARNESS,), launches=1, last_lost=lost_launch(at=NOW))
    assert step(history, now=NOW + 3.9) == Wait(NOW + 4)
    assert step(history, now=NOW + 4) == Begin(LaunchKey(0, 1, Role.HARNESS, 2))


@pytest.mark.parametrize(("launch", "phase"), [(HARNESS, "producer"), (VERIFIER, "verification")])
def test_infrastructure_ends_an_attempt_after_all_retries(launch, phase):
    made = production() if launch is VERIFIER else None
    history = history_of(
        retries=(Role.HARNESS, Role.HARNESS, launch.role),
        launches=3,
        last_lost=lost_launch(launch, reason="node_lost"),
        production=made,
    )
    assert step(history) == Finish(
        KEY, Outcome.INFRASTRUCTURE, "node_lost", phase, "Pod was evicted"
    )


def test_a_refusal_is_no_retry():
    history = history_of(launches=1, retries=(Role.HARNESS,), last_lost=lost_launch(at=NOW - 100))
    assert step(history, task=text_task(refusal=REFUSAL)) == Begin(LaunchKey(0, 1, Role.HARNESS, 2))


# Live launches


def test_a_live_launch_without_a_pod_waits():
    assert step(live()) == Wait()


def test_a_live_launch_waits_until_something_has_to_be_decided():
    view = view_of(HARNESS, pod_status("Pending", waiting("harness", "ErrImagePull")))
    assert step(live(), view) == Wait(NOW + POLICY.image_wait_seconds)


def test_an_interrupted_launch_is_lost():
    view = view_of(HARNESS, pod_status("Failed", reason="NodeLost"))
    assert step(live(), view, now=NOW + 7) == Lost(
        HARNESS, "node_lost", "the node gave the Pod up: NodeLost", NOW + 7
    )


CAPTURES = {
    "harness": (live(), HARNESS, harness_done(124), text_task(), 124),
    "check": (live(VERIFIER, production=production()), VERIFIER, check_done(1), check_task(), 1),
    "text": (live(VERIFIER, production=production()), VERIFIER, verifier_done(), text_task(), 0),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_an_ended_launch_is_captured(name):
    history, launch, status, task, code = CAPTURES[name]
    view = view_of(launch, status)
    assert step(history, view, task) == Capture(launch, view, Ended(code))


def test_the_image_of_the_container_that_ran_is_known():
    view = view_of(HARNESS, harness_done())
    assert view.facts.image_id == IMAGE_ID
