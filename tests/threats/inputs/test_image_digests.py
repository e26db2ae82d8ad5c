"""F9: both phases ran the same image, and a result is worth something only where it came to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from securebench.agents.registry import harness_config, harness_digest
from securebench.client.run_start import Binding, left_out_lines
from securebench.controller.binding import prepare
from securebench.controller.context import run_object
from securebench.run.api.field_types import Outcome
from securebench.run.decide import attempt
from securebench.run.decide.attempt import after_verification
from securebench.run.plan.model import RunPlan
from securebench.run.records.labels import IsolationLabel
from securebench.run.records.reading import Record, record_key
from securebench.run.records.record import RecordContext, RecordTexts, candidate_record
from securebench.run.state.attempts import Finish, PodFacts
from support.build import (
    IMAGE_ID,
    KEY,
    FakeClock,
    check_task,
    context_of,
    history_of,
    plan_of,
    production,
    question,
    run_body,
    sealed,
    verification,
    write_pack,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import digest
from support.release import Raw
from threats.honest import APP, CHECK_ANSWER, TERMINAL, TEXT, WRITE_ANSWER, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Weakening

OTHER_IMAGE = "registry.example/python@sha256:" + "8" * 64


def judged(image: str, problem: str = "") -> Finish:
    """Return the end of an attempt whose check ran in an image, and passed unless it failed."""
    task = check_task()
    verified = verification(passed=not problem, problem=problem, facts=PodFacts(image_id=image))
    return after_verification(task, KEY, production(), verified)


@pytest.mark.short
def test_a_187_attack() -> None:
    finish = judged(OTHER_IMAGE)

    assert (finish.outcome, finish.passed) == (Outcome.INFRASTRUCTURE, None)
    assert finish.reason == "image_changed"


@pytest.mark.short
@pytest.mark.parametrize("problem", ["configuration", "oom_killed", "supervisor_killed"])
def test_a_187_attack_with_an_image_that_fails(problem: str) -> None:
    finish = judged(OTHER_IMAGE, problem)

    assert (finish.outcome, finish.reason) == (Outcome.INFRASTRUCTURE, "image_changed")


@pytest.mark.short
def test_a_187_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_image_changed", lambda *_: False)

    assert (judged(OTHER_IMAGE).outcome, judged(OTHER_IMAGE).passed) == (Outcome.SCORED, True)


@pytest.mark.short
def test_a_187_honest_image() -> None:
    assert (judged(IMAGE_ID).outcome, judged(IMAGE_ID).passed) == (Outcome.SCORED, True)


OWN_IMAGE = (
    '[JSONPatch{op: "replace", path: "/spec/containers/0/image",'
    " value: object.spec.initContainers[0].image}]"
)
"""The name of the task image means another content when the verifier starts: ours."""
MOVED = Batch(
    "f9-moved",
    "terminal_task",
    defaults=APP,
    ended="False",
    weakening=Weakening((OWN_IMAGE,), role="verifier"),
).task("moved", agent=WRITE_ANSWER, grading=CHECK_ANSWER)


@pytest.mark.trials(MOVED)
def test_a_187_attack_on_pods(arena: Arena) -> None:
    record = arena.record(MOVED)
    images = {
        role: arena.pods(MOVED, role)[0]["status"]["containerStatuses"][0]["imageID"]
        for role in ("harness", "verifier")
    }

    assert images["harness"] != images["verifier"]
    assert (record["outcome"], record["failure_reason"]) == ("infrastructure", "image_changed")
    assert record["digests"]["images"] == images


@pytest.mark.trials(TERMINAL)
def test_a_187_honest(arena: Arena) -> None:
    assert_passed(arena, TERMINAL)
    images = arena.record(TERMINAL)["digests"]["images"]
    assert images["harness"] == images["verifier"]


# What a record is bound to


PLAN = plan_of(check_task())
CONTEXT = RecordContext(IsolationLabel.VERIFIED, finished_at=1_767_225_700.0)


def record_of(plan: RunPlan = PLAN, candidate: str = digest("9"), **facts: Any) -> Record:
    (task,) = plan.tasks.values()
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    history = history_of(
        KEY,
        launches=1,
        started_at=1_767_225_600.0,
        production=production(candidate=sealed(candidate_sha256=candidate)),
        verification=verification(facts=PodFacts(**{"image_id": IMAGE_ID, **facts})),
    )
    record: Record = json.loads(
        json.dumps(candidate_record(plan, task, history, finish, RecordTexts(), CONTEXT))
    )
    return record


def plan_with(**changes: Any) -> RunPlan:
    return replace(PLAN, **changes)


GENUINE = record_of()
OTHER_TASK = check_task(task=replace(check_task().task, id="lab/another"))
OTHERS: Mapping[str, Record] = {
    "of another task": record_of(plan_of(OTHER_TASK)),
    "of an older pack": record_of(plan_with(pack_digest=digest("0"))),
    "of another harness": record_of(plan_with(harness=replace(PLAN.harness, digest=digest("0")))),
    "of another verifier": record_of(plan_with(verifier_version="0")),
    "with other limits": record_of(plan_with(policy_digest=digest("0"))),
    "with another image": record_of(image_id=OTHER_IMAGE),
    "with another candidate": record_of(candidate=digest("0")),
    "with other times": {**GENUINE, "timing": {}},
    "with a network": {**GENUINE, "labels": {**GENUINE["labels"], "network": "allowlist"}},
}
"""Genuine results, of other contexts or with a part exchanged."""


def counts(path: Path, record: Record) -> bool:
    """Return whether a result is taken for the one of the genuine record's run and task."""
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    binding = Binding(*(str(GENUINE[name]) for name in Binding._fields))
    return not left_out_lines(path, binding, {record_key(GENUINE): GENUINE})


def naively_counts(record: Record) -> bool:
    """A check that looks only at the verdict."""
    return record["outcome"] == "scored" and record["passed"] is True


@pytest.mark.short
@pytest.mark.parametrize("other", OTHERS)
def test_a_195_attack(tmp_path: Path, other: str) -> None:
    assert OTHERS[other] != GENUINE
    assert not counts(tmp_path / "candidates.jsonl", OTHERS[other])


@pytest.mark.parametrize("other", OTHERS)
def test_a_195_twin(other: str) -> None:
    assert naively_counts(OTHERS[other])


@pytest.mark.short
def test_a_195_honest(tmp_path: Path) -> None:
    assert counts(tmp_path / "candidates.jsonl", GENUINE)
    assert {"started_at", "finished_at"} <= set(GENUINE["timing"])


CHANGED: Mapping[str, Raw] = {
    "limits of the task": {"resources": {"limits": {"memory": "2Gi"}}},
    "workspace": {"resources": {"workspace": "2Gi"}},
    "proof of isolation": {"isolation": {"require": "Verified"}},
    "dangerous commands": {"verification": {"disallowDangerousCommands": False}},
    "bounds": {},
}


async def policy_of(root: Path, bounds: Raw, **spec: Any) -> str:
    """Return the policy digest of a run with this spec and these bounds."""
    clock = FakeClock()
    write_pack(root / "packs/smoke", [question("a")])
    body = run_body("bound", **spec)
    uid = "11111111-0000-4000-8000-000000000000"
    body["metadata"] |= {"uid": uid, "namespace": "bench", "generation": 1}
    context = context_of(FakeCluster(clock=clock), clock, root, bounds=bounds)
    return (await prepare(context, run_object(body))).policy_digest


@pytest.mark.parametrize("what", CHANGED)
async def test_a_195_attack_by_changed_limits(tmp_path: Path, what: str) -> None:
    bounds = {"text_bytes": 17} if what == "bounds" else {}
    before = await policy_of(tmp_path / "before", {})

    assert await policy_of(tmp_path / "after", bounds, **CHANGED[what]) != before


async def test_a_195_honest_limits(tmp_path: Path) -> None:
    before = await policy_of(tmp_path / "before", {})

    assert await policy_of(tmp_path / "after", {}) == before


def test_a_195_attack_by_another_network() -> None:
    digests = [
        harness_digest(harness_config("command", {"command": "true", "allowed_domains": domains}))
        for domains in ([], ["docs.example"], ["docs.example", "other.example"])
    ]

    assert len(set(digests)) == len(digests)


@pytest.mark.trials(TEXT, TERMINAL)
def test_a_195_attack_with_records_of_a_run(arena: Arena, tmp_path: Path) -> None:
    """Two honest runs: neither takes the record of the other for its own."""
    for own, other in ((TEXT, TERMINAL), (TERMINAL, TEXT)):
        mine, theirs = arena.record(own), arena.record(other)
        binding = Binding(*(str(mine[name]) for name in Binding._fields))
        path = tmp_path / f"{own.name}.jsonl"
        path.write_text(json.dumps(theirs) + "\n", encoding="utf-8")

        (flaw,) = left_out_lines(path, binding, {record_key(mine): mine})

        assert "of another run" in flaw.reason
        path.write_text(json.dumps(mine) + "\n", encoding="utf-8")
        assert left_out_lines(path, binding, {record_key(mine): mine}) == ()
