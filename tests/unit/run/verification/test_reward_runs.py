"""A run of task folders: each script's reward is the score of its record, and the mean is shown."""

import asyncio
import base64
import hashlib
import json
from unittest import mock

import pytest

from securebench.run.plan.model import Role
from support.build import ended, inline, pod_status, seal_message, supervise_message
from support.harbor_packs import READY, folder_pack
from support.operator_world import World
from support.places import launch_folder
from support.records import VALIDATOR

COLLECTED = json.dumps({"v": 1, "stdout": {}, "stderr": {}, "kernel": "6.1"})
ARCHIVE = b"changes"
REWARDS = {
    "a-half": ("reward.txt", b"0.5\n"),
    "b-many": ("reward.json", b'{"reward": 2, "speed": -1}'),
    "c-none": ("reward.txt", None),
}


class FolderWorld(World):
    """Its agents hand in changes of a file system, its scripts leave what ``REWARDS`` says."""

    def ending(self, uid, launch):
        folder = self.root / launch_folder(uid, launch)
        if launch.role is Role.HARNESS:
            (folder / "candidate" / "root.tar").write_bytes(ARCHIVE)
            digest = f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}"
            seal = seal_message(file="root.tar", digest=digest)
            agent = ended("harness", 0, message=supervise_message())
            return pod_status("Succeeded", ended("courier", 0, message=seal), agent)
        name, content = REWARDS[sorted(REWARDS)[launch.task]]
        report = {"v": 1, "name": name, "problem": "", "message": "", "content": ""}
        if content is None:
            report["problem"] = "candidate_missing"
        else:
            report["content"] = base64.b64encode(content).decode()
        (folder / "verification" / "reward").write_text(json.dumps(report))
        check = ended("check", 1, message=supervise_message(exit_code=1))
        return pod_status("Failed", ended("courier", 0, message=COLLECTED), check)


@pytest.fixture
def world(tmp_path):
    with mock.patch.object(asyncio, "to_thread", inline):
        world = FolderWorld(tmp_path)
        yield world
        world.runner.run(world.supervisor.close())
        world.runner.close()


def test_a_run_of_task_folders_ends_with_rewards(world):
    folder_pack(world.root / "packs/folders", *REWARDS)
    uid = world.apply(pack={"volume": {"path": "folders"}})
    world.work(uid, rounds=30)
    assert world.condition()["reason"] == "Incomplete"
    folder = world.root / "runs" / uid
    records = list(map(json.loads, (folder / "candidates.jsonl").read_text().splitlines()))
    for record in records:
        VALIDATOR.validate(record)
        assert record["labels"]["grading"] == "reward-file-root"
    half, many, none = records
    assert (half["passed"], half["score"]) == (False, 0.5)
    assert (many["passed"], many["score"]) == (True, 2.0)
    assert many["verifier_metadata"]["rewards"] == {"reward": 2.0, "speed": -1.0}
    assert (none["outcome"], none["failure_reason"]) == ("verifier", "reward_missing")
    assert "score" not in none
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["score_sum"], summary["mean_reward"]["value"]) == (2.5, 1.25)
    score = world.run()["status"]["score"]
    assert (score["scoreSum"], score["meanReward"]["value"]) == ("2.5", "1.25")
    assert (score["passed"], score["verified"]) == (1, 2)


def test_a_separate_verifier_is_judged_by_artifacts_in_its_own_image(world):
    config = {
        **READY,
        "artifacts": ["report.json"],
        "verifier": {"environment": {"docker_image": "judge:1", "network_mode": "no-network"}},
    }
    folder_pack(world.root / "packs/folders", "a-half", config=config, **{"tests/test.sh": None})
    uid = world.apply(pack={"volume": {"path": "folders"}})
    world.work(uid, rounds=30)
    (line,) = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    record = json.loads(line)
    VALIDATOR.validate(record)
    assert (record["outcome"], record["score"]) == ("scored", 0.5)
    assert record["labels"]["grading"] == "reward-file-artifacts"
    assert record["verifier_metadata"]["artifacts"] == ["/logs/artifacts", "report.json"]
    assert record["verifier_metadata"]["image"] == "judge:1"
