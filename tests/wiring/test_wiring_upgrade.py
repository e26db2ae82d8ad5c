"""Runs that an operator of another version began, and this one takes up or ends."""

import json

import jsonschema
import pytest

from support.begun_run import OTHER_VERIFIER, begin_run, read_records
from support.operator_world import World, opened
from support.records import SCHEMA


@pytest.fixture
def world(tmp_path):
    with opened(World, tmp_path) as made:
        yield made


def test_a_run_of_a_version_that_grades_alike_is_taken_up(world):
    uid = begin_run(world)
    before = world.pods()
    world.observe(None)
    assert world.pods() == before
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    assert [(each["task_id"], each["outcome"]) for each in records] == [
        (name, "scored") for name in "abcd"
    ]


def test_a_run_of_a_version_that_graded_otherwise_waits_for_it(world):
    uid = begin_run(world, OTHER_VERIFIER)
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
    uid = begin_run(world, OTHER_VERIFIER)
    (first,) = read_records(world.root / "runs" / uid / "candidates.jsonl")
    world.observe(None)
    world.edit(cancel=mode)
    world.wait(70)
    said = world.condition()
    assert (said["status"], said["reason"]) == ("False", "Cancelled")
    assert "is not the one it was started with" in said["message"]
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    assert records[0] == first
    assert [each["task_id"] for each in records] == list("abcd")
    ends = [(each["outcome"], each.get("failure_phase")) for each in records]
    assert ends == [
        ("scored", None),
        ("cancelled", "verification"),
        ("cancelled", "producer"),
        ("cancelled", "queued"),
    ]
    for record in records:
        assert record is records[0] or jsonschema.validate(record, SCHEMA) is None
        assert record["verifier_version"] == OTHER_VERIFIER
        for field in ("pack_digest", "harness_digest"):
            assert record[field] == first[field]
    assert records[1]["candidate_text"] == "B"
    status = world.run()["status"]
    assert (status["tasks"]["total"], status["tasks"]["cancelled"]) == (4, 3)
    assert world.condition("ResultsSealed")["status"] == "True"
    assert world.pods() == []
    assert len(read_records(world.root / "published" / uid / "candidates.jsonl")) == 4


def test_a_run_whose_pack_this_version_refuses_keeps_the_records_that_it_has(world):
    uid = begin_run(world, OTHER_VERIFIER)
    before = read_records(world.root / "runs" / uid / "candidates.jsonl")
    (tasks,) = (world.root / "packs/.content").glob("*/tasks.jsonl")
    tasks.write_text("[]\n")
    world.observe(None)
    world.wait(5)
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "PackInvalid")
    assert world.condition("ResultsSealed")["status"] == "True"
    folder = world.root / "runs" / uid
    assert read_records(folder / "candidates.jsonl") == before
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["total"], summary["passed"]) == (1, 1)
    assert len(read_records(world.root / "published" / uid / "candidates.jsonl")) == 1
    assert world.pods() == []
    world.restart()
    world.observe(None)
    assert world.condition()["reason"] == "PackInvalid"


def test_a_run_whose_attempts_this_version_does_not_know_can_be_ended(world, monkeypatch):
    uid = begin_run(world, OTHER_VERIFIER)
    before = read_records(world.root / "runs" / uid / "candidates.jsonl")
    monkeypatch.setattr("securebench.run.plan.build.selected", lambda *_: (0,))
    world.observe(None)
    world.edit(cancel="Immediate")
    world.wait(70)
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "Cancelled")
    records = read_records(world.root / "runs" / uid / "candidates.jsonl")
    assert records == before
    assert world.pods() == []
