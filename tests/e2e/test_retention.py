"""Finished runs and their results go when their time is over (decision 0045)."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager

import pytest

from support.release import DATA, CommandError, Raw, Release, condition, release
from support.runs import begin, rows
from support.waiting import until

pytestmark = pytest.mark.e2e

ANSWER = "echo 4"
TTL_SECONDS = 8
WAIT_SECONDS = 90


def sweeping() -> AbstractContextManager[Release]:
    """Install a release that keeps results for some seconds."""
    return release("sb-ttl", {"settings.retention.resultsTtlSeconds": TTL_SECONDS})


def entry(release: Release, run: str) -> Raw:
    """Return a run's line of the index, as the command line gets it."""
    (found,) = json.loads(release.operator("securebench", "operator-io", "--", "find-named", run))
    line: Raw = found
    return line


def left(release: Release, uid: str) -> list[str]:
    """Return what is left of a run's folder."""
    names = release.operator("sh", "-c", f"ls {DATA}/runs/{uid} 2>/dev/null || true")
    return names.decode().split()


def kept(release: Release, run: str) -> set[str]:
    """Return the roles of the run's Pods that are not being deleted."""
    found = (pod["metadata"] for pod in release.pods(run))
    return {
        metadata["labels"]["securebench.dev/role"]
        for metadata in found
        if "deletionTimestamp" not in metadata
    }


def until_removed(release: Release, run: str) -> None:
    until(
        lambda: entry(release, run)["removed_at"],
        f"the results of {run} are not removed",
        WAIT_SECONDS,
        step_seconds=1,
    )
    time.sleep(2)


def test_a_run_is_deleted_and_its_results_after_it() -> None:
    with sweeping() as installed:
        delete_when_it_is_over(installed)


def delete_when_it_is_over(sweeping: Release) -> None:
    run = begin(sweeping, rows(1), ANSWER, retention={"ttlSecondsAfterFinished": 1})
    uid = sweeping.uid(run)
    sweeping.kubectl("wait", "--for=delete", f"benchmarkrun/{run}", f"--timeout={WAIT_SECONDS}s")
    until_removed(sweeping, run)
    assert left(sweeping, uid) == []
    assert entry(sweeping, run)["outcome"] == "Completed"
    with pytest.raises(CommandError, match="not found"):
        sweeping.get("benchmarkrun", run)


def test_of_a_run_that_stays_its_end_is_left() -> None:
    with sweeping() as installed:
        keep_the_end(installed)


def keep_the_end(sweeping: Release) -> None:
    run = begin(sweeping, rows(1), ANSWER, retention={"pods": "All"})
    ended = sweeping.wait_ended(run)
    assert kept(sweeping, run) == {"harness", "verifier"}
    uid = ended["metadata"]["uid"]
    until_removed(sweeping, run)
    assert left(sweeping, uid) == ["status.json"]

    sweeping.scale(0)
    sweeping.scale(1)
    sweeping.patch(run, {"retention": {"ttlSecondsAfterFinished": 86_400}})
    seen = sweeping.wait(run, lambda seen: seen["status"]["observedGeneration"] == 2)
    assert condition(seen) | {"observedGeneration": 0} == condition(ended) | {
        "observedGeneration": 0
    }
    assert left(sweeping, uid) == ["status.json"]
