"""Counters of what the journals of this operator's runs learn, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter

from securebench.run.state.history import Entry, Finished, LaunchBegun, LaunchLost, RunEnded

LAUNCHES = Counter(
    "securebench_launches", "Launches that began, by harness or verifier.", ("role",)
)
LAUNCHES_LOST = Counter(
    "securebench_launches_lost", "Launches that ended without a result.", ("reason",)
)
ATTEMPTS = Counter("securebench_attempts", "Attempts that have a record.", ("outcome",))
RUNS_ENDED = Counter("securebench_runs_ended", "Runs that have ended.", ("reason",))
RUN_RETRIES = Counter(
    "securebench_run_retries", "How often a run was taken up again after an error.", ("reason",)
)


def count_entry(entry: Entry) -> None:
    """Count an entry that was written now; entries that were read again count for nothing."""
    match entry:
        case LaunchBegun(launch=launch):
            LAUNCHES.labels(launch.role.value).inc()
        case LaunchLost(lost=lost):
            LAUNCHES_LOST.labels(lost.reason).inc()
        case Finished(finish=finish):
            ATTEMPTS.labels(finish.outcome.value).inc()
        case RunEnded(reason=reason):
            RUNS_ENDED.labels(reason).inc()
        case _:
            pass
