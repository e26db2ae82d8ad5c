"""The statement on a run: when it is written, and how a run ends that has no key to sign it."""

import json
import os
import threading
from unittest import mock

import pytest
from securesystemslib.signer import SIGNER_FOR_URI_SCHEME

from securebench.controller.volume import results
from securebench.controller.volume.folders import run_folder
from securebench.controller.volume.registers import RunIndex
from support.key_services import URI, service
from support.operator_world import World, opened
from support.sealed_runs import (
    OPERATOR,
    SIGNING,
    check,
    handed_on,
    key_pair,
    place_key,
    run_to_end,
    told,
)

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
        patch.setattr(results, "sealed", full)
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


@pytest.mark.parametrize("attempts", [1, 0])
def test_who_sees_that_a_run_has_ended_finds_its_end_on_the_volume(
    attempts, world, tmp_path, monkeypatch
):
    """With its plan and without: the statement is there, and another run may resume it."""
    seen = []
    patch_status = world.cluster.patch_status

    async def patching(kind, name, status):
        [ended] = [
            each["status"] for each in status["status"]["conditions"] if each["type"] == "Complete"
        ]
        [line] = RunIndex(tmp_path).entries()
        statement = (tmp_path / run_folder(line.uid) / STATEMENT).exists()
        seen.append((ended == "True", bool(line.outcome), statement))
        return await patch_status(kind, name, status)

    uid = world.apply(isolation={"require": "Declared"})
    monkeypatch.setattr(world.cluster, "patch_status", patching)
    world.restart()
    world.edit(attempts=attempts)
    world.observe(None)
    world.work(uid)
    assert {each for each in seen if each[0]} == {(True, True, True)}


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


@pytest.mark.parametrize(
    ("failures", "asked", "is_signed"), [(0, 1, True), (2, 3, True), (3, 3, False)]
)
def test_a_key_management_service_signs_or_is_asked_again(
    failures, asked, is_signed, tmp_path, monkeypatch
):
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", (0.0, 0.0))
    signing = {"uri": URI, "public_key": OPERATOR.public.decode()}
    with service(failures) as calls, opened(World, tmp_path, signing=signing) as world:
        uid = run_to_end(world, "nightly")
        message = world.condition("ResultsSealed").get("message", "")
    assert len(calls) == asked
    assert bool(signatures(tmp_path, uid)) is is_signed
    if is_signed:
        assert told(check(handed_on(tmp_path, uid, tmp_path / "run"), OPERATOR.key)) == []
    else:
        assert message == (
            "the statement on the results is not signed: the key test-kms:bench did not sign: "
            "ConnectionError: connection refused"
        )


def unsigned_because(world):
    message = world.condition("ResultsSealed")["message"]
    return message.partition("the key test-kms:bench did not sign: ")[2]


def test_a_service_that_signs_with_another_key_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", ())
    signing = {"uri": URI, "public_key": OPERATOR.public.decode()}
    with service(key=key_pair(2)), opened(World, tmp_path, signing=signing) as world:
        uid = run_to_end(world, "nightly")
        assert unsigned_because(world) == "the service signs with another key than the public one"
    assert signatures(tmp_path, uid) == []


def test_a_service_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "SIGN_AGAIN_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(results, "SIGN_SECONDS", 0.01)
    signing = {"uri": URI, "public_key": OPERATOR.public.decode()}
    hangs = threading.Event()

    with (
        service(),
        mock.patch.object(
            SIGNER_FOR_URI_SCHEME["test-kms"], "sign", side_effect=lambda _: hangs.wait()
        ),
        opened(World, tmp_path, signing=signing) as world,
    ):
        try:
            run_to_end(world, "nightly")
        finally:
            hangs.set()
        assert unsigned_because(world) == "no answer within 0 seconds"
