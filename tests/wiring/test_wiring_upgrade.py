"""Runs that an earlier version began, and this one takes up or ends."""

import json

import jsonschema
import pytest

from support.operator_world import World, opened
from support.recorded import begin_recorded, read_records, recorded_ends
from support.records import SCHEMA


@pytest.fixture
def world(tmp_path):
    with opened(World, tmp_path) as made:
        yield made


def without_times(record):
    return {key: value for key, value in record.items() if key != "timing"}


def test_a_run_of_an_earlier_version_ends_with_the_records_that_it_would_have_had(world):
    uid = begin_recorded(world, "verifier-2")
    before = world.pods()
    world.observe(None)
    assert world.pods() == before
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    want = recorded_ends("verifier-2")
    assert [without_times(each) for each in records] == [without_times(each) for each in want]
    assert records[0] == want[0]


def test_a_run_of_a_version_that_graded_otherwise_waits_for_it(world):
    uid = begin_recorded(world, "verifier-1")
    journal = (world.root / "runs" / uid / "journal.jsonl").read_bytes()
    before = world.pods()
    world.observe(None)
    world.wait(300)
    said = world.condition()
    assert (said["status"], said["reason"]) == ("Unknown", "Internal")
    assert "install that version again, or set spec.cancel" in said["message"]
    assert (world.root / "runs" / uid / "journal.jsonl").read_bytes() == journal
    assert world.pods() == before


@pytest.mark.parametrize("mode", ["Immediate", "Graceful"])
def test_a_run_of_a_version_that_graded_otherwise_ends_with_a_record_for_each_attempt(mode, world):
    uid = begin_recorded(world, "verifier-1")
    world.observe(None)
    world.edit(cancel=mode)
    world.wait(70)
    said = world.condition()
    assert (said["status"], said["reason"]) == ("False", "Cancelled")
    assert "is not the one it was started with" in said["message"]
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    want = recorded_ends("verifier-1")
    assert records[0] == want[0]
    assert [each["task_id"] for each in records] == [each["task_id"] for each in want]
    ends = [(each["outcome"], each.get("failure_phase")) for each in records]
    assert ends == [
        ("scored", None),
        ("cancelled", "verification"),
        ("cancelled", "producer"),
        ("cancelled", "queued"),
    ]
    for record, other in zip(records, want, strict=True):
        assert record is records[0] or jsonschema.validate(record, SCHEMA) is None
        for field in ("verifier_version", "pack_digest", "harness_digest", "digests"):
            assert without_images(record)[field] == without_images(other)[field]
    assert records[1]["candidate_text"] == want[1]["candidate_text"] == "B"
    status = world.run()["status"]
    assert (status["tasks"]["total"], status["tasks"]["cancelled"]) == (4, 3)
    assert world.condition("ResultsSealed")["status"] == "True"
    assert world.pods() == []
    assert len(read_records(world.root / "published" / uid / "candidates.jsonl")) == 4


def test_a_run_whose_pack_this_version_refuses_keeps_the_records_that_it_has(world):
    uid = begin_recorded(world, "verifier-1")
    (tasks,) = (world.root / "packs/.content").glob("*/tasks.jsonl")
    tasks.write_text("[]\n")
    world.observe(None)
    world.wait(5)
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "PackInvalid")
    assert world.condition("ResultsSealed")["status"] == "True"
    folder = world.root / "runs" / uid
    assert read_records(folder / "candidates.jsonl") == recorded_ends("verifier-1")[:1]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["total"], summary["passed"]) == (1, 1)
    assert len(read_records(world.root / "published" / uid / "candidates.jsonl")) == 1
    assert world.pods() == []
    world.restart()
    world.observe(None)
    assert world.condition()["reason"] == "PackInvalid"


def test_a_run_whose_attempts_this_version_does_not_know_can_be_ended(world, monkeypatch):
    uid = begin_recorded(world, "verifier-1")
    monkeypatch.setattr("securebench.run.plan.build.selected", lambda *_: (0,))
    world.observe(None)
    world.edit(cancel="Immediate")
    world.wait(70)
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "Cancelled")
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    assert records == recorded_ends("verifier-1")[:1]
    assert world.pods() == []


def without_images(record):
    return record | {"digests": record["digests"] | {"images": {}}}
