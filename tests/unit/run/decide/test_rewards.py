"""How an attempt ends whose verifier left a reward."""

from dataclasses import replace

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import after_verification
from securebench.run.state.attempts import CommandReport
from support.manifest_samples import terminal_task
from support.records import CHECK_VERIFICATION, WORKSPACE_PRODUCTION, checked

LEFT = replace(CHECK_VERIFICATION, passed=False, command=CommandReport(exit_code=1))
KILLS = CommandReport(exit_code=1, memory_kills=1)

ENDS = {
    "a reward": (replace(LEFT, score=0.25), (Outcome.SCORED, False, 0.25, "")),
    "a reward that reaches the threshold": (
        replace(LEFT, passed=True, score=3.0),
        (Outcome.SCORED, True, 3.0, ""),
    ),
    "a reward of tests of which a process was killed": (
        replace(LEFT, score=0.25, command=KILLS),
        (Outcome.SCORED, False, 0.25, ""),
    ),
    "no reward": (
        replace(LEFT, problem="reward_missing", message="m"),
        (Outcome.VERIFIER, None, None, "reward_missing"),
    ),
    "a verdict": (replace(LEFT, passed=True), (Outcome.SCORED, True, None, "")),
    "a verdict of a check of which a process was killed": (
        replace(LEFT, command=KILLS),
        (Outcome.RESOURCE, False, None, "oom_killed"),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_an_attempt(name):
    verification, want = ENDS[name]
    verification = replace(verification, facts=WORKSPACE_PRODUCTION.facts)
    end = after_verification(
        terminal_task(), checked().finish.key, WORKSPACE_PRODUCTION, verification
    )
    assert (end.outcome, end.passed, end.score, end.reason) == want
