import json

from securebench.analysis.comparison import noise
from securebench.analysis.results import LAUNCHES, read_results
from securebench.protocol.volume import SUMMARY
from support.result_folders import result_folder, result_line


def launch(node, *, end="captured", ran=10.0, reason=""):
    main = {"name": "harness", "started_at": 5.0, "finished_at": 5.0 + ran}
    evidence = {"node": node, "created_at": 1.0, "scheduled_at": 2.0, "containers": [main]}
    return {"role": "harness", "begun_at": 1.0, "end": end, "reason": reason, "evidence": evidence}


def test_noise_of_launches(tmp_path):
    folder = result_folder(tmp_path, [result_line("a")])
    launches = [launch("n1"), launch("n2", ran=30.0), launch("n2", end="lost", reason="pod_lost")]
    (folder / LAUNCHES).write_text(json.dumps({"task_id": "a", "launches": launches}) + "\n")
    found = noise(read_results(folder, "r"))
    assert found.notes == ("launches lost: 1 of 3 (pod_lost 1)",)
    assert [(node.name, node.launches, node.median) for node in found.nodes] == [
        ("n1", 1, 10.0),
        ("n2", 2, 20.0),
    ]
    stages = {stage.name: (stage.launches, stage.median, stage.most) for stage in found.stages}
    assert stages["ran"] == (3, 10.0, 30.0)
    assert stages["images and containers"] == (3, 3.0, 3.0)


def test_noise_of_records_alone(tmp_path):
    lines = [
        result_line("a", launches=2),
        result_line("b", launches=3, producer_metadata={"memory_kills": 2}),
        result_line("c", passed=None, launches=1, outcome="infrastructure"),
    ]
    found = noise(read_results(result_folder(tmp_path, lines), "r"))
    assert (found.repeated, found.killed) == (1, 1)
    assert found.notes == found.stages == found.nodes == ()


def test_launches_that_met_a_limit_are_named_without_launches(tmp_path):
    folder = result_folder(tmp_path, [result_line("a")])
    counts = {"cpu_throttled": 1, "near_memory_limit": 2}
    (folder / SUMMARY).write_text(json.dumps({"noisy_launches": counts}))
    (note,) = noise(read_results(folder, "r")).notes
    assert note.endswith(" met a limit: cpu_throttled 1, near_memory_limit 2")
