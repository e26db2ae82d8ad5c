"""Why an attempt has no candidate is its reason: memory, exit code, a program that is missing."""

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import after_production, after_verification
from securebench.run.observe.stage import Ended, launch_stage
from securebench.run.observe.termination import command_report
from securebench.run.state.attempts import CommandReport, Finish, SealedPatch
from support.build import (
    KEY,
    VERIFIER,
    check_task,
    ended,
    pod_status,
    production,
    sealed,
    supervise_message,
    unverified_task,
    verification,
    view_of,
)
from support.manifest_samples import code_task, patch_task, policy_of, text_task

BLANK = sealed(is_blank=True)
MISSING = sealed(file=None, problem="candidate_missing", message="answer.txt does not exist")
EMPTY_PATCH = sealed(
    patch=SealedPatch("empty_candidate_patch", "candidate_patch", "the candidate patch is empty")
)
EMPTY = "the candidate is empty"
KILLED = (
    "a process of the harness was killed at the memory limit of its container, and nothing was "
    "handed in: "
)


def judged(candidate=BLANK, said="", task=None, problem="", **command):
    made = production(
        candidate=candidate,
        command=CommandReport(**({"exit_code": 0} | command)),
        last_words=said,
        problem=problem,
    )
    return after_production(task or text_task(), KEY, made)


def failed(reason, message, outcome=Outcome.AGENT, phase="producer"):
    return Finish(KEY, outcome, reason, phase, message, passed=False)


NOTHING = {
    "exit 3": (
        judged(exit_code=3),
        failed(
            "harness_failed",
            f"the harness handed nothing in and ended with exit code 3: {EMPTY}",
        ),
    ),
    "exit 3 and words": (
        judged(exit_code=3, said="agent: no model"),
        failed(
            "harness_failed",
            f"the harness handed nothing in and ended with exit code 3: {EMPTY}; last line of "
            "stderr: agent: no model",
        ),
    ),
    "no file": (
        judged(MISSING, exit_code=1),
        failed(
            "harness_failed",
            "the harness handed nothing in and ended with exit code 1: answer.txt does not exist",
        ),
    ),
    "a shell that finds no program": (
        judged(exit_code=127, said="sh: 1: my-agent: not found"),
        failed(
            "harness_failed",
            "the harness handed nothing in and ended with exit code 127, as when a program is not "
            f"found: {EMPTY}; last line of stderr: sh: 1: my-agent: not found",
        ),
    ),
    "a signal": (
        judged(exit_code=139),
        failed(
            "harness_failed",
            "the harness handed nothing in and ended with exit code 139, as after SIGSEGV: "
            f"{EMPTY}",
        ),
    ),
    "memory": (
        judged(exit_code=137, memory_kills=1),
        failed("oom_killed", KILLED + EMPTY, Outcome.RESOURCE),
    ),
    "memory, hidden by the command": (
        judged(exit_code=0, memory_kills=2, said="Killed"),
        failed("oom_killed", f"{KILLED}{EMPTY}; last line of stderr: Killed", Outcome.RESOURCE),
    ),
    "exit 0 and words": (
        judged(said="nothing to do"),
        failed(
            "empty_candidate", f"{EMPTY}; last line of stderr: nothing to do", phase="verification"
        ),
    ),
    "exit 0 without a word": (
        judged(),
        failed("empty_candidate", EMPTY, phase="verification"),
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_handed_in_has_its_cause(name):
    found, want = NOTHING[name]
    assert found == want


def test_an_empty_patch_has_its_cause_and_keeps_what_the_patch_said():
    found = judged(EMPTY_PATCH, task=patch_task(), exit_code=3)
    assert (found.reason, found.phase) == ("harness_failed", "producer")
    assert found.metadata["failure_reason"] == "empty_candidate_patch"


@pytest.mark.parametrize("task", [text_task(), check_task(), unverified_task()])
def test_a_program_that_cannot_be_started_is_named(task):
    found = judged(
        sealed(), task=task, exit_code=127, unstarted=True, error="my-agent: no such file"
    )
    assert found == failed(
        "harness_not_started",
        "the harness cannot be started (exit code 127): my-agent: no such file",
    )


@pytest.mark.parametrize("command", [{"exit_code": 3}, {"exit_code": 0, "memory_kills": 1}])
def test_what_was_handed_in_is_judged_by_itself(command):
    assert judged(sealed(), **command) is None


def test_limits_that_the_kubelet_reports_come_first():
    assert judged(exit_code=3, problem="oom_killed").message == (
        "the harness container was killed at its memory limit"
    )


@pytest.mark.parametrize(
    ("passed", "kills", "want"),
    [(False, 1, Outcome.RESOURCE), (True, 1, Outcome.SCORED), (False, 0, Outcome.SCORED)],
)
def test_a_failed_check_says_that_memory_was_short(passed, kills, want):
    seen = verification(passed=passed, command=CommandReport(memory_kills=kills))
    found = after_verification(check_task(), KEY, production(), seen)
    assert (found.outcome, found.passed) == (want, passed)


@pytest.mark.parametrize(("kills", "want"), [(1, "oom_killed"), (0, "")])
def test_memory_of_the_candidates_container_is_its_limit(kills, want):
    status = pod_status(
        "Failed",
        ended("courier", 0, message="{}"),
        ended("verifier", 1, message=supervise_message(1)),
        ended("candidate", 0, message=supervise_message(0, memory_kills=kills)),
    )
    stage = launch_stage(view_of(VERIFIER, status), code_task().verification, 0, policy_of(), 0)
    assert isinstance(stage, Ended)
    assert stage.problem == want


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({}, CommandReport(unstarted=False, memory_kills=0)),
        ({"unstarted": True, "memory_kills": 2}, CommandReport(unstarted=True, memory_kills=2)),
        ({"unstarted": 1, "memory_kills": True}, CommandReport(unstarted=False, memory_kills=0)),
    ],
)
def test_supervise_says_why(said, want):
    found = command_report(supervise_message(**said))
    assert (found.unstarted, found.memory_kills) == (want.unstarted, want.memory_kills)
