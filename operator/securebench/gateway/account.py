"""Accounting of a launch's provider usage, and its budget; every step returns a new report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from securebench.agents.providers.answers import TokenUsage
from securebench.agents.providers.provider import RequestRefusal
from securebench.protocol.gateway import ProviderConfig, RelayReport
from securebench.reasons import PROVIDER_AUTH, PROVIDER_USAGE

STRIPPED_KINDS: Final = 32
"""Maximum kinds of stripped tools in a report; an agent can invent any number."""

MODELS: Final = 8
"""Maximum models in a report; an honest launch has one or two."""


@dataclass(frozen=True, slots=True)
class UsageEnd:
    """How one request to the provider ended.

    Attributes:
        usage: Tokens, as far as known.
        failure: Provider failure as a failure_reason, or empty.
        cause: What went wrong, a clause of our own words, or empty.
        is_unreported: Whether a complete answer said nothing of its tokens.
        is_abandoned: Whether the agent left or the launch closed first; then it is no evidence
            about the provider, unless the provider had failed by then.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    failure: str = ""
    cause: str = ""
    is_unreported: bool = False
    is_abandoned: bool = False


def obstacle(report: RelayReport, config: ProviderConfig) -> RequestRefusal | None:
    """Return why the next request must not be sent, or None.

    Requests are counted when they are sent, so concurrent ones never exceed the budget; those that
    the provider failed are credited back when they end. Tokens are only known when a response ends,
    so the last request that started within the budget may exceed it (``tokens_left``). A rejected
    key is not tried again unless it was accepted before: then the rejection may have been about the
    request.
    """
    if report.failure == PROVIDER_AUTH and not report.is_key_taken:
        return RequestRefusal.KEY_REFUSED
    if report.failure == PROVIDER_USAGE:
        return RequestRefusal.NO_USAGE
    left = tokens_left(report, config)
    requests = report.requests - report.failures
    is_spent = config.max_requests is not None and requests >= config.max_requests
    is_spent |= left is not None and left <= 0
    return RequestRefusal.BUDGET if is_spent else None


def tokens_left(report: RelayReport, config: ProviderConfig) -> int | None:
    """Return the budget that is left, ignoring requests in flight; None without a budget."""
    if config.max_tokens is None:
        return None
    return config.max_tokens - report.input_tokens - report.output_tokens


def sent(report: RelayReport, model: str, stripped: tuple[str, ...] = ()) -> RelayReport:
    """Count a request that is being sent to the provider, and the model that it names."""
    models = _union(report.models, (model,), MODELS)
    counted = replace(report, requests=report.requests + 1, models=models)
    return _with_stripped_tools(counted, stripped)


def answered(report: RelayReport, model: str) -> RelayReport:
    """Note that the provider took the key and answered a model; later rejections change neither."""
    models = _union(report.answered_models, (model,), MODELS)
    return replace(report, is_key_taken=True, answered_models=models)


def refused(
    report: RelayReport, reason: RequestRefusal, kinds: tuple[str, ...] = ()
) -> RelayReport:
    """Count a request that the gateway answered itself."""
    counted = replace(
        report,
        blocked=report.blocked + 1,
        budget_exhausted=report.budget_exhausted or reason is RequestRefusal.BUDGET,
    )
    return _with_stripped_tools(counted, kinds)


def ended(report: RelayReport, end: UsageEnd) -> RelayReport:
    """Add the result of a request; the report keeps the failure of the last one that ended."""
    is_conclusive = bool(end.failure) or not end.is_abandoned
    return replace(
        report,
        input_tokens=report.input_tokens + end.usage.input_tokens,
        cached_tokens=report.cached_tokens + end.usage.cached_tokens,
        output_tokens=report.output_tokens + end.usage.output_tokens,
        failures=report.failures + bool(end.failure),
        failure=end.failure if is_conclusive else report.failure,
        failure_cause=end.cause if is_conclusive else report.failure_cause,
        unreported=report.unreported + end.is_unreported,
    )


def without_key(report: RelayReport) -> RelayReport:
    """Note that a request could not be sent for want of a key.

    It was not counted, so it is none of the failures that are credited back.
    """
    return replace(report, failure=PROVIDER_AUTH, failure_cause="")


def _with_stripped_tools(report: RelayReport, kinds: tuple[str, ...]) -> RelayReport:
    return replace(report, stripped_tools=_union(report.stripped_tools, kinds, STRIPPED_KINDS))


def _union(old: tuple[str, ...], new: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return the sorted union, truncated to ``most`` entries."""
    added = [item for item in new if item not in old]
    return tuple(sorted({*old, *added[: most - len(old)]}))
