"""Prometheus metrics of the operator's runs, derived from journal entries, and of its suites."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator

from prometheus_client import Counter, Gauge, Histogram

from securebench.run.plan.model import Role
from securebench.run.state.attempts import PodFacts, Usage, usage_of
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    LaunchEvidence,
    LaunchLost,
    Produced,
    RunEnded,
    Verified,
)
from securebench.suite.api import CellState, SuiteReason

STAGE_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Upper bounds in seconds. Kubernetes' own times are in whole seconds."""

LAUNCHES = Counter(
    "securebench_launches", "Launches that began, by harness or verifier.", ("role",)
)
LAUNCHES_LOST = Counter(
    "securebench_launches_lost", "Launches that ended without a result.", ("reason",)
)
LAUNCHES_IN_FLIGHT = Gauge(
    "securebench_launches_in_flight", "Launches that have begun and not ended, of all active runs."
)
LAUNCH_STAGES = Histogram(
    "securebench_launch_stage_seconds",
    "How long a launch took to get a node (schedule), to start its container (start), to run (run)"
    " and to be captured (capture).",
    ("role", "stage"),
    buckets=STAGE_BUCKETS,
)
ATTEMPTS = Counter("securebench_attempts", "Attempts that have a record.", ("outcome",))
RUNS_ENDED = Counter("securebench_runs_ended", "Runs that have ended.", ("reason",))
RUN_RETRIES = Counter(
    "securebench_run_retries", "How often a run was taken up again after an error.", ("reason",)
)
PROVIDER_REQUESTS = Counter(
    "securebench_provider_requests", "Requests to model providers, failed ones included."
)
PROVIDER_TOKENS = Counter(
    "securebench_provider_tokens",
    "Tokens of model providers: input (uncached), cached (input) and output.",
    ("kind",),
)


def count_entry(entry: Entry) -> None:
    """Count an entry that was written now; entries that were read again count for nothing."""
    match entry:
        case LaunchBegun(launch=launch):
            LAUNCHES.labels(launch.role.value).inc()
        case LaunchLost(lost=lost):
            LAUNCHES_LOST.labels(lost.reason).inc()
            _count_usage(lost.usage)
        case Produced(production=production, at=at, evidence=evidence):
            _observe_stages(Role.HARNESS, production.facts, evidence, at)
            _count_usage(usage_of(production.egress))
        case Verified(verification=verification, at=at, evidence=evidence):
            _observe_stages(Role.VERIFIER, verification.facts, evidence, at)
        case Finished(finish=finish, usage=usage):
            ATTEMPTS.labels(finish.outcome.value).inc()
            _count_usage(usage)
        case RunEnded(reason=reason):
            RUNS_ENDED.labels(reason).inc()
        case _:
            pass


class LaunchesInFlight:
    """The launches of one run within the gauge of all."""

    def __init__(self) -> None:
        self._counted = 0

    def set(self, number: int) -> None:
        """Say how many launches of the run are in flight; 0 when its loop ends."""
        LAUNCHES_IN_FLIGHT.inc(number - self._counted)
        self._counted = number


def _count_usage(usage: Usage) -> None:
    # A provider says how many tokens were cached; a counter refuses what is below zero.
    cached = min(usage.cached_tokens, usage.input_tokens)
    PROVIDER_REQUESTS.inc(usage.requests)
    PROVIDER_TOKENS.labels("input").inc(usage.input_tokens - cached)
    PROVIDER_TOKENS.labels("cached").inc(cached)
    PROVIDER_TOKENS.labels("output").inc(usage.output_tokens)


def _observe_stages(
    role: Role, facts: PodFacts, evidence: LaunchEvidence | None, captured_at: float
) -> None:
    if evidence is None:
        return
    for stage, begin, end in _stages(facts, evidence, captured_at):
        if begin and end:
            LAUNCH_STAGES.labels(role.value, stage).observe(max(end - begin, 0.0))


def _stages(
    facts: PodFacts, evidence: LaunchEvidence, captured_at: float
) -> Iterator[tuple[str, float | None, float | None]]:
    yield "schedule", evidence.created_at, evidence.scheduled_at
    yield "start", evidence.scheduled_at, facts.started_at
    yield "run", facts.started_at, facts.finished_at
    yield "capture", facts.finished_at, captured_at


SUITE_ROUNDS = Counter("securebench_suite_rounds", "Rounds of suites that began.")
SUITE_CELLS = Gauge(
    "securebench_suite_cells", "Cells of the current rounds of all suites.", ("state",)
)
SUITE_GATES = Counter(
    "securebench_suite_gates", "Rounds that were judged by their gates.", ("reason",)
)

_JUDGED_REASONS = {
    reason.value
    for reason in (SuiteReason.GATES_PASSED, SuiteReason.GATES_FAILED, SuiteReason.GATES_UNDECIDED)
}

# A counter that begins at its first event would hide that event from increase().
for _state in CellState:
    SUITE_CELLS.labels(_state.value)
for _reason in _JUDGED_REASONS:
    SUITE_GATES.labels(_reason)


def count_verdict(reason: str) -> None:
    """Count what the gates say of a round; nothing happens while they wait for its end."""
    if reason in _JUDGED_REASONS:
        SUITE_GATES.labels(reason).inc()


class CellsByState:
    """The cells of one suite within the gauge of all."""

    def __init__(self) -> None:
        self._counted = Counts[CellState]()

    def set(self, cells: Counts[CellState]) -> None:
        """Say how many cells the suite has in each state; none when its loop ends."""
        for state in CellState:
            SUITE_CELLS.labels(state.value).inc(cells[state] - self._counted[state])
        self._counted = cells
