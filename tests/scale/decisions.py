"""What a decision costs in a run of 10,000 attempts: ``make scale`` prints it.

Nothing here touches a cluster or a disk but a temporary journal. Each figure is the fastest of
several rounds, so that a busy machine shows least in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from securebench.controller.capacity import SharedCapacity
from securebench.controller.settings import Creation
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.store import RunStore
from securebench.run.api.field_types import Outcome
from securebench.run.decide.capacity import CapacityUse, Headroom
from securebench.run.decide.controls import Controls
from securebench.run.decide.decision_cache import ChangeSet, DecisionCache
from securebench.run.decide.reconcile import ObservedState, reconcile
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan, pod_name
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    Opened,
    Produced,
    RunBound,
    Verified,
)
from securebench.run.state.history import AttemptIndex, run_history
from support.build import (
    NOW,
    PROVEN_NETWORK,
    FakeClock,
    changed,
    history_of,
    many_tasks,
    plan_of,
    pod_status,
    production,
    running,
    verification,
    view_of,
)

ROUNDS = 5
EVENTS = 200
RECORD_BYTES = 100 * 1024
RUN_UID = "0b5c2f3e-0000-4000-8000-000000000000"


def decision_ms(tasks: int, in_flight: int) -> dict[str, float]:
    """Return milliseconds per event, for the whole run and for what has changed."""
    plan = plan_of(*many_tasks(tasks))
    launches = [LaunchKey(task, 1, Role.HARNESS, 1) for task in range(in_flight)]
    history = AttemptIndex(history_of(AttemptKey(task, 1)) for task in range(tasks))
    for launch in launches:
        key = launch.attempt_key
        history[key] = changed(history[key], live=launch, live_since=NOW, launches=1)
    status = pod_status("Running", running("courier"), running("harness"))
    views = {pod_name(plan.identity.uid, each): view_of(each, status) for each in launches}
    whole = ObservedState(plan, history, PROVEN_NETWORK, views, (), (), NOW)
    controls, cache = Controls(in_flight), DecisionCache()
    reconcile(whole, controls, cache)
    names = list(views)

    def one_by_one() -> None:
        for number in range(EVENTS):
            news = ChangeSet((), (names[number % len(names)],))
            reconcile(replace(whole, changes=news), controls, cache)

    def everything() -> None:
        reconcile(whole, controls)

    return {
        "whole": fastest(everything) * 1000,
        "changed": fastest(one_by_one) / EVENTS * 1000,
        "tally": fastest(history.tally) * 1000,
    }


def shared_ms(tasks: int, in_flight: int, runs: int) -> dict[str, float]:
    """Return milliseconds per event where many runs want more than the operator allows.

    Every one of them has tasks that wait, so that each look divides the bounds among all.
    """
    run = Crowd(tasks, in_flight, runs)

    def one_by_one() -> None:
        for number in range(EVENTS):
            run.event(number)

    image = run.plan.tasks[0].environment.image
    fresh = AttemptIndex(history_of(AttemptKey(task, 1)) for task in range(tasks))
    waits = replace(run.whole, history=fresh, pods={}, changes=ChangeSet((), ()))
    headroom, cache = Headroom(first_pulls=8, pulling={image: 8}), DecisionCache()

    def new_image() -> None:
        for _ in range(EVENTS):
            reconcile(waits, Controls(in_flight, headroom=headroom), cache)

    return {
        "shared": fastest(one_by_one) / EVENTS * 1000,
        "new image": fastest(new_image) / EVENTS * 1000,
    }


class Crowd:
    """One large run among many, all below bounds that are used up.

    Args:
        tasks: Of the large run.
        in_flight: Pods of it.
        runs: All runs.
    """

    def __init__(self, tasks: int, in_flight: int, runs: int) -> None:
        self.plan = plan_of(*many_tasks(tasks))
        launches = [LaunchKey(task, 1, Role.HARNESS, 1) for task in range(in_flight)]
        history = AttemptIndex(history_of(AttemptKey(task, 1)) for task in range(tasks))
        for launch in launches:
            key = launch.attempt_key
            history[key] = changed(history[key], live=launch, live_since=NOW, launches=1)
        status = pod_status("Running", running("courier"), running("harness"))
        self.pods = {
            pod_name(self.plan.identity.uid, each): view_of(each, status) for each in launches
        }
        self.whole = ObservedState(self.plan, history, PROVEN_NETWORK, self.pods, (), (), NOW)
        self.names = [pod_name(self.plan.identity.uid, each) for each in launches]
        bounds = Creation(max_pods=in_flight + runs, max_starting=200)
        self.capacity = SharedCapacity(bounds, FakeClock())
        self.cache = DecisionCache()
        for number in range(runs):
            self.capacity.register(str(number), "", lambda: None)
            self.capacity.report(str(number), CapacityUse(pods=1, starting=1, wanted=50))
        self.controls = Controls(in_flight * 2)
        reconcile(self.whole, self.controls, self.cache)

    def event(self, number: int) -> None:
        """Decide after one change of a Pod."""
        news = ChangeSet((), (self.names[number % len(self.names)],))
        controls = replace(self.controls, headroom=self.capacity.headroom("0"))
        decision = reconcile(replace(self.whole, changes=news), controls, self.cache)
        self.capacity.report("0", decision.usage)


def fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some rounds."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return min(once() for _ in range(ROUNDS))


def entries(plan: RunPlan, finished: int, live: int) -> Iterator[Entry]:
    """Yield the journal of a run of which so many attempts have ended and so many go on."""
    yield RunBound(RUN_UID, plan.digest)
    yield Opened(1, NOW)
    for task in range(finished):
        yield from finished_attempt(AttemptKey(task, 1), "a" * 64)
    for task in range(finished, finished + live):
        yield LaunchBegun(LaunchKey(task, 1, Role.HARNESS, 1), NOW)


def finished_attempt(key: AttemptKey, record_sha256: str) -> Iterator[Entry]:
    """Yield the journal of an attempt that passed at its first launch."""
    yield LaunchBegun(LaunchKey(key.task, key.attempt, Role.HARNESS, 1), NOW)
    yield Produced(key, production())
    yield LaunchBegun(LaunchKey(key.task, key.attempt, Role.VERIFIER, 1), NOW)
    yield Verified(key, verification())
    yield Finished(Finish(key, Outcome.SCORED, passed=True), record_sha256, NOW)


def start_up(finished: int, live: int) -> dict[str, float]:
    """Return what reading the journal of a long run and the first whole decision take."""
    plan = plan_of(*many_tasks(finished + live))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        journal = Journal(path, RUN_UID)
        journal.append(entries(plan, finished, live))
        journal.close()
        size = path.stat().st_size
        began = time.perf_counter()
        journal = Journal(path, RUN_UID)
        history = run_history(plan, journal.take_entries())
        observed = ObservedState(plan, history.attempts, PROVEN_NETWORK, {}, (), (), NOW)
        reconcile(observed, Controls(live), DecisionCache())
        seconds = time.perf_counter() - began
        journal.close()
        del journal, history, observed
        tracemalloc.start()
        journal = Journal(path, RUN_UID)
        history = run_history(plan, journal.take_entries())
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        journal.close()
    return {
        "seconds": seconds,
        "journal_mib": size / 2**20,
        "kept_mib": kept / 2**20,
        "peak_mib": peak / 2**20,
        "kept_bytes_per_attempt": kept / len(history.attempts),
    }


def export(records: int) -> dict[str, float]:
    """Return what writing candidates.jsonl takes."""
    line = b'{"text":"' + b"x" * (RECORD_BYTES - 11) + b'"}'
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder), RUN_UID)
        store.folder.mkdir(parents=True)
        finished = []
        for task in range(records):
            key = AttemptKey(task, 1)
            finished.append((key, store.write_record(key, [line])))
        before = peak_mib()
        began = time.perf_counter()
        count, _ = store.export(finished)
        seconds = time.perf_counter() - began
    return {"records": count, "seconds": seconds, "more_memory_mib": peak_mib() - before}


def peak_mib() -> float:
    """Return the most memory that this process ever had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print the figures as a table and, as the last line, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=10_000, help="of 100 KiB each; 0: none")
    chosen = parser.parse_args()
    found: dict[str, object] = {}
    if chosen.records:  # first: the peak of memory only ever grows
        found["export"] = export(chosen.records)
    for in_flight in (100, 1_000, 5_000):
        if in_flight <= chosen.tasks:
            found[f"decision_ms {in_flight} in flight"] = decision_ms(chosen.tasks, in_flight)
            found[f"shared_ms {in_flight} in flight, 50 runs"] = shared_ms(
                chosen.tasks, in_flight, 50
            )
    found["start"] = start_up(chosen.tasks, 1_000)
    for name, values in found.items():
        print(name, values)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
