import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.leadership import FencedCluster
from securebench.errors import LeaseOverdueError
from support.build import HARNESS, raw_pod
from support.fake_cluster import FakeCluster

POD = raw_pod(HARNESS)
NAME = POD["metadata"]["name"]


class Fence:
    def __init__(self):
        self.is_open = True

    def require(self):
        if not self.is_open:
            raise LeaseOverdueError("the Lease was not renewed in time")


WRITES = {
    "create": lambda cluster: cluster.create(ObjectKind.POD, raw_pod(HARNESS)),
    "replace": lambda cluster: cluster.replace(
        ObjectKind.POD, {"metadata": {"name": NAME, "resourceVersion": "1"}}
    ),
    "delete": lambda cluster: cluster.delete(ObjectKind.POD, NAME, uid=None, grace_seconds=0),
    "delete_collection": lambda cluster: cluster.delete_collection(ObjectKind.POD, "", "", "100"),
    "patch": lambda cluster: cluster.patch(ObjectKind.POD, NAME, {}),
    "patch_status": lambda cluster: cluster.patch_status(ObjectKind.POD, NAME, {}),
}
READS = {
    "get": lambda cluster: cluster.get(ObjectKind.POD, NAME),
    "list": lambda cluster: cluster.list(ObjectKind.POD, ""),
}


@pytest.mark.parametrize("verb", [*WRITES, *READS])
async def test_the_leaders_requests_pass(verb):
    cluster = FakeCluster()
    await (WRITES | READS)[verb](FencedCluster(cluster, Fence().require))
    assert [call.verb for call in cluster.calls] == [verb]


@pytest.mark.parametrize("verb", WRITES)
async def test_nobody_elses_writes_pass(verb):
    cluster, fence = FakeCluster(), Fence()
    fenced = FencedCluster(cluster, fence.require)
    fence.is_open = False
    with pytest.raises(LeaseOverdueError):
        await WRITES[verb](fenced)
    assert cluster.calls == []


async def test_reading_needs_no_leadership():
    cluster, fence = FakeCluster(watch_waits=False), Fence()
    fenced = FencedCluster(cluster, fence.require)
    fence.is_open = False
    for read in READS.values():
        await read(fenced)
    assert [event async for event in fenced.watch(ObjectKind.POD, "", "")] == []
    assert await fenced.signing_keys() == cluster.keys
    assert fenced.requests == cluster.requests


def test_every_method_that_writes_is_fenced():
    public = {name for name in vars(FencedCluster) if not name.startswith("_")}
    assert public == {*WRITES, *READS, "watch", "signing_keys", "requests"}
