"""Whether a run has used up its token budget, and what it says then. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from securebench.run.api.conditions import Reason
from securebench.run.decide.network.network_step import NetworkState
from securebench.run.decide.reporting.verdict import EndReason
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import AttemptHistory
from securebench.run.state.tally import budget_tokens_used, total_usage


def budget_stop(plan: RunPlan, network: NetworkState, attempts: AttemptIndex) -> EndReason | None:
    """Return why the run's budget ends it, or None.

    The gateway says that the budget is used up, or has refused a launch for it; the journal
    remembers the latter.
    """
    limit = plan.token_budget
    if limit is None:
        return None
    is_spent = network.provider.tokens_used >= limit or attempts.is_budget_spent
    message = f"the budget of the run, {limit} tokens, is used up"
    return EndReason(Reason.BUDGET_EXHAUSTED, message) if is_spent else None


def with_tokens_used(
    end: EndReason, network: NetworkState, attempts: Iterable[AttemptHistory]
) -> EndReason:
    """Return the end of a run, with the tokens that were used if its budget ended it.

    Args:
        end: How the run ended.
        network: What its gateway said last, which may be a second old.
        attempts: All of them, finished.
    """
    if end.reason is not Reason.BUDGET_EXHAUSTED:
        return end
    used = budget_tokens_used(network.provider.tokens_used, total_usage(attempts))
    return end._replace(message=f"{end.message}: {used} tokens were used")
