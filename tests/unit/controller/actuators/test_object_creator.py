import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.clock import TokenBucket
from securebench.cluster.client import classify
from securebench.cluster.port import Forbidden, ObjectKind, QuotaExceeded
from securebench.controller.capacity import CreationRate
from securebench.controller.informers import PodInformer
from securebench.controller.object_writers import QUOTA_RETRY_SECONDS, RETRY_SECONDS, ObjectWriters
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.plan.model import LaunchKey, Role, pod_name, short_uid
from support.build import (
    HARNESS,
    MONOTONIC,
    NOW,
    VERIFIER,
    FakeClock,
    VirtualLoop,
    context_of,
    raw_pod,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID

OTHER_UID = "7d1e0000-0000-4000-8000-000000000000"
NAME = "sb-3f2a9c1e5b7d-0-1h1"


class World:
    def __init__(self, rate=1000.0, burst=1000):
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.changes = 0
        self.seen = []
        context = context_of(self.cluster, self.clock, Path())
        limited = CreationRate(TokenBucket(rate, burst, self.clock.now))
        self.informer = PodInformer(self.cluster, "", 300.0, self.count)
        context = replace(context, rate=limited)
        self.context = context
        self.writers = ObjectWriters(context, RUN_UID, self.informer, self.count)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))

    @property
    def retries(self):
        return self.writers.retries

    def count(self):
        self.changes += 1

    def saw(self, raw):
        self.seen.append(raw["metadata"]["name"])

    def create(self, launch=HARNESS, manifest=None, seconds=0.001):
        async def body():
            return raw_pod(launch)

        async def act():
            self.writers.creator.create_launch(launch, manifest or body, self.saw)
            await asyncio.sleep(seconds)

        self.runner.run(act())

    def begin(self, writers, launch):
        """Begin to create a Pod of some run."""

        async def body():
            owner = RUN_UID if writers is self.writers else OTHER_UID
            pod = raw_pod(launch)
            pod["metadata"] |= {"name": pod_name(owner, launch)}
            return pod

        writers.creator.create_launch(launch, body, self.saw)

    def create_object(self, key, seconds=0.001):
        async def made():
            pass

        async def act():
            self.writers.creator.create_object(key, made)
            await asyncio.sleep(seconds)

        self.runner.run(act())

    def reap(self):
        assert self.writers.tasks.reap() is None

    def creates(self):
        return self.cluster.requests["create", ObjectKind.POD]


@pytest.fixture
def world():
    world = World()
    yield world
    world.runner.close()


def transient(**facts):
    return TransientClusterError("no answer", **facts)


def test_a_create_is_seen_and_then_no_longer_pending(world):
    world.create()
    assert world.seen == [NAME]
    assert not world.retries.pending
    assert world.changes == 1
    assert not world.writers.tasks.is_idle
    world.reap()
    assert world.writers.tasks.is_idle


def test_a_create_under_way_is_not_begun_again(world):
    world.create(seconds=0)
    world.create()
    assert world.creates() == 1


# 409


def test_a_pod_of_ours_that_is_there_is_success(world):
    world.runner.run(world.cluster.create(ObjectKind.POD, raw_pod(HARNESS)))
    world.create()
    assert world.seen == [NAME]
    assert not world.retries.pending
    assert world.retries.refusal == ""


OWNERS = {
    "another run": [{"kind": "BenchmarkRun", "uid": "other"}],
    "nobody": None,
    "nonsense": ["x"],
}


@pytest.mark.parametrize("name", OWNERS)
def test_a_foreign_pod_of_that_name_is_a_refusal(world, name):
    foreign = raw_pod(HARNESS)
    foreign["metadata"]["ownerReferences"] = OWNERS[name]
    world.runner.run(world.cluster.create(ObjectKind.POD, foreign))
    world.create()
    assert world.seen == []
    assert world.retries.refusal == f"a Pod named {NAME} exists that is not this run's; delete it"


def test_a_pod_that_is_gone_again_is_tried_again(world):
    world.runner.run(world.cluster.create(ObjectKind.POD, raw_pod(HARNESS)))
    real = world.cluster.get

    async def gone(kind, name):
        world.cluster.remove(kind, name)
        return await real(kind, name)

    world.cluster.get = gone
    world.create()
    assert list(world.retries.pending) == [NAME]
    assert world.writers.next_try() == pytest.approx(MONOTONIC + RETRY_SECONDS, abs=0.01)


# Errors


@pytest.mark.parametrize("before", [True, False])
def test_a_create_without_an_answer_is_repeated_until_it_is_definite(world, before):
    world.cluster.fail_next("create", transient(), before=before)
    world.create()
    world.reap()
    assert world.seen == []
    assert world.writers.next_try() == pytest.approx(MONOTONIC + RETRY_SECONDS, abs=0.01)
    world.create()
    assert world.creates() == 1
    world.clock.advance(RETRY_SECONDS)
    world.create()
    assert world.seen == [NAME]
    assert world.writers.next_try() is None
    assert list(world.cluster.objects(ObjectKind.POD)) == [NAME]


def test_the_servers_own_pause_counts(world):
    world.cluster.fail_next("create", transient(retry_after_seconds=17.0))
    world.create()
    assert world.writers.next_try() == pytest.approx(MONOTONIC + 17, abs=0.01)


def test_a_quota_waits_and_says_so(world):
    world.cluster.fail_next("create", QuotaExceeded("exceeded quota: pods=10"))
    world.create()
    world.reap()
    assert world.retries.quota == "exceeded quota: pods=10"
    assert world.retries.refusal == ""
    assert world.writers.next_try() == pytest.approx(MONOTONIC + QUOTA_RETRY_SECONDS, abs=0.01)
    world.clock.advance(QUOTA_RETRY_SECONDS)
    world.create()
    assert world.retries.quota == ""
    assert world.seen == [NAME]


def test_a_quota_is_said_while_other_objects_are_made(world):
    world.cluster.fail_next("create", QuotaExceeded("exceeded quota: pods=10"))
    world.create()
    world.reap()
    world.create_object("policy")
    world.reap()
    assert world.retries.quota == "exceeded quota: pods=10"


def test_a_refusal_is_final_and_holds_the_servers_words(world):
    words = 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    world.cluster.fail_next("create", PermanentClusterError(words, status=422))
    world.create()
    assert world.retries.refusal == words
    assert world.writers.next_try() is None
    world.reap()


def refuse(world, count, error=None):
    for _ in range(count):
        world.cluster.fail_next("create", error or Forbidden("403: no", status=403))


def keep_trying(world, seconds):
    """Create again whenever that may be done; return the pauses between tries."""
    tries, until = [], world.clock.now() + seconds
    while world.clock.now() < until:
        before = world.creates()
        world.create(seconds=0.5)
        world.reap()
        tries += [world.clock.now()] * (world.creates() - before)
        if world.retries.refusal or NAME in world.seen:
            break
    return [round(later - earlier) for earlier, later in itertools.pairwise(tries)]


def test_what_rights_refuse_for_a_while_is_made_in_the_end(world):
    refuse(world, 6)
    assert keep_trying(world, 900) == [5, 10, 20, 40, 60, 60]
    assert world.seen == [NAME]
    retries = world.retries
    assert not retries.pending
    assert (retries.refusal, retries.error, retries.blocked) == ("", "", "")


def test_what_rights_refuse_for_long_is_a_refusal(world):
    refuse(world, 99)
    pauses = keep_trying(world, 900)
    assert sum(pauses) == pytest.approx(600, abs=10)
    assert world.retries.refusal.startswith(f"Pod {NAME}: 403: no; mend the operator's rights")
    assert world.writers.next_try() is None


def test_what_is_refused_is_said_with_what_to_do(world):
    refuse(world, 1)
    world.create()
    world.reap()
    assert world.retries.forbidden == (
        f"Pod {NAME}: 403: no; tried again for up to 600 seconds; mend the operator's rights, "
        "Pod Security or the admission webhook that refuses it"
    )
    assert world.retries.refusal == ""


OTHERS = {
    "no answer": TransientClusterError("no answer"),
    "a full quota": QuotaExceeded("exceeded quota: pods=10"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_answer_begins_the_time_anew(name, world):
    for _ in range(3):
        refuse(world, 9)
        refuse(world, 1, OTHERS[name])
    keep_trying(world, 3600)
    assert world.seen == [NAME]


def test_a_token_that_is_refused_ends_nothing(world):
    refuse(world, 2000, classify(401, b""))
    keep_trying(world, 3600)
    assert world.retries.refusal == ""
    world.cluster.recover()
    keep_trying(world, 10)
    assert world.seen == [NAME]


def test_what_is_not_the_clusters_fault_is_passed_on(world):
    async def broken():
        raise OSError("the volume is full")

    world.create(manifest=broken)
    error = world.writers.tasks.reap()
    assert isinstance(error, OSError)
    assert world.writers.tasks.is_idle
    assert world.creates() == 0


# What the cluster shows meanwhile


def test_a_pod_that_shows_up_settles_its_create(world):
    world.cluster.fail_next("create", transient(), before=False)
    world.create()
    world.runner.run(world.informer.list())
    world.writers.observe()
    assert world.writers.next_try() is None


def test_a_pod_that_came_and_went_settles_its_create_too(world):
    world.writers.creator.mark_pending(HARNESS)
    world.writers.creator.mark_pending(VERIFIER)
    world.informer.vanished[NAME] = (HARNESS,)
    world.writers.observe()
    assert list(world.retries.pending) == ["sb-3f2a9c1e5b7d-0-1v1"]


def test_a_create_that_nobody_repeats_wakes_nobody(world):
    world.cluster.fail_next("create", transient(), before=True)
    world.create()
    world.clock.advance(RETRY_SECONDS - 1)
    world.writers.observe()
    assert world.writers.next_try() == pytest.approx(MONOTONIC + RETRY_SECONDS, abs=0.01)
    world.clock.advance(2)
    assert world.writers.next_try() == pytest.approx(MONOTONIC + RETRY_SECONDS, abs=0.01)
    world.writers.observe()
    assert world.writers.next_try() is None


def test_an_expected_launch_may_be_created_at_once(world):
    world.writers.creator.mark_pending(HARNESS)
    assert list(world.retries.pending) == [NAME]
    assert world.writers.next_try() is None
    world.create()
    assert world.seen == [NAME]


# Rate


def test_the_rate_is_the_buckets():
    world = World(rate=0.5, burst=1)
    world.create()
    world.create(VERIFIER)
    assert world.creates() == 1
    world.runner.run(asyncio.sleep(2.1))
    assert world.creates() == 2
    world.runner.close()


# The end


def test_closing_stops_what_is_under_way(world):
    async def never():
        await asyncio.sleep(1000)
        return raw_pod(HARNESS)

    async def act():
        world.writers.creator.create_launch(HARNESS, never, world.saw)
        await asyncio.sleep(1)
        world.writers.creator.create_launch(VERIFIER, never, world.saw)
        await world.writers.tasks.close()

    world.runner.run(act())
    assert world.creates() == 0
    assert world.clock.monotonic() < MONOTONIC + 2
    assert set(world.retries.pending) == {NAME, "sb-3f2a9c1e5b7d-0-1v1"}


# Turns


def test_runs_take_turns_at_the_rate():
    """A run that wants two Pods does not wait behind fifty of another one."""
    world = World(rate=1.0, burst=1)
    small = ObjectWriters(world.context, OTHER_UID, world.informer, world.count)

    async def act():
        for task in range(50):
            world.begin(world.writers, LaunchKey(task, 1, Role.HARNESS, 1))
        await asyncio.sleep(2.5)
        for task in range(2):
            world.begin(small, LaunchKey(task, 1, Role.HARNESS, 1))
        await asyncio.sleep(3)

    world.runner.run(act())
    owners = [name.split("-")[1] for name in world.seen]
    big, other = short_uid(RUN_UID), short_uid(OTHER_UID)
    assert owners == [big, big, big, big, other, big]
    assert world.writers.observe().rate.message == (
        "waiting for a turn: the operator creates 5 Pods a second, one run after the other, and "
        "settings.creation.perSecond allows no more"
    )
    assert world.writers.observe().rate.since == NOW
    world.runner.run(asyncio.sleep(100))
    assert len(world.seen) == 52
    assert world.writers.observe().rate.message == ""
    world.runner.close()


def test_a_create_that_is_stopped_takes_no_turn():
    world = World(rate=1.0, burst=1)

    async def act():
        for task in range(3):
            world.begin(world.writers, LaunchKey(task, 1, Role.HARNESS, 1))
        await asyncio.sleep(0.1)
        await world.writers.tasks.close()
        await asyncio.sleep(5)
        world.begin(world.writers, LaunchKey(9, 1, Role.HARNESS, 1))
        await asyncio.sleep(0.1)

    world.runner.run(act())
    assert [name.rsplit("-", 2)[1] for name in world.seen] == ["0", "9"]
    world.runner.close()
