import asyncio
from collections import Counter
from pathlib import Path

import pytest
import yaml

from bench.floor import LABEL, SHAPES, Floor
from securebench.cluster.port import ObjectKind
from support.fake_cluster import FakeCluster

IMAGE = "python:3.11-slim"
GOLDEN = Path(__file__).parents[2] / "golden" / "manifests" / "text_harness.yaml"

WANT_CONTAINERS = {
    "one": [("h", 0)],
    "two": [("h", 0), ("v", 0)],
    "sidecar": [("h", 1), ("v", 0)],
    "sidecar+isolated": [("h", 1), ("v", 0)],
    "terminal": [("h", 1), ("v", 1)],
    "terminal+isolated": [("h", 1), ("v", 1)],
    "code": [("h", 1), ("v", 2)],
    "code+isolated": [("h", 1), ("v", 2)],
}


class Node(FakeCluster):
    """A cluster whose Pods end as soon as they are there."""

    def __init__(self, phase="Succeeded"):
        super().__init__()
        self.phase = phase
        self.bodies = []
        self.going = 0
        self.most = 0

    async def create(self, kind, manifest):
        made = await super().create(kind, manifest)
        self.bodies.append(manifest)
        self.going += 1
        self.most = max(self.most, self.going)
        name = manifest["metadata"]["name"]
        asyncio.get_running_loop().call_later(0.01, self.end, name)
        return made

    def end(self, name):
        self.going -= 1
        self.set_pod_status(name, {"phase": self.phase})


def run(node, shape, tasks=5, parallelism=2):
    return asyncio.run(Floor(node, SHAPES[shape], IMAGE).run(tasks, parallelism))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_has_the_pods_of_its_shape(shape):
    node = Node()
    run(node, shape, tasks=1)
    found = [
        (body["metadata"]["name"].split("-")[2], len(body["spec"]["initContainers"]))
        for body in node.bodies
    ]
    assert found == WANT_CONTAINERS[shape]
    images = {
        each["image"]
        for body in node.bodies
        for each in (*body["spec"]["initContainers"], *body["spec"]["containers"])
    }
    assert images == {IMAGE}


def test_an_isolated_floor_has_what_isolates_the_pods_of_a_launch():
    node = Node()
    run(node, "terminal+isolated", tasks=1)
    golden = yaml.safe_load(GOLDEN.read_text())["spec"]
    for body in node.bodies:
        spec = body["spec"]
        assert spec["hostUsers"] is False
        assert spec["securityContext"] == golden["securityContext"]
        (main,), (want,) = spec["containers"], golden["containers"]
        assert main["securityContext"] == want["securityContext"]
        assert len(main["volumeMounts"]) - 1 == len(want["volumeMounts"])
        assert len(spec["initContainers"][0]["volumeMounts"]) == 2


def test_as_many_are_in_flight_as_wanted_and_none_is_left():
    node = Node()
    found = run(node, "two")
    assert node.most == 2
    assert node.objects(ObjectKind.POD) == {}
    assert found.seconds >= 3 * 2 * 0.01
    # Two creates for each of five tasks; the watch is under way before the first is sent or not.
    assert found.requests - 10 in {0, 2}


def test_labels_name_the_run_alone():
    """A label of its own for each Pod would be an identity of its own to a network plugin."""
    node = Node()
    run(node, "two")
    assert len(Counter(str(body["metadata"]["labels"]) for body in node.bodies)) == 1
    assert set(node.bodies[0]["metadata"]["labels"]) == {LABEL}


def test_a_pod_that_fails_ends_the_measurement():
    node = Node("Failed")
    with pytest.raises(SystemExit, match="of the floor failed"):
        run(node, "two")
    assert node.objects(ObjectKind.POD) == {}
