"""Words of a record's ``failure_reason`` that several packages say (contract 15.1).

Reasons that one enumeration owns stay there: ``protocol.candidate.Problem`` and
``benchmark.patch.judgement``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

PRODUCER_TIMEOUT: Final = "producer_timeout"
VERIFIER_TIMEOUT: Final = "verifier_timeout"
EMPTY_CANDIDATE: Final = "empty_candidate"
HARNESS_NOT_STARTED: Final = "harness_not_started"
"""The program of the harness does not exist in the task's image or cannot be executed."""
HARNESS_FAILED: Final = "harness_failed"
"""The harness ended with an exit code that is not 0 and handed nothing in."""

OOM_KILLED: Final = "oom_killed"
DISK_LIMIT_EXCEEDED: Final = "disk_limit_exceeded"
SUPERVISOR_KILLED: Final = "supervisor_killed"
"""What ran in a container ended its PID 1."""

VERIFIER_ERROR: Final = "verifier_error"
VERIFIER_CONFIGURATION: Final = "verifier_configuration"
"""What decides cannot work: found in the row, or before the candidate was there."""

REWARD_MISSING: Final = "reward_missing"
"""A script left no reward file; also one that holds an empty object."""
REWARD_EMPTY: Final = "reward_empty"
REWARD_INVALID: Final = "reward_invalid"
"""What lies in place of a reward file cannot be read as one."""
REWARD_AMBIGUOUS: Final = "reward_ambiguous"
"""Several rewards, none of which is called ``reward``."""

UNREWARDED: Final = (
    REWARD_MISSING,
    REWARD_EMPTY,
    REWARD_INVALID,
    REWARD_AMBIGUOUS,
    VERIFIER_TIMEOUT,
)
"""Of outcome ``verifier``: a candidate that the script runs may have caused it."""

EXTRACTION_FAILED: Final = "extraction_failed"
MATERIALIZATION_FAILED: Final = "materialization_failed"
EGRESS_SETUP_FAILED: Final = "egress_setup_failed"
EGRESS_REPORT_MISSING: Final = "egress_report_missing"
"""The gateway did not say in the end what a launch did: nothing is known of the provider."""
PREFLIGHT_FAILED: Final = "preflight_failed"
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""The agent used up the budget of its launch."""
RUN_BUDGET_EXHAUSTED: Final = "run_budget_exhausted"
"""Of outcome ``cancelled``: the budget of the whole run was used up first."""
PROVIDER_UNAVAILABLE: Final = "provider_unavailable"
PROVIDER_AUTH: Final = "provider_auth"
PROVIDER_QUOTA: Final = "provider_quota"
PROVIDER_USAGE: Final = "provider_usage"
"""The provider reports no tokens, so that a budget of tokens cannot be kept."""
PROVIDER_REASONS: Final = (PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE, PROVIDER_USAGE)
"""Of outcome ``provider``: launched again at most ``providerRetries`` times (contract 21.7)."""
IMAGE_PULL_FAILED: Final = "image_pull_failed"
IMAGE_CHANGED: Final = "image_changed"
NODE_LOST: Final = "node_lost"
POD_LOST: Final = "pod_lost"

EVALUATOR_TAMPERED: Final = "evaluator_tampered"
"""The same checks passed although one was added that must fail."""


class FailurePhase(StrEnum):
    """Where an attempt failed: values of ``failure_phase`` and names of phases of supervise.

    A row's command may name further ones; a reader takes any text.
    """

    QUEUED = "queued"
    PREFLIGHT = "preflight"
    PRODUCER = "producer"
    CANDIDATE_EXTRACTION = "candidate_extraction"
    VERIFICATION = "verification"
    CHECKER = "checker"
    CHECKS = "checks"
    TESTS = "tests"


PHASES_BEFORE_CHECKS: Final = frozenset(
    {FailurePhase.QUEUED, FailurePhase.PRODUCER, FailurePhase.CANDIDATE_EXTRACTION}
)
"""Values of ``failure_phase`` of attempts whose candidate no verifier saw."""
