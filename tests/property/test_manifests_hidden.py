"""No value of a lane that the agent must not see is in any harness manifest."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from securebench.benchmark.pack.lane_plan import LaneSet
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.run.plan.model import LaunchKey, Role, TaskPlan
from securebench.run.pods.harness import harness_pod
from securebench.run.verification.base import Member, verifier_pod
from support.manifest_samples import (
    FACTS,
    LANES,
    LANES_WITH_ASSETS,
    ORACLE_LANES,
    candidate,
    run_plan,
    terminal_task,
    text_task,
)

CANARY = "canary-7f3b"

letters = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
canaries = letters.map(lambda text: f"{CANARY}-{text}")
values = st.recursive(
    canaries,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=6,
)
secret_lanes = st.sampled_from([Lane.HIDDEN, Lane.EVALUATION_INPUTS])
secrets = st.dictionaries(letters, st.tuples(secret_lanes, values), min_size=1, max_size=5)


def with_secrets(plan: TaskPlan, found: dict[str, tuple[Lane, object]]) -> SecureBenchTask:
    public = [one for one in plan.task.resources if one.visibility is Lane.PUBLIC]
    hidden = [Resource(f"x-{name}", lane, "json", value) for name, (lane, value) in found.items()]
    checker = [
        Resource("checker", Lane.EVALUATION_INPUTS, "json", {"command": f"{CANARY}-command"})
    ]
    bundle = ResourceBundle((*public, *hidden, *checker))
    return SecureBenchTask(
        f"{CANARY}-task", f"{CANARY}-pack", plan.task.task_type, plan.task.metadata, bundle
    )


@given(
    found=secrets,
    base=st.sampled_from([text_task(), terminal_task(), terminal_task(starts_filled=False)]),
    lanes=st.sampled_from([LANES, LANES_WITH_ASSETS, ORACLE_LANES]),
    attempt=st.integers(1, 100),
    launch=st.integers(1, 20),
)
def test_harness_manifest_holds_nothing_hidden(
    found: dict[str, tuple[Lane, object]],
    base: TaskPlan,
    lanes: LaneSet,
    attempt: int,
    launch: int,
) -> None:
    task = text_task(
        index=base.index,
        task=with_secrets(base, found),
        environment=base.environment,
        extraction=base.extraction,
        verification=base.verification,
    )
    key = LaunchKey(task.index, attempt, Role.HARNESS, launch)

    body = json.dumps(harness_pod(run_plan(task), task, key, lanes, FACTS))

    assert CANARY not in body
    assert "lanes/hidden" not in body
    assert "lanes/evaluation_inputs" not in body
    assert "oracle" not in body
    assert lanes.hidden_digest not in body
    assert lanes.evaluation_inputs_digest not in body


@given(found=secrets)
def test_text_verifier_manifest_holds_no_value_either(
    found: dict[str, tuple[Lane, object]],
) -> None:
    task = text_task(task=with_secrets(text_task(), found))
    key = LaunchKey(0, 1, Role.VERIFIER, 1)

    body = json.dumps(verifier_pod(run_plan(task), [Member(task, key, LANES, candidate())], FACTS))

    assert CANARY not in body
    assert "lanes/hidden" in body
