"""The sums of one launch, and what they allow; every step returns a new report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from securebench.agents.providers.answers import TokenUsage
from securebench.agents.providers.provider import RequestRefusal
from securebench.core.reasons import PROVIDER_AUTH
from securebench.protocol.gateway import ProviderConfig, RelayReport

KINDS: Final = 32
"""Kinds of stripped tools that a report names; an agent may make up any number."""

MODELS: Final = 8
"""Models that a report names; an honest launch has one or two."""


@dataclass(frozen=True, slots=True)
class UsageEnd:
    """How one request to the provider ended.

    Attributes:
        usage: Tokens, as far as they are known.
        failure: A reason of the provider, or empty.
        is_abandoned: The agent left or the launch closed before the end: says nothing of the
            provider unless it had failed by then.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    failure: str = ""
    is_abandoned: bool = False


def obstacle(report: RelayReport, config: ProviderConfig) -> RequestRefusal | None:
    """Return why the next request is not sent, or None.

    Requests are counted when they are sent, so concurrent ones never exceed their budget; those
    that the provider failed are given back when they end. Tokens are known when answers end, so the
    request that passes the bound is the last one begun before (``tokens_left``). A key that was
    never taken is not tried again; one that was may have been refused for what was asked.
    """
    if report.failure == PROVIDER_AUTH and not report.is_key_taken:
        return RequestRefusal.KEY_REFUSED
    left = tokens_left(report, config)
    requests = report.requests - report.failures
    is_spent = config.max_requests is not None and requests >= config.max_requests
    is_spent |= left is not None and left <= 0
    return RequestRefusal.BUDGET if is_spent else None


def tokens_left(report: RelayReport, config: ProviderConfig) -> int | None:
    """Return what is left of the budget when no request is in flight, None where there is none."""
    if config.max_tokens is None:
        return None
    return config.max_tokens - report.input_tokens - report.output_tokens


def sent(report: RelayReport, model: str, stripped: tuple[str, ...] = ()) -> RelayReport:
    """Count a request that goes to the provider now, and name the model that it asks."""
    models = _joined(report.models, (model,), MODELS)
    counted = replace(report, requests=report.requests + 1, models=models)
    return _noted(counted, stripped)


def key_taken(report: RelayReport) -> RelayReport:
    """Note that the provider took the key; it stays so whatever it answers later."""
    return replace(report, is_key_taken=True)


def refused(
    report: RelayReport, reason: RequestRefusal, kinds: tuple[str, ...] = ()
) -> RelayReport:
    """Count a request that the gateway answered itself."""
    counted = replace(
        report,
        blocked=report.blocked + 1,
        budget_exhausted=report.budget_exhausted or reason is RequestRefusal.BUDGET,
    )
    return _noted(counted, kinds)


def ended(report: RelayReport, end: UsageEnd) -> RelayReport:
    """Add how a request ended; the failure is that of the latest one that came to an end."""
    is_known = bool(end.failure) or not end.is_abandoned
    return replace(
        report,
        input_tokens=report.input_tokens + end.usage.input_tokens,
        cached_tokens=report.cached_tokens + end.usage.cached_tokens,
        output_tokens=report.output_tokens + end.usage.output_tokens,
        failures=report.failures + bool(end.failure),
        failure=end.failure if is_known else report.failure,
    )


def _noted(report: RelayReport, kinds: tuple[str, ...]) -> RelayReport:
    return replace(report, stripped_tools=_joined(report.stripped_tools, kinds, KINDS))


def _joined(known: tuple[str, ...], more: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return all words sorted, without those that there is no room for."""
    fresh = [word for word in more if word not in known]
    return tuple(sorted({*known, *fresh[: most - len(known)]}))
