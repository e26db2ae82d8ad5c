"""A kind of candidate with a source of its own: two modules say everything of it.

The kind and the source here are rows in tables; the Pod, the plan and the record follow from them.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

import securebench
from securebench.protocol import candidate, supervise
from securebench.protocol.candidate import CandidateBounds, CandidateForm, Extraction
from securebench.protocol.supervise import CandidateSource, RunSpec, StreamsSpec
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.harness import harness_pod
from securebench.sizes import MIB
from support.manifest_samples import FACTS, LANES, run_plan, text_task

PRODUCT = Path(securebench.__file__).parent
HOMES = {"protocol/candidate.py", "protocol/supervise.py"}
NAMED = {
    "agents/command.py": "a value of harness.config.extraction, and what contradicts it",
    "agents/harness.py": "the values of harness.config.extraction",
    "client/packs.py": "whether a command hands in the checkout, for lint",
    "run/records/labels.py": "what the record says of the command that made a git diff",
}
"""Modules that name a source for what only that source has."""


@pytest.fixture(autouse=True)
def listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a kind that supervise makes of the image's own files: their list."""
    form = CandidateForm(
        from_agent="listing",
        from_command="listing",
        archive="listing.tar",
        record_field="candidate_workspace",
    )

    def added(spec: RunSpec, workdir: str, bounds: CandidateBounds) -> RunSpec:
        return replace(spec, streams=StreamsSpec(workdir, 1, bounds.text_bytes))

    source = CandidateSource(
        is_image=True, scratch="/opt/lists", seconds=30.0, bound="text_bytes", added=added
    )
    monkeypatch.setitem(candidate.KINDS, "listing", form)
    monkeypatch.setitem(supervise.SOURCES, "listing", source)


def pod(**changes):
    task = text_task(**changes)
    return harness_pod(run_plan(task), task, LaunchKey(0, 1, Role.HARNESS, 1), LANES, FACTS)


def test_the_pod_has_what_a_source_needs():
    plain, body = pod(), pod(extraction=Extraction("listing", "listing"), workdir="/srv")
    volumes = [each["name"] for each in body["spec"]["volumes"]]
    (main,) = body["spec"]["containers"]
    spec = json.loads(main["command"][-1])
    assert "lists" in volumes
    assert {"name": "lists", "mountPath": "/opt/lists"} in main["volumeMounts"]
    assert spec["streams"] == {"folder": "/srv", "head_bytes": 1, "tail_bytes": MIB}
    seconds = [each["spec"]["activeDeadlineSeconds"] for each in (plain, body)]
    assert seconds[1] - seconds[0] == 30


def test_only_its_two_modules_name_a_source():
    named = set()
    for path in PRODUCT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name(id="ExtractionMode")):
                    named.add(path.relative_to(PRODUCT).as_posix())
    assert named == HOMES | NAMED.keys()
