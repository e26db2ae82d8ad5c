"""The steps by which supervise makes a repository ready for its check, and whose fault each is.

Source: contract 14.5.1, 15.1, 21.4, 21.5; package ``repository`` of supervise has the same numbers.
"""

from __future__ import annotations

from enum import Enum

from securebench.protocol.exit_codes import Code
from securebench.run.api.outcomes import Outcome


class PatchStep(Enum):
    """A step that can fail before candidate code runs: number, reason, phase, outcome, message."""

    HEAD = (0, "base_commit_unreadable", "base_commit", Outcome.VERIFIER,
            "the commit of the image's repository cannot be read")  # fmt: skip
    BASE = (1, "base_commit_mismatch", "base_commit", Outcome.VERIFIER,
            "the image's repository is at another commit than the row says")  # fmt: skip
    SETUP = (2, "setup_patch_failed", "setup_patch", Outcome.VERIFIER,
             "the row's setup patch does not apply")  # fmt: skip
    TEST_ALONE = (3, "test_patch_failed", "test_patch", Outcome.VERIFIER,
                  "the row's test patch does not apply, even without the candidate")  # fmt: skip
    CANDIDATE = (4, "candidate_patch_apply_failed", "candidate_patch", Outcome.AGENT,
                 "the candidate patch does not apply")  # fmt: skip
    PATHS = (5, "candidate_patch_path_mismatch", "candidate_policy", Outcome.AGENT,
             "the paths that the patch really changed are not those that it declares")  # fmt: skip
    TEST = (6, "test_patch_failed", "test_patch", Outcome.SCORED,
            "the row's test patch does not apply to what the candidate left")  # fmt: skip
    CONTROL = (7, "test_patch_failed", "test_patch", Outcome.SCORED,
               "the row's control does not apply to what the candidate left")  # fmt: skip

    def __init__(
        self, number: int, reason: str, phase: str, outcome: Outcome, message: str
    ) -> None:
        self.code = Code.PHASE_FAILED + number
        self.reason = reason
        self.phase = phase
        self.outcome = outcome
        self.message = message


STEP_OF_CODE = {step.code: step for step in PatchStep}
