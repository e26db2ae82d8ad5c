"""``--fail-below``: an exit code of its own for a score that a pipeline does not accept."""

from __future__ import annotations

from securebench.client.output import print_error

BELOW = 3
"""Exit code for a result whose score is below the limit."""


def score_code(passed: int, verified: int, limit: float | None) -> int:
    """Return 0 for a score that is accepted; otherwise print an error and return ``BELOW``.

    Args:
        passed: Attempts that passed.
        verified: Attempts with a verdict.
        limit: Smallest share of passes that is accepted, from 0 to 1; None accepts every score.
    """
    if limit is None or (verified and passed / verified >= limit):
        return 0
    if not verified:
        print_error(f"there is no score, so it is below --fail-below {limit:g}")
    else:
        share = passed / verified
        print_error(
            f"the score {share:.4g} ({passed} of {verified} passed) is below --fail-below {limit:g}"
        )
    return BELOW
