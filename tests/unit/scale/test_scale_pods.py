"""Simulated Pods and the bare client, on the fake cluster."""

import asyncio
import io
import json
from contextlib import suppress
from hashlib import sha256

from scale.bare import BareClient, again
from scale.kubelet import Kubelet, dated, left_behind
from scale.sessions import most_in_flight
from securebench.cluster.port import ObjectKind
from securebench.names import MEMBERS_ANNOTATION, RUN_UID_LABEL
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import LaunchKey, Role, pod_name
from support.build import pod_status, raw_pod, running
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID

HARNESSES = [LaunchKey(task, 1, Role.HARNESS, 1) for task in range(3)]
VERIFIER = LaunchKey(0, 1, Role.VERIFIER, 1)
MEMBERS = "0-1-1 1-1-1 2-1-1"


def recorded():
    """Return the Pods of a run as its API server showed them: three agents, one verifier."""
    pods = [raw_pod(each) for each in HARNESSES]
    verifier = raw_pod(VERIFIER)
    verifier["metadata"]["annotations"][MEMBERS_ANNOTATION] = MEMBERS
    return [*pods, verifier]


class Scheduled(FakeCluster):
    """A cluster whose Pods run as soon as they are there; knows in which order things happened."""

    def __init__(self):
        super().__init__()
        self.story = []
        self.most = 0

    async def create(self, kind, manifest):
        made = await super().create(kind, manifest)
        name = manifest["metadata"]["name"]
        self.story.append(("created", name))
        self.most = max(self.most, len(self.objects(ObjectKind.POD)))
        main = "verifier" if "v" in name.rsplit("-", 1)[1] else "harness"
        self.set_pod_status(name, pod_status("Running", running("courier"), running(main)))
        return made

    async def delete(self, kind, name, *, uid, grace_seconds):
        self.story.append(("deleted", name))
        return await super().delete(kind, name, uid=uid, grace_seconds=grace_seconds)


async def replay(root, parallelism, *, hold=0):
    cluster, log = Scheduled(), io.StringIO()
    following = asyncio.create_task(Kubelet(cluster, root, 0.0, hold, log).follow())
    await BareClient(cluster, parallelism).replay(recorded(), 4.0)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    return cluster, [json.loads(line) for line in log.getvalue().splitlines()]


def test_every_pod_is_created_again_and_deleted_the_verifier_after_its_agents(tmp_path):
    cluster, _ = asyncio.run(replay(tmp_path, 2))
    verifier = pod_name(RUN_UID, VERIFIER)
    agents = {pod_name(RUN_UID, each) for each in HARNESSES}
    begun = cluster.story.index(("created", verifier))
    assert {name for what, name in cluster.story[:begun] if what == "deleted"} == agents
    assert cluster.story[-1] == ("deleted", verifier)
    assert not cluster.objects(ObjectKind.POD)


def test_only_so_many_agents_run_at_once(tmp_path):
    cluster, _ = asyncio.run(replay(tmp_path, 2))
    assert cluster.most == 2


def test_pods_are_held_until_enough_of_them_run(tmp_path):
    cluster, events = asyncio.run(replay(tmp_path, 3, hold=3))
    assert cluster.most == 3
    assert most_in_flight(events) == 3
    assert ["created" in each for each in events[:3]] == [True] * 3


def test_a_copy_belongs_to_nobody_and_to_no_node():
    pod = raw_pod(HARNESSES[0], nodeName="node-1", restartPolicy="Never")
    found = again(pod, "bare-1")
    assert found["spec"] == {"restartPolicy": "Never"}
    assert found["metadata"]["labels"][RUN_UID_LABEL] == "bare-1"
    assert not {"ownerReferences", "uid"} & found["metadata"].keys()


def test_a_pod_ends_with_what_its_courier_says_at_the_time_that_it_did(tmp_path):
    view = pod_view(raw_pod(HARNESSES[0]))
    status = dated(left_behind(tmp_path, RUN_UID, view), 1_800_000_000, 1_800_000_002)
    seen = pod_view(raw_pod(HARNESSES[0], status))
    assert (seen.phase, seen.facts.started_at, seen.facts.finished_at) == (
        "Succeeded",
        1_800_000_000,
        1_800_000_002,
    )
    text = (tmp_path / "runs" / RUN_UID).rglob("candidate.txt")
    sealed = json.loads(seen.containers["courier"].terminated.message)
    assert [f"sha256:{sha256(each.read_bytes()).hexdigest()}" for each in text] == [
        sealed["digest"]
    ]
