"""Calls of agents to their model, as the provider and the gateway wrote them down."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Line = Mapping[str, Any]


class Span(NamedTuple):
    """From one moment to another, in seconds since the epoch."""

    began: float
    ended: float


class Added(NamedTuple):
    """What the gateway added to one call.

    Attributes:
        span: When the provider had the call.
        seconds: Time at the gateway less the time at the provider.
    """

    span: Span
    seconds: float


def spans_by_task(lines: Iterable[Line]) -> dict[str, list[Span]]:
    """Return when the provider had the calls of each task, by what it knows the task by.

    Args:
        lines: The provider's, one for each call: ``time`` is its end, ``seconds`` how long it was
            there; ``task`` is empty until the model has read it.
    """
    conversations: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        conversations[line["conversation"]].append(line)
    found = {}
    for calls in conversations.values():
        task = next((call["task"] for call in calls if call["task"]), "")
        spans = sorted(Span(call["time"] - call["seconds"], call["time"]) for call in calls)
        found[task] = spans
    return found


def seconds_by_task(lines: Iterable[Line]) -> dict[str, list[float]]:
    """Return the seconds that the gateway had the model's calls of each task, in order.

    Args:
        lines: Of egress.jsonl, which has those of a task in order.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line.get("route") == "provider":
            found[line["task_id"]].append(line["seconds"])
    return dict(found)


def added(
    spans: Mapping[str, Sequence[Span]], gateway: Mapping[str, Sequence[float]]
) -> tuple[list[Added], list[str]]:
    """Return what the gateway added to each call, and the tasks whose calls do not agree."""
    found: list[Added] = []
    unequal = []
    for task in sorted(spans.keys() | gateway.keys()):
        there, here = spans.get(task, ()), gateway.get(task, ())
        if len(there) != len(here):
            unequal.append(
                f"{task}: {len(there)} calls at the provider, {len(here)} at the gateway"
            )
            continue
        found += [
            Added(span, seconds - (span.ended - span.began))
            for span, seconds in zip(there, here, strict=True)
        ]
    return found, unequal


def peak(spans: Iterable[Span]) -> int:
    """Return how many of them went on at once at most; one that ends frees its place first."""
    marks = sorted(mark for each in spans for mark in ((each.began, 1), (each.ended, -1)))
    most = now = 0
    for _, change in marks:
        now += change
        most = max(most, now)
    return most


def whole(spans: Mapping[str, Sequence[Span]]) -> list[Span]:
    """Return from the beginning of each task's first call to the end of its last one."""
    return [Span(each[0].began, each[-1].ended) for each in spans.values()]


def common(spans: Iterable[Span]) -> Span | None:
    """Return when all of them went on at once, or None."""
    each = list(spans)
    began = max((span.began for span in each), default=0.0)
    ended = min((span.ended for span in each), default=0.0)
    return Span(began, ended) if began < ended else None


def within(calls: Iterable[Added], span: Span | None) -> list[Added]:
    """Return the calls that began and ended in a span."""
    if span is None:
        return []
    return [
        call for call in calls if span.began <= call.span.began and call.span.ended <= span.ended
    ]


def percentiles_ms(calls: Sequence[Added]) -> dict[str, float]:
    """Return how many calls there are, and what was added to them in milliseconds."""
    values = [call.seconds * 1000 for call in calls]
    if len(values) < 2:
        return {"calls": len(values)}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    shares = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}
    return {"calls": len(values), **{name: round(value, 1) for name, value in shares.items()}}
