"""A complete family that no module of the product knows: its run ends with a record."""

import asyncio
import json
from unittest import mock

import pytest

from securebench.benchmark.families.base import Family, Field, FieldSection
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.reading.rows import rendered_schemas
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.result import VerificationResult
from securebench.cluster.port import ObjectKind
from securebench.grading import verify_text
from securebench.json_values import BOOLEAN, TEXT
from securebench.run.plan.model import Role
from support.build import ended, inline, pod_status, write_pack
from support.operator_world import World

MANIFEST = """\
id: smoke
version: 1
defaults:
  family: yes_no
  environment: {image: "python:3.11-slim", timeout_seconds: 60}
"""


class Scorer:
    """Passes an answer whose first word is the right one."""

    def configuration_problem(self, public, _hidden):
        return "yes_no answers cannot be told apart" if public["yes"] == public["no"] else None

    def verify(self, candidate_text, public, hidden):
        first = (candidate_text or "").split()[:1]
        wanted = public["yes"] if hidden["answer"] else public["no"]
        return VerificationResult(passed=first == [wanted], metadata={"words": len(first)})


YES_NO = Family(
    name="yes_no",
    candidate_kind="text",
    verification="text",
    input=FieldSection(
        "input",
        tuple(Field(name, TEXT, required=True) for name in ("question", "yes", "no")),
    ),
    eval=FieldSection("eval", (Field("answer", BOOLEAN, required=True, lane=Lane.HIDDEN),)),
    scorer=Scorer(),
    record_metadata=lambda task: {"words_known": len(task.resources.value("yes").split())},
)


def row(task_id, **changes):
    row_input = {"question": "Is water wet?", "yes": "Yes", "no": "No"}
    return {"id": task_id, "input": row_input, "eval": {"answer": True}} | changes


class FamilyWorld(World):
    """Its verifier Pods judge by the program of the Pod image."""

    def ending(self, uid, launch):
        if launch.role is not Role.VERIFIER:
            return super().ending(uid, launch)
        (pod,) = [
            raw
            for name, raw in self.cluster.objects(ObjectKind.POD).items()
            if self.launch(name) == launch
        ]
        (container,) = pod["spec"]["containers"]
        spec = (container.get("command", []) + container.get("args", []))[-1]
        for mount in container["volumeMounts"]:
            if mount["name"] == "results":
                place = str(self.root / mount["subPath"])
                spec = spec.replace(f'{mount["mountPath"]}"', f'{place}"')
                spec = spec.replace(f"{mount['mountPath']}/", f"{place}/")
        own = self.root / f"runs/{uid}/tasks/{launch.task}/attempts/{launch.attempt}/launches"
        log, verdicts = self.root / "message", own / f"{launch.launch}/verification"
        assert verify_text.main(["--spec", spec], log=log, verdicts=verdicts) == 0
        return pod_status("Succeeded", ended("verifier", 0, message=log.read_text()))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "yes_no", YES_NO)
    with mock.patch.object(asyncio, "to_thread", inline):
        world = FamilyWorld(tmp_path)
        yield world
        world.runner.run(world.supervisor.close())
        world.runner.close()


def records(world, uid):
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_of_a_new_family_ends_with_records(world):
    rows = [
        row("right", input={"question": "?", "yes": "B", "no": "C"}),
        row("wrong", eval={"answer": False}),
        row("unusable", input={"question": "?", "yes": "B", "no": "B"}),
    ]
    write_pack(world.root / "packs/smoke", rows, MANIFEST)
    uid = world.apply()
    world.work(uid, rounds=30)
    assert world.condition()["reason"] == "Incomplete"
    right, wrong, unusable = records(world, uid)
    assert (right["task_type"], right["passed"]) == ("yes_no", True)
    assert right["verifier_metadata"]["words"] == 1
    assert right["verifier_metadata"]["words_known"] == 1
    assert (wrong["outcome"], wrong["passed"]) == ("scored", False)
    assert unusable["failure_reason"] == "verifier_configuration"
    assert "cannot be told apart" in unusable["failure_message"]


def test_its_rows_are_checked_and_its_schema_is_published(world):
    rows = [row("a", eval={"answr": True})]
    write_pack(world.root / "packs/smoke", rows, MANIFEST)
    world.apply()
    assert world.condition()["reason"] == "PackInvalid"
    assert "did you mean 'answer'" in world.condition()["message"]
    assert "row.yes_no.schema.json" in rendered_schemas()
