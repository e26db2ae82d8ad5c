"""The journal keeps how the Pod of a lost launch was, and the operator's memory does not."""

import json

from securebench.cluster.port import ObjectKind
from securebench.controller.volume.journal import read_entries
from securebench.run.state.entries import LaunchLost
from support.build import DISRUPTED, ended, pod_status, question, write_pack


def test_a_lost_launch_has_its_evidence_on_the_disk(world):
    write_pack(world.root / "packs/smoke", [question("a")])
    uid = world.apply(isolation={"require": "Declared"})
    world.wait(5)
    (pod,) = world.pods()
    status = pod_status("Failed", ended("harness", 137), reason="Evicted", conditions=[DISRUPTED])
    world.cluster.edit(ObjectKind.POD, pod, {"spec": {"nodeName": "node-9"}, "status": status})
    world.wait(5)

    data = (world.root / "runs" / uid / "journal.jsonl").read_bytes()
    lines = [json.loads(line[18:]) for line in data.splitlines()]
    (lost,) = (line["entry"] for line in lines if line["type"] == "LaunchLost")
    evidence = lost["evidence"]
    assert (evidence["pod"], evidence["node"], evidence["reason"]) == (pod, "node-9", "Evicted")
    assert evidence["containers"][0]["exit_code"] == 137
    (entry,) = (one for one in read_entries(data, uid).entries if isinstance(one, LaunchLost))
    assert entry.evidence is None
