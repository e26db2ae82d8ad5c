"""What only the fake does; what it shares with a real cluster is in tests/contract."""

import asyncio
from contextlib import aclosing

import pytest

from securebench.cluster.port import AlreadyExists, ObjectKind, WatchExpired
from securebench.errors import InvariantViolationError, TransientClusterError
from support.fake_cluster import Call, FakeCluster

LOST = TransientClusterError("connection reset")


def pod(name, **metadata):
    return {"metadata": {"name": name, **metadata}, "spec": {"terminationGracePeriodSeconds": 5}}


async def told(fake, version, kind=ObjectKind.POD, selector=""):
    """Return what a watch that does not wait tells: (type, name) of every event."""
    fake.watch_waits = False
    watch = fake.watch(kind, selector, version)
    return [(event.type, event.object["metadata"].get("name")) async for event in watch]


async def test_a_failure_before_leaves_no_effect():
    fake = FakeCluster()
    fake.fail_next("create", LOST)

    with pytest.raises(TransientClusterError):
        await fake.create(ObjectKind.POD, pod("a"))

    assert fake.objects(ObjectKind.POD) == {}
    assert fake.calls == [Call("create", ObjectKind.POD, "a")]
    assert fake.requests["create", ObjectKind.POD] == 1


async def test_a_failure_after_leaves_the_effect():
    fake = FakeCluster()
    fake.fail_next("create", LOST, before=False)

    with pytest.raises(TransientClusterError):
        await fake.create(ObjectKind.POD, pod("a"))

    assert list(fake.objects(ObjectKind.POD)) == ["a"]
    with pytest.raises(AlreadyExists):
        await fake.create(ObjectKind.POD, pod("a"))


async def test_a_lost_answer_hides_a_refusal_too():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))
    fake.fail_next("create", LOST, before=False)

    with pytest.raises(TransientClusterError):
        await fake.create(ObjectKind.POD, pod("a"))


async def test_failures_wait_for_their_verb_and_kind():
    fake = FakeCluster()
    fake.fail_next("create", LOST, kind=ObjectKind.SECRET)

    await fake.create(ObjectKind.POD, pod("a"))
    with pytest.raises(TransientClusterError):
        await fake.create(ObjectKind.SECRET, {"metadata": {"name": "s"}})
    await fake.create(ObjectKind.SECRET, {"metadata": {"name": "s"}})


async def test_two_worlds_with_the_same_calls_are_equal():
    async def world():
        fake = FakeCluster()
        await fake.create(ObjectKind.POD, pod("b"))
        await fake.create(ObjectKind.POD, pod("a"))
        fake.set_pod_status("a", {"phase": "Running"})
        await fake.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)
        return await fake.list(ObjectKind.POD, "")

    assert await world() == await world()


async def test_lost_events_are_never_told():
    fake = FakeCluster()
    version = (await fake.list(ObjectKind.POD, "")).resource_version
    fake.lose_events(1)
    await fake.create(ObjectKind.POD, pod("a"))
    await fake.create(ObjectKind.POD, pod("b"))

    assert await told(fake, version) == [("ADDED", "b")]


async def test_an_open_watch_hears_of_changes_and_ends_at_the_time_limit():
    fake = FakeCluster()
    version = (await fake.list(ObjectKind.POD, "")).resource_version
    heard = []

    async def listen():
        async for event in fake.watch(ObjectKind.POD, "", version):
            heard.append(event.type)  # noqa: PERF401 - looked at while it listens

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0)
    await fake.create(ObjectKind.POD, pod("a"))
    await asyncio.sleep(0)
    fake.bookmark(ObjectKind.POD)
    await asyncio.sleep(0)
    assert heard == ["ADDED", "BOOKMARK"]

    fake.end_watches()
    await listener


async def test_open_watches_can_break():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))

    async with aclosing(fake.watch(ObjectKind.POD, "", "100")) as watch:
        await anext(watch)
        fake.end_watches(LOST)
        with pytest.raises(TransientClusterError):
            await anext(watch)


async def test_a_watch_opened_after_the_end_of_others_goes_on():
    fake = FakeCluster()
    fake.end_watches(LOST)
    await fake.create(ObjectKind.POD, pod("a"))

    assert await told(fake, "100") == [("ADDED", "a")]


async def test_expired_history():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))
    old = (await fake.list(ObjectKind.POD, "")).resource_version
    fake.expire_history()

    with pytest.raises(WatchExpired):
        await told(fake, old)
    fresh = (await fake.list(ObjectKind.POD, "")).resource_version
    assert await told(fake, fresh) == []


async def test_a_watch_from_nowhere_begins_with_what_is_there():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))

    assert await told(fake, "") == [("ADDED", "a")]
    assert await told(fake, "0") == [("ADDED", "a")]


async def test_a_running_pod_terminates_in_two_steps():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))
    fake.set_pod_status("a", {"phase": "Running"})

    assert await fake.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)
    meta = fake.objects(ObjectKind.POD)["a"]["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 5
    assert meta["deletionTimestamp"] == "2026-01-01T00:00:05Z"

    fake.finish_deletion("a")
    assert fake.objects(ObjectKind.POD) == {}


@pytest.mark.parametrize(("second", "want"), [(9, 5), (1, 1), (None, 5)])
async def test_a_second_deletion_only_shortens(second, want):
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))
    fake.set_pod_status("a", {"phase": "Running"})
    await fake.delete(ObjectKind.POD, "a", uid=None, grace_seconds=5)

    await fake.delete(ObjectKind.POD, "a", uid=None, grace_seconds=second)

    assert fake.objects(ObjectKind.POD)["a"]["metadata"]["deletionGracePeriodSeconds"] == want


async def test_grace_zero_removes_a_running_pod_at_once():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))
    fake.set_pod_status("a", {"phase": "Running"})

    await fake.delete(ObjectKind.POD, "a", uid=None, grace_seconds=0)

    assert fake.objects(ObjectKind.POD) == {}


async def test_nothing_finishes_a_deletion_that_has_not_begun():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))

    with pytest.raises(InvariantViolationError):
        fake.finish_deletion("a")


async def test_finalizers_hold_an_object():
    fake = FakeCluster()
    await fake.create(ObjectKind.BENCHMARK_RUN, pod("run", finalizers=["foregroundDeletion"]))

    await fake.delete(ObjectKind.BENCHMARK_RUN, "run", uid=None, grace_seconds=None)
    assert "deletionTimestamp" in fake.objects(ObjectKind.BENCHMARK_RUN)["run"]["metadata"]

    fake.finish_deletion("run", kind=ObjectKind.BENCHMARK_RUN)
    assert fake.objects(ObjectKind.BENCHMARK_RUN) == {}


async def test_a_pod_may_vanish():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a"))

    fake.remove(ObjectKind.POD, "a")

    assert await told(fake, "100") == [("ADDED", "a"), ("DELETED", "a")]


async def test_garbage_goes_only_when_asked():
    fake = FakeCluster()
    run = await fake.create(ObjectKind.BENCHMARK_RUN, pod("run"))
    owner = [{"uid": run["metadata"]["uid"], "kind": "BenchmarkRun", "name": "run"}]
    secret = await fake.create(ObjectKind.SECRET, pod("s", ownerReferences=owner))
    below = [{"uid": secret["metadata"]["uid"], "kind": "Secret", "name": "s"}]
    await fake.create(ObjectKind.POD, pod("a", ownerReferences=below))
    await fake.create(ObjectKind.POD, pod("b"))

    assert fake.collect_garbage() == ()
    await fake.delete(ObjectKind.BENCHMARK_RUN, "run", uid=None, grace_seconds=None)
    assert set(fake.objects(ObjectKind.POD)) == {"a", "b"}
    assert fake.collect_garbage() == ("a", "s")
    assert set(fake.objects(ObjectKind.POD)) == {"b"}


async def test_a_running_orphan_terminates_gracefully():
    fake = FakeCluster()
    await fake.create(ObjectKind.POD, pod("a", ownerReferences=[{"uid": "gone"}]))
    fake.set_pod_status("a", {"phase": "Running"})

    assert fake.collect_garbage() == ("a",)
    assert "deletionTimestamp" in fake.objects(ObjectKind.POD)["a"]["metadata"]


async def test_edits_of_the_spec_are_new_generations():
    fake = FakeCluster()
    await fake.create(
        ObjectKind.BENCHMARK_RUN, {"metadata": {"name": "r"}, "spec": {"suspend": False}}
    )

    edited = fake.edit(ObjectKind.BENCHMARK_RUN, "r", {"spec": {"suspend": True}})
    labelled = fake.edit(ObjectKind.BENCHMARK_RUN, "r", {"metadata": {"labels": {"a": "b"}}})

    assert edited["spec"] == {"suspend": True}
    assert (edited["metadata"]["generation"], labelled["metadata"]["generation"]) == (2, 2)


async def test_the_creator_cannot_write_the_status():
    fake = FakeCluster()

    run = await fake.create(ObjectKind.BENCHMARK_RUN, {**pod("r"), "status": {"score": "1"}})

    assert "status" not in run


async def test_the_stored_object_is_not_the_callers():
    fake = FakeCluster()
    manifest = pod("a", labels={"x": "1"})
    await fake.create(ObjectKind.POD, manifest)

    manifest["metadata"]["labels"]["x"] = "2"

    assert len((await fake.list(ObjectKind.POD, "x=1")).items) == 1
