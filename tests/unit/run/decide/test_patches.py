"""How attempts of repo_patch end, and whose end counts when there is a control."""

import pytest

from securebench.protocol.messages import Code
from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import after_production, after_verification
from securebench.run.observe.stage import Ended, Interrupted, launch_stage
from securebench.run.state.attempts import Finish, SealedPatch
from support.build import (
    KEY,
    NOW,
    VERIFIER,
    collect_message,
    ended,
    pod_status,
    production,
    sealed,
    supervise_message,
    verification,
    view_of,
    waiting,
)
from support.manifest_samples import PATCH, patch_task, policy_of

TASK = patch_task(index=0)


def test_a_judged_patch_goes_to_the_check():
    made = production(candidate=sealed(patch=PATCH))
    assert after_production(TASK, KEY, made) is None


@pytest.mark.parametrize("is_blank", [True, False])
def test_a_patch_with_a_problem_ends_the_attempt(is_blank):
    patch = SealedPatch("empty_candidate_patch", "candidate_patch", "empty candidate patch")
    made = production(candidate=sealed(patch=patch, is_blank=is_blank))
    assert after_production(TASK, KEY, made) == Finish(
        KEY,
        Outcome.AGENT,
        "empty_candidate_patch",
        "candidate_patch",
        "empty candidate patch",
        passed=False,
        metadata={"phase": "candidate_patch", "failure_reason": "empty_candidate_patch"},
    )


@pytest.mark.parametrize(
    ("outcome", "passed"), [("verifier", None), ("agent", False), ("scored", False)]
)
def test_a_failed_step_ends_the_attempt(outcome, passed):
    checked = verification(
        passed=False, problem="some_step", outcome=outcome, phase="setup_patch", message="no"
    )
    assert after_verification(TASK, KEY, production(), checked) == Finish(
        KEY, Outcome(outcome), "some_step", "setup_patch", "no", passed=passed
    )


def stage(*containers, phase="Failed"):
    courier = ended("courier", 0, message=collect_message())
    view = view_of(VERIFIER, pod_status(phase, courier, *containers))
    return launch_stage(view, patch_task().verification, NOW, policy_of(), NOW + 5)


def control(code, **changes):
    return ended("control-check", code, message=supervise_message(code), **changes)


@pytest.mark.parametrize("code", [Code.TAMPERED, Code.PHASE_FAILED + 4, Code.TIMED_OUT])
def test_a_control_that_ends_with_an_error_decides(code):
    assert stage(control(code), waiting("check")) == Ended(code)


def test_a_control_that_ends_well_leaves_the_decision_to_the_check():
    check = ended("check", 0, message=supervise_message())
    assert stage(control(0), check, phase="Succeeded") == Ended(Code.DONE)


def test_a_control_that_runs_out_of_memory_is_a_resource():
    assert stage(control(137, reason="OOMKilled"), waiting("check")).problem == "oom_killed"


def test_a_control_whose_supervisor_is_killed_counts_against_the_candidate():
    assert stage(control(137), waiting("check")).problem == "supervisor_killed"


def test_a_control_that_the_kubelet_lost_sight_of_is_lost():
    lost = stage(control(137, reason="ContainerStatusUnknown"), waiting("check"))
    assert isinstance(lost, Interrupted)


def test_facts_come_from_the_container_that_ran():
    not_started = {**waiting("check"), "imageID": ""}
    view = view_of(VERIFIER, pod_status("Failed", control(Code.TAMPERED), not_started))
    assert view.facts.image_id
