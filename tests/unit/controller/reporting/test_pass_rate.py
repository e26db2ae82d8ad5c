"""Intervals of a run with several attempts are computed beside the event loop, and not twice."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.publish import MAX_DEFERRED_INTERVALS
from securebench.controller.sealing import ResultsExport
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import Role, pod_name
from securebench.stats import intervals
from securebench.stats.intervals import MIN_BOOTSTRAP_TASKS
from support.build import VirtualLoop, finish, question, write_pack
from support.operator_world import World, opened
from support.pod_ends import judged

ATTEMPTS = 2
TASKS = MIN_BOOTSTRAP_TASKS + 5
TOTAL = TASKS * ATTEMPTS
INTERVAL = 2.0


class HalfPassed(World):
    """Every other task passes."""

    def ending(self, uid, launch):
        if launch.role is not Role.VERIFIER:
            return super().ending(uid, launch)
        view = pod_view(self.cluster.objects(ObjectKind.POD)[pod_name(uid, launch)])
        return judged(self.root, uid, view, lambda each: each.task % 2 == 0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of enough tasks for a bootstrap, on an operator with a real second thread."""
    monkeypatch.setattr("securebench.run.decide.attempt.MAX_WAIT_SECONDS", 0.0)
    settings = {"creation": {"firstPulls": TASKS}}
    with opened(HalfPassed, tmp_path, **settings) as world, ThreadPoolExecutor(1) as executor:

        async def elsewhere(work, *args):
            return executor.submit(work, *args).result()

        def run_in_executor(loop, _, work, *args):
            done = loop.create_future()
            finish(done, executor.submit(work, *args).result)
            return done

        tasks = [question(f"q{n}") for n in range(TASKS)]
        write_pack(world.root / "packs/many", tasks)
        # Not monkeypatch, which would be undone after the world and put its function back.
        with (
            mock.patch.object(asyncio, "to_thread", elsewhere),
            mock.patch.object(VirtualLoop, "run_in_executor", run_in_executor),
        ):
            world.uid = world.apply(
                pack={"volume": {"path": "many"}}, attempts=ATTEMPTS, parallelism=TASKS // 2
            )
            yield world


@pytest.fixture
def bootstraps():
    """The thread of each bootstrap, in order."""
    threads = []

    def resamples(counts):
        threads.append(threading.current_thread())
        return real(counts)

    real = intervals.resamples
    with mock.patch.object(intervals, "resamples", resamples):
        yield threads


def done(world):
    return world.run()["status"]["tasks"]["done"]


def writes(world):
    return world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]


def test_no_bootstrap_runs_on_the_event_loop(run, bootstraps):
    run.work(run.uid)
    score = run.run()["status"]["score"]
    assert run.condition()["reason"] == "Completed"
    assert score["passRate"]["low"] < score["passRate"]["value"]
    assert len(score["passAtK"]) == ATTEMPTS
    assert threading.current_thread() not in bootstraps
    assert bootstraps


def test_a_status_with_the_same_verdicts_repeats_no_bootstrap(run, bootstraps):
    while done(run) < TOTAL * 3 // 4:
        run.work(run.uid, rounds=1)
    run.wait(MAX_DEFERRED_INTERVALS * INTERVAL)
    assert done(run) < TOTAL
    bootstraps_before, writes_before = len(bootstraps), writes(run)
    run.edit(parallelism=1)
    run.wait(2 * INTERVAL)
    assert writes(run) > writes_before
    assert len(bootstraps) == bootstraps_before > 0


def test_the_last_status_says_what_the_summary_has_computed(run, bootstraps):
    async def seal(results, *end):
        await real(results, *end)
        by_seal.append(len(bootstraps))

    by_seal, real = [], ResultsExport.seal
    with mock.patch.object(ResultsExport, "seal", seal):
        run.work(run.uid)
    assert run.condition()["reason"] == "Completed"
    assert by_seal == [len(bootstraps)]
