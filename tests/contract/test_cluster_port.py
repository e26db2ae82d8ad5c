"""What the port promises, of the fake and of a real API server alike."""

import asyncio
import hashlib
import ipaddress
import json
from contextlib import aclosing

import pytest

from securebench.cluster import client
from securebench.cluster.client import connect
from securebench.cluster.podexec import run_exec
from securebench.cluster.port import (
    AlreadyExists,
    Forbidden,
    ObjectKind,
    QuotaExceeded,
    WatchExpired,
)
from securebench.controller.context import RunObject
from securebench.controller.events import event, event_name, series
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.names import QUEUE_LABEL, ROLE_LABEL
from securebench.run.decide.notices import Notice
from securebench.run.observe.pods import pod_view
from securebench.run.observe.waiting import pod_waiting
from securebench.run.plan.model import Role

IMAGE = "python:3.11-slim"
LONG_SECONDS = 20


def pod(name, labels=None, **container):
    """Return a Pod that no scheduler touches until its gate is opened."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "schedulingGates": [{"name": "securebench.dev/contract"}],
            "terminationGracePeriodSeconds": 3,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "main", "image": IMAGE, "command": ["sleep", "600"], **container}
            ],
        },
    }


def names(listing):
    return [item["metadata"]["name"] for item in listing.items]


async def following(watch, count):
    """Return the next changes of a watch without bookmarks."""
    events = []
    async with asyncio.timeout(LONG_SECONDS):
        while len(events) < count:
            event = await anext(watch)
            if event.type != "BOOKMARK":
                events.append(event)
    return events


async def test_create_returns_what_is_stored(world):
    created = await world.cluster.create(ObjectKind.POD, pod("a", {"app": "x"}))

    assert created == await world.cluster.get(ObjectKind.POD, "a")
    meta = created["metadata"]
    assert meta["labels"] == {"app": "x"}
    assert meta["namespace"] == world.cluster.namespace
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert meta["creationTimestamp"].endswith("Z")
    assert created["status"]["phase"] == "Pending"


async def test_a_second_create_of_a_name_is_refused(world):
    first = await world.cluster.create(ObjectKind.POD, pod("a"))

    with pytest.raises(AlreadyExists) as caught:
        await world.cluster.create(ObjectKind.POD, pod("a", {"other": "x"}))

    assert caught.value.name == "a"
    assert await world.cluster.get(ObjectKind.POD, "a") == first


async def test_the_same_name_in_two_kinds(world):
    await world.cluster.create(
        ObjectKind.CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"k": "v"}}
    )
    await world.cluster.create(ObjectKind.SECRET, {"metadata": {"name": "a"}, "stringData": {}})

    assert (await world.cluster.get(ObjectKind.CONFIG_MAP, "a"))["data"] == {"k": "v"}
    assert await world.cluster.get(ObjectKind.POD, "a") is None


def lease(holder, **metadata):
    """Return a Lease; its times are those of a protobuf Timestamp with microseconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "operator", **metadata},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:05.250000Z",
        },
    }


async def test_a_lease_goes_to_who_replaces_it_first(world):
    read = await world.cluster.create(ObjectKind.LEASE, lease("a"))
    assert read["spec"] == lease("a")["spec"]
    meta = {key: read["metadata"][key] for key in ("resourceVersion", "uid")}

    taken = await world.cluster.replace(ObjectKind.LEASE, lease("b", **meta))
    late = await world.cluster.replace(ObjectKind.LEASE, lease("c", **meta))

    assert late is None
    assert taken["spec"]["holderIdentity"] == "b"
    assert taken["metadata"]["uid"] == read["metadata"]["uid"]
    assert taken["metadata"]["resourceVersion"] != meta["resourceVersion"]
    assert await world.cluster.get(ObjectKind.LEASE, "operator") == taken


async def test_a_lease_that_is_gone_is_replaced_by_who_forgets_its_uid(world):
    read = await world.cluster.create(ObjectKind.LEASE, lease("a"))
    await world.cluster.delete(ObjectKind.LEASE, "operator", uid=None, grace_seconds=None)

    meta = {key: read["metadata"][key] for key in ("resourceVersion", "uid")}
    assert await world.cluster.replace(ObjectKind.LEASE, lease("b", **meta)) is None
    assert await world.cluster.get(ObjectKind.LEASE, "operator") is None
    del meta["uid"]
    made = await world.cluster.replace(ObjectKind.LEASE, lease("b", **meta))
    assert made["metadata"]["uid"] != read["metadata"]["uid"]


async def test_a_deletion_spares_another_object_of_the_name(world):
    created = await world.cluster.create(ObjectKind.POD, pod("a"))

    assert not await world.cluster.delete(ObjectKind.POD, "a", uid="other", grace_seconds=None)
    assert await world.cluster.get(ObjectKind.POD, "a") == created


async def test_a_patch_spares_another_object_of_the_name(world):
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    created = await world.cluster.create(ObjectKind.CONFIG_MAP, body)

    def patch(uid):
        change = {"metadata": {"uid": uid}, "data": {"k": "new"}}
        return world.cluster.patch(ObjectKind.CONFIG_MAP, "a", change)

    assert not await patch("0b2f9a5e-8d3b-4b54-9b38-6a8d8d6f2f10")
    assert await world.cluster.get(ObjectKind.CONFIG_MAP, "a") == created
    assert await patch(created["metadata"]["uid"])
    assert (await world.cluster.get(ObjectKind.CONFIG_MAP, "a"))["data"] == {"k": "new"}


async def test_a_deletion_of_the_very_object(world):
    uid = (await world.cluster.create(ObjectKind.POD, pod("a")))["metadata"]["uid"]

    assert await world.cluster.delete(ObjectKind.POD, "a", uid=uid, grace_seconds=30)
    assert await world.cluster.get(ObjectKind.POD, "a") is None
    assert not await world.cluster.delete(ObjectKind.POD, "a", uid=uid, grace_seconds=None)
    assert not await world.cluster.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)


async def test_a_running_pod_is_deleted_with_grace(world):
    await world.cluster.create(ObjectKind.POD, pod("a"))
    await world.run_pod("a")

    assert await world.cluster.delete(ObjectKind.POD, "a", uid=None, grace_seconds=2)

    meta = (await world.cluster.get(ObjectKind.POD, "a"))["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 2
    assert meta["deletionTimestamp"].endswith("Z")
    with pytest.raises(AlreadyExists):
        await world.cluster.create(ObjectKind.POD, pod("a"))


async def test_the_pods_own_grace_period(world):
    await world.cluster.create(ObjectKind.POD, pod("a"))
    await world.run_pod("a")

    await world.cluster.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)

    meta = (await world.cluster.get(ObjectKind.POD, "a"))["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 3


async def test_many_are_deleted_as_they_were_at_a_moment(world):
    for name in ("a", "b", "c"):
        await world.cluster.create(ObjectKind.POD, pod(name, {"app": "x"}))
    await world.cluster.create(ObjectKind.POD, pod("other", {"app": "y"}))
    await world.cluster.create(ObjectKind.POD, pod("runs", {"app": "x"}))
    await world.run_pod("runs")
    moment = (await world.cluster.list(ObjectKind.POD, "")).resource_version
    await world.cluster.create(ObjectKind.POD, pod("later", {"app": "x"}))

    fields = "metadata.name!=b,status.phase!=Running"
    await world.cluster.delete_collection(ObjectKind.POD, "app in (x,z)", fields, moment)

    assert names(await world.cluster.list(ObjectKind.POD, "")) == ["b", "later", "other", "runs"]


async def test_what_changed_since_the_moment_is_deleted_all_the_same(world):
    """The moment chooses objects; it is no precondition of theirs."""
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    await world.cluster.create(ObjectKind.CONFIG_MAP, body)
    moment = (await world.cluster.list(ObjectKind.CONFIG_MAP, "")).resource_version
    await world.cluster.patch(ObjectKind.CONFIG_MAP, "a", {"data": {"k": "new"}})

    await world.cluster.delete_collection(
        ObjectKind.CONFIG_MAP, "", "metadata.name!=kube-root-ca.crt", moment
    )

    assert await world.cluster.get(ObjectKind.CONFIG_MAP, "a") is None


async def test_a_list_is_consistent_with_every_answer_before_it(world):
    for name in ("b", "a", "c"):
        await world.cluster.create(ObjectKind.POD, pod(name, {"app": "x"}))
    await world.cluster.delete(ObjectKind.POD, "b", uid=None, grace_seconds=0)
    last = await world.cluster.create(ObjectKind.POD, pod("d", {"app": "x"}))

    listing = await world.cluster.list(ObjectKind.POD, "app=x")

    assert names(listing) == ["a", "c", "d"]
    assert int(listing.resource_version) >= int(last["metadata"]["resourceVersion"])
    assert listing.items[2]["metadata"] == last["metadata"]
    assert all("kind" not in item for item in listing.items)


async def test_a_list_of_nothing(world):
    listing = await world.cluster.list(ObjectKind.NETWORK_POLICY, "app=none")

    assert listing.items == ()
    assert int(listing.resource_version) > 0


async def test_lists_of_many_pages(world, monkeypatch):
    monkeypatch.setattr(client, "_PAGE_ITEMS", 2)
    for n in range(5):
        await world.cluster.create(
            ObjectKind.CONFIG_MAP, {"metadata": {"name": f"m{n}", "labels": {"p": ""}}}
        )
    before = world.cluster.requests["list", ObjectKind.CONFIG_MAP]

    listing = await world.cluster.list(ObjectKind.CONFIG_MAP, "p")

    assert names(listing) == ["m0", "m1", "m2", "m3", "m4"]
    pages = world.cluster.requests["list", ObjectKind.CONFIG_MAP] - before
    assert pages == (3 if world.real else 1)


WANT_SELECTED = {
    "app=x": ["a", "b"],
    "app==x": ["a", "b"],
    "app!=x,app": ["c"],
    "app in (x,y)": ["a", "b", "c"],
    "app in (y)": ["c"],
    "app notin (x),app": ["c"],
    "app,!role": ["a", "c"],
    "app=x,role=h": ["b"],
    "app=z": [],
    "app=x,app=y": [],
}


async def test_selectors(world):
    await world.cluster.create(ObjectKind.POD, pod("a", {"app": "x"}))
    await world.cluster.create(ObjectKind.POD, pod("b", {"app": "x", "role": "h"}))
    await world.cluster.create(ObjectKind.POD, pod("c", {"app": "y"}))
    await world.cluster.create(ObjectKind.POD, pod("d"))

    got = {
        selector: names(await world.cluster.list(ObjectKind.POD, selector))
        for selector in WANT_SELECTED
    }

    assert got == WANT_SELECTED
    assert names(await world.cluster.list(ObjectKind.POD, "")) == ["a", "b", "c", "d"]


async def test_a_watch_tells_a_whole_life(world):
    version = (await world.cluster.list(ObjectKind.POD, "app=x")).resource_version
    await world.cluster.create(ObjectKind.POD, pod("a", {"app": "x"}))
    await world.cluster.create(ObjectKind.POD, pod("other"))
    await world.cluster.patch_status(ObjectKind.POD, "a", {"status": {"reason": "Testing"}})
    await world.cluster.delete(ObjectKind.POD, "a", uid=None, grace_seconds=None)

    async with aclosing(world.cluster.watch(ObjectKind.POD, "app=x", version)) as watch:
        events = await following(watch, 4)

    assert [event.type for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {event.object["metadata"]["name"] for event in events} == {"a"}
    assert events[0].object["status"].get("reason") is None
    assert events[1].object["status"]["reason"] == "Testing"
    assert events[2].object["metadata"]["deletionGracePeriodSeconds"] == 0
    assert events[3].object["status"]["reason"] == "Testing"
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


async def test_a_watch_hears_what_happens_while_it_is_open(world):
    version = (await world.cluster.list(ObjectKind.POD, "")).resource_version
    await world.cluster.create(ObjectKind.POD, pod("a"))

    async with aclosing(world.cluster.watch(ObjectKind.POD, "", version)) as watch:
        await following(watch, 1)
        await world.cluster.create(ObjectKind.POD, pod("b"))
        (event,) = await following(watch, 1)

    assert (event.type, event.object["metadata"]["name"]) == ("ADDED", "b")


async def test_a_watch_from_a_listing_repeats_nothing(world):
    await world.cluster.create(ObjectKind.POD, pod("a"))
    version = (await world.cluster.list(ObjectKind.POD, "")).resource_version
    await world.cluster.create(ObjectKind.POD, pod("b"))

    async with aclosing(world.cluster.watch(ObjectKind.POD, "", version)) as watch:
        (event,) = await following(watch, 1)

    assert event.object["metadata"]["name"] == "b"


async def test_a_watch_from_too_long_ago(world):
    """Events bypass the watch cache of the API server: etcd itself must have forgotten."""
    try:
        async with aclosing(world.cluster.watch(ObjectKind.EVENT, "", "1")) as watch:
            await following(watch, 1)
    except WatchExpired:
        return
    except TimeoutError:
        assert world.real
    pytest.skip("this young etcd has not been compacted yet")


async def test_status_patches_merge(world):
    created = await world.cluster.create(ObjectKind.POD, pod("a"))

    patched = await world.cluster.patch_status(
        ObjectKind.POD, "a", {"status": {"reason": "Testing", "message": "hello"}}
    )
    assert patched["metadata"]["uid"] == created["metadata"]["uid"]
    assert patched["status"]["message"] == "hello"
    assert await world.cluster.patch_status(ObjectKind.POD, "a", {"status": {"reason": None}})

    status = (await world.cluster.get(ObjectKind.POD, "a"))["status"]
    assert status["phase"] == "Pending"
    assert status["message"] == "hello"
    assert "reason" not in status


async def test_a_status_patch_cannot_change_the_spec(world):
    await world.cluster.create(ObjectKind.POD, pod("a"))
    patch = {"spec": {"activeDeadlineSeconds": 5}, "status": {"message": "hello"}}

    await world.cluster.patch_status(ObjectKind.POD, "a", patch)

    item = await world.cluster.get(ObjectKind.POD, "a")
    assert "activeDeadlineSeconds" not in item["spec"]
    assert item["status"]["message"] == "hello"


async def test_a_status_patch_without_a_change_is_no_change(world):
    await world.cluster.create(ObjectKind.POD, pod("a"))
    await world.cluster.patch_status(ObjectKind.POD, "a", {"status": {"message": "hello"}})
    before = await world.cluster.get(ObjectKind.POD, "a")

    assert await world.cluster.patch_status(ObjectKind.POD, "a", {"status": {"message": "hello"}})

    assert await world.cluster.get(ObjectKind.POD, "a") == before


async def test_a_status_patch_for_one_resource_version(world):
    """The same on the server for custom resources, whose strategy for a status drops the uid."""
    created = await world.cluster.create(ObjectKind.POD, pod("a"))
    version = created["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "status": {"message": "one"}}
    patched = await world.cluster.patch_status(ObjectKind.POD, "a", patch)
    assert patched["status"]["message"] == "one"
    with pytest.raises(TransientClusterError, match="the object has been modified"):
        await world.cluster.patch_status(ObjectKind.POD, "a", patch | {"status": {"message": "x"}})
    assert (await world.cluster.get(ObjectKind.POD, "a"))["status"]["message"] == "one"


async def test_the_status_of_what_is_gone(world):
    patch = {"status": {"message": "x"}}
    assert await world.cluster.patch_status(ObjectKind.POD, "none", patch) is None


async def test_a_service_gets_an_address(world):
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 8443}]},
    }
    created = await world.cluster.create(ObjectKind.SERVICE, manifest)

    assert ipaddress.ip_address(created["spec"]["clusterIP"])
    found = await world.cluster.get(ObjectKind.SERVICE, "a")
    assert found["spec"]["clusterIP"] == created["spec"]["clusterIP"]
    uid = created["metadata"]["uid"]
    assert await world.cluster.delete(ObjectKind.SERVICE, "a", uid=uid, grace_seconds=None)
    assert await world.cluster.get(ObjectKind.SERVICE, "a") is None


async def test_an_event_that_occurs_again_is_a_series(world):
    run = RunObject("nightly", "11111111-0000", world.cluster.namespace, 1, {})
    told = Notice("Wait", "Unschedulable", "0/1 nodes", is_warning=True, key="")
    body = event(run, told, "process", 1_767_225_600.5)
    name = event_name(run, told)
    made = await world.cluster.create(ObjectKind.EVENT, body)

    with pytest.raises(AlreadyExists):
        await world.cluster.create(ObjectKind.EVENT, body)
    assert await world.cluster.patch(ObjectKind.EVENT, name, series(3, 1_767_225_660.0))

    found = await world.cluster.get(ObjectKind.EVENT, name)
    assert (found["note"], found["eventTime"]) == (made["note"], "2026-01-01T00:00:00.500000Z")
    assert found["series"] == {"count": 3, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}


async def test_a_pod_in_a_queue_is_not_unschedulable(world):
    labels = {ROLE_LABEL: Role.HARNESS.value, QUEUE_LABEL: "team-a"}
    created = pod_view(await world.cluster.create(ObjectKind.POD, pod("a", labels)))

    assert (created.gates, created.queue) == (("securebench.dev/contract",), "team-a")
    assert created.unschedulable == ""
    assert created.scheduled_at is None
    assert pod_waiting(created, 0.0).message == "Waiting: 1 Pod in queue team-a"
    assert not created.disrupted


async def test_a_pod_that_a_queue_takes_back_says_so(world):
    await world.cluster.create(ObjectKind.POD, pod("a", {ROLE_LABEL: Role.HARNESS.value}))
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": "WorkloadEvicted",
        "message": "Preempted",
    }
    status = {"status": {"conditions": [condition]}}
    assert await world.cluster.patch_status(ObjectKind.POD, "a", status)

    found = pod_view(await world.cluster.get(ObjectKind.POD, "a"))
    assert (found.disrupted, found.taken_back) == (True, "WorkloadEvicted: Preempted")


async def test_a_pod_whose_gate_is_opened_is_scheduled(world):
    await world.cluster.create(ObjectKind.POD, pod("a", {ROLE_LABEL: Role.HARNESS.value}))
    await world.run_pod("a")

    found = pod_view(await world.cluster.get(ObjectKind.POD, "a"))
    assert (found.gates, found.facts.node != "") == ((), True)


async def test_a_patch_of_what_is_gone(world):
    assert not await world.cluster.patch(ObjectKind.EVENT, "a", series(3, 1.0))


async def test_signing_keys_are_a_key_set(world):
    keys = json.loads(await world.cluster.signing_keys())["keys"]

    assert keys
    assert all({"kty", "kid", "alg"} <= key.keys() for key in keys)


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
BOUNDS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "bounds"},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]},
}
TOO_MUCH = {"resources": {"limits": {"memory": "128Mi"}}}
REFUSALS = {
    "limit_range": ({"objects": [BOUNDS]}, pod("b", **TOO_MUCH), "maximum memory usage per"),
    "pod_security": (
        {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        pod("b"),
        'violates PodSecurity "restricted:latest"',
    ),
    "quota_must_specify": (
        {"objects": [{**QUOTA, "spec": {"hard": {"limits.memory": "1Gi"}}}]},
        pod("b"),
        "must specify limits.memory for: main",
    ),
    "invalid": ({}, pod("UPPER"), "RFC 1123"),
}


@pytest.mark.parametrize("name", sorted(REFUSALS))
async def test_refusals_by_admission_wait_for_whoever_can_mend_them(refusing, name):
    settings, manifest, want = REFUSALS[name]

    async with refusing(name, **settings) as cluster:
        with pytest.raises(PermanentClusterError, match=want) as caught:
            await cluster.create(ObjectKind.POD, manifest)
        assert isinstance(caught.value, Forbidden) is (name != "invalid")
        assert (await cluster.list(ObjectKind.POD, "")).items == ()


async def test_a_full_quota_is_passing(refusing):
    quota = {**QUOTA, "spec": {"hard": {"count/pods": "0"}}}

    async with refusing("quota_exceeded", objects=[quota]) as cluster:
        with pytest.raises(QuotaExceeded, match="exceeded quota: few"):
            await cluster.create(ObjectKind.POD, pod("a"))


@pytest.mark.cluster
async def test_a_full_quota_does_not_hide_that_the_object_exists(namespaces):
    quota = {**QUOTA, "spec": {"hard": {"count/pods": "1"}}}

    async with connect(namespaces(objects=[quota])) as cluster:
        await cluster.create(ObjectKind.POD, pod("a"))
        with pytest.raises(AlreadyExists):
            await cluster.create(ObjectKind.POD, pod("a"))
        with pytest.raises(QuotaExceeded):
            await cluster.create(ObjectKind.POD, pod("b"))


@pytest.mark.cluster
async def test_a_token_that_is_refused_is_passing(namespaces, edit_kubeconfig):
    namespace = namespaces()
    edit_kubeconfig(user={"token": "not.a.token"})
    async with connect(namespace) as cluster:
        with pytest.raises(TransientClusterError, match="401") as caught:
            await cluster.create(ObjectKind.POD, pod("a"))
        assert not isinstance(caught.value, QuotaExceeded)


@pytest.mark.cluster
async def test_what_an_account_may_not_do_is_forbidden(nobody):
    async with connect(nobody) as cluster:
        with pytest.raises(Forbidden, match='cannot list resource "pods"'):
            await cluster.list(ObjectKind.POD, "")
        with pytest.raises(Forbidden, match='cannot create resource "pods"'):
            await cluster.create(ObjectKind.POD, pod("a"))
        with pytest.raises(PermanentClusterError, match="cannot watch"):
            await anext(cluster.watch(ObjectKind.POD, "", "1"))
        with pytest.raises(PermanentClusterError, match="refused"):
            await run_exec(cluster, "a", "main", ["true"], None, ignore)


@pytest.mark.cluster
async def test_a_server_that_is_not_there_is_passing(edit_kubeconfig):
    edit_kubeconfig(server="https://127.0.0.1:1")

    async with connect("default") as cluster:
        with pytest.raises(TransientClusterError, match="no connection"):
            await cluster.get(ObjectKind.POD, "a")


async def ignore(_piece):
    """Drop output."""


async def test_exec_carries_binary_streams_both_ways(running_pod):
    cluster, name = running_pod
    data = bytes(range(256)) * 4096 * 5
    out = bytearray()

    async def stdin():
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    async def stdout(piece):
        out.extend(piece)

    async with asyncio.timeout(LONG_SECONDS):
        summed = await run_exec(cluster, name, "main", ["sha256sum"], stdin(), stdout)
        assert summed.exit_code == 0
        assert out[:64].decode() == hashlib.sha256(data).hexdigest()
        out.clear()
        echoed = await run_exec(cluster, name, "main", ["cat"], stdin(), stdout)

    assert echoed == (0, b"")
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


async def test_exec_reports_exit_code_and_stderr(running_pod):
    cluster, name = running_pod

    result = await run_exec(
        cluster, name, "main", ["sh", "-c", "echo oops >&2; exit 7"], None, ignore
    )

    assert result == (7, b"oops\n")


async def test_exec_of_what_is_not_there(running_pod):
    cluster, name = running_pod

    with pytest.raises(PermanentClusterError, match="executable file not found"):
        await run_exec(cluster, name, "main", ["nonesuch"], None, ignore)
    with pytest.raises(PermanentClusterError, match="pods/none/exec refused"):
        await run_exec(cluster, "none", "main", ["true"], None, ignore)
    with pytest.raises(PermanentClusterError, match="refused"):
        await run_exec(cluster, name, "none", ["true"], None, ignore)


async def test_a_slow_reader_slows_the_command_down(running_pod):
    """What the command may run ahead is bounded by the buffers on the way, not by its output."""
    cluster, name = running_pod
    script = "head -c 67108864 /dev/zero && touch /tmp/done"
    heard, go_on = asyncio.Event(), asyncio.Event()

    async def stdout(_piece):
        heard.set()
        await go_on.wait()

    async def is_done():
        argv = ["test", "-e", "/tmp/done"]
        return (await run_exec(cluster, name, "main", argv, None, ignore)).exit_code == 0

    running = asyncio.create_task(
        run_exec(cluster, name, "main", ["sh", "-c", script], None, stdout)
    )
    async with asyncio.timeout(LONG_SECONDS):
        await heard.wait()
        await asyncio.sleep(2)
        assert not await is_done()
        go_on.set()
        assert (await running).exit_code == 0
        assert await is_done()
