"""The statement on a run: when it is written, and how a run ends that has no key to sign it."""

import json
import os

import pytest

from securebench.controller.volume import statement
from securebench.run.layout import run_folder
from support.operator_world import World, opened
from support.sealed_runs import OPERATOR, SIGNING, check, handed_on, place_key, run_to_end, told

STATEMENT = "statement.dsse.json"


@pytest.fixture
def world(tmp_path):
    with opened(World, tmp_path, signing=SIGNING, signing_root=tmp_path / "signing") as world:
        yield world


def signatures(root, uid):
    return json.loads((root / run_folder(uid) / STATEMENT).read_bytes())["signatures"]


def test_without_its_key_a_run_ends_well_and_says_so(world, tmp_path):
    uid = run_to_end(world, "nightly")
    assert world.condition()["reason"] == "Completed"
    assert world.condition("ResultsSealed")["message"] == (
        "the statement on the results is not signed: key key.pem of Secret securebench-signing is "
        "not there; create it, and see that settings.signing names it"
    )
    assert signatures(tmp_path, uid) == []


def test_a_key_that_comes_later_signs_what_ends_later(world, tmp_path):
    uid = world.apply(isolation={"require": "Declared"})
    place_key(tmp_path / "signing")
    world.work(uid)
    assert world.condition("ResultsSealed").get("message", "") == ""
    assert told(check(handed_on(tmp_path, uid, tmp_path / "run"), OPERATOR.key)) == []


def test_an_operator_that_ends_before_the_statement_writes_it_when_it_is_back(
    world, tmp_path, monkeypatch
):
    place_key(tmp_path / "signing")

    def full(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(statement, "sealed", full)
        uid = world.apply(isolation={"require": "Declared"})
        world.work(uid)
        assert not (tmp_path / run_folder(uid) / STATEMENT).exists()
        assert world.condition()["status"] == "Unknown"
    world.restart()
    world.observe(None)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    assert told(check(handed_on(tmp_path, uid, tmp_path / "run"), OPERATOR.key)) == []


def test_a_run_that_ends_without_its_plan_has_a_statement(world, tmp_path):
    place_key(tmp_path / "signing")
    uid = world.apply(isolation={"require": "Declared"})
    world.restart()
    world.edit(attempts=0)
    world.observe(None)
    assert world.condition()["reason"] == "InvalidSpec"
    report = check(handed_on(tmp_path, uid, tmp_path / "run"), OPERATOR.key)
    assert (told(report), report.predicate["end"]["reason"]) == ([], "InvalidSpec")


def test_the_line_of_a_start_is_there_before_its_first_launch(world, tmp_path, monkeypatch):
    seen = []
    create = world.cluster.create

    async def creating(kind, body, **more):
        seen.append((tmp_path / "runs" / "starts.jsonl").exists())
        return await create(kind, body, **more)

    world.apply(suspend=True)
    monkeypatch.setattr(world.cluster, "create", creating)
    world.edit(suspend=False, isolation={"require": "Declared"})
    world.wait(5)
    assert seen
    assert all(seen)


def test_the_statement_on_a_regrade_names_the_run_that_was_graded_again(world, tmp_path):
    place_key(tmp_path / "signing")
    old = run_to_end(world, "nightly")
    new = world.apply("again", isolation={"require": "Declared"}, regrade={"run": "nightly"})
    world.work(new)
    report = check(handed_on(tmp_path, new, tmp_path / "run"), OPERATOR.key)
    assert (told(report), report.predicate["run"]["regradeOf"]) == ([], old)
    first = check(handed_on(tmp_path, old, tmp_path / "old"), OPERATOR.key)
    assert "regradeOf" not in first.predicate["run"]
