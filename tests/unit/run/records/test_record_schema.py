"""The published schema of a record: it knows the words of the code and refuses what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from securebench import reasons
from securebench.agents.registry import AGENTS
from securebench.benchmark.families.registry import FAMILIES, text_verifier
from securebench.benchmark.patch.judgement import PatchProblem
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers import dangerous_commands
from securebench.protocol.candidate import KINDS, ExtractionMode, Problem
from securebench.protocol.grading import Grading
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import TaskLimits
from securebench.run.records.labels import Credentials, IsolationLabel, Network
from securebench.run.records.record_line import record_line
from securebench.run.verification.patch import PatchStep
from support.manifest_samples import terminal_task
from support.records import (
    SCHEMA,
    VALIDATOR,
    checked,
    failed,
    history,
    record,
)

SAID = SCHEMA["properties"]
PRODUCER = SAID["producer_metadata"]["properties"]
BY_OUTCOME = {
    rule["if"]["properties"]["outcome"]["const"]: rule["then"]["properties"]["failure_reason"]
    for rule in SCHEMA["allOf"]
    if "failure_reason" in rule.get("then", {}).get("properties", {})
}

WORDS = {
    "reasons": (
        {
            value
            for name, value in vars(reasons).items()
            if name.isupper() and isinstance(value, str)
        },
        SAID["failure_reason"],
    ),
    "reasons of providers": ({*reasons.PROVIDER_REASONS}, BY_OUTCOME["provider"]),
    "reasons of budgets": ({reasons.BUDGET_EXHAUSTED}, BY_OUTCOME["agent"]),
    "reasons of budgets of runs": ({reasons.RUN_BUDGET_EXHAUSTED}, BY_OUTCOME["cancelled"]),
    "reasons of candidates": ({problem.value for problem in Problem}, BY_OUTCOME["agent"]),
    "reasons of patches": ({problem.value for problem in PatchProblem}, BY_OUTCOME["agent"]),
    "reasons of commands": ({dangerous_commands.FAILURE_REASON}, BY_OUTCOME["agent"]),
    "reasons of controls": ({reasons.EVALUATOR_TAMPERED}, BY_OUTCOME["scored"]),
    **{
        f"reasons of steps: {outcome.value}": (
            {step.reason for step in PatchStep if step.outcome is outcome},
            BY_OUTCOME[outcome.value],
        )
        for outcome in {step.outcome for step in PatchStep}
    },
    "phases": (
        set(reasons.FailurePhase),
        SAID["failure_phase"],
    ),
    "phases of patches": (
        {*(problem.phase for problem in PatchProblem), *(step.phase for step in PatchStep)},
        SAID["failure_phase"],
    ),
    "outcomes": (
        {None if known is Outcome.NOT_VERIFIED else known.value for known in Outcome},
        SAID["outcome"],
    ),
    "harnesses": (set(AGENTS), PRODUCER["harness"]),
    "modes": (set(ExtractionMode), PRODUCER["candidate_extraction"]),
    "kinds": (set(KINDS), PRODUCER["candidate_kind"]),
    "grading": ({word.value for word in Grading}, SAID["labels"]["properties"]["grading"]),
    "isolation": (
        {word.value for word in IsolationLabel},
        SAID["labels"]["properties"]["isolation"],
    ),
    "network": ({word.value for word in Network}, SAID["labels"]["properties"]["network"]),
    "network of the producer": ({word.value for word in Network}, PRODUCER["network"]),
    "credentials": (
        {word.value for word in Credentials},
        SAID["labels"]["properties"]["credentials"],
    ),
}


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["required"]) <= set(SAID)
    assert {name.removesuffix("_metadata") for name in SCHEMA["$defs"]} == set(FAMILIES)


@pytest.mark.parametrize("name", sorted(WORDS))
def test_the_schema_knows_the_words_of_the_code(name: str) -> None:
    used, known = WORDS[name]
    assert used
    assert used <= set(known["enum"])


def test_every_reason_has_its_outcomes() -> None:
    assert set(BY_OUTCOME) == {word for word in SAID["outcome"]["enum"] if word}
    listed = {reason for words in BY_OUTCOME.values() for reason in words["enum"]}
    assert listed == set(SAID["failure_reason"]["enum"])


TEXT_TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "multiple_choice": ({"question": "q", "choices": ["a", "b"]}, {"answer": 1}),
    "short_answer": ({"question": "q"}, {"accepted_answers": ["b", 3], "tolerance": 0.5}),
    "free_response": (
        {"prompt": "p"},
        {"rubric": {"accepted_answers": ["b"], "rejected_answers": ["c"]}},
    ),
}


@pytest.mark.parametrize("answer", ["b", "3.2", "no", "c b"])
@pytest.mark.parametrize("family", TEXT_TASKS)
def test_the_schema_knows_what_text_verifiers_say(family: str, answer: str) -> None:
    verifier = text_verifier(family)
    assert verifier is not None
    metadata = {**verifier.verify(answer, *TEXT_TASKS[family]).metadata}
    metadata.pop("expected_answer", None)
    validator = Draft202012Validator(SCHEMA["$defs"][f"{family}_metadata"])
    validator.validate(metadata)
    assert not validator.is_valid({**metadata, "reference_answer": "b"})


def line(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(record_line(made, TaskLimits())))
    return found


def change(made: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a record with one value changed, or without it when the value is ``...``."""
    name, _, rest = path.partition(".")
    if rest:
        return {**made, name: change(made[name], rest, value)}
    others = {key: known for key, known in made.items() if key != name}
    return others if value is ... else {**others, name: value}


SCORED_WRONG = {
    "another verdict": ("passed", False),
    "another score": ("score", 0.5),
    "a score that is a bool": ("score", True),
    "no score": ("score", ...),
    "another outcome": ("outcome", "infrastructure"),
    "passed without a verdict": ("outcome", "agent"),
    "unknown field": ("extra", 1),
    "no labels": ("labels", ...),
    "no digests": ("digests", ...),
    "hidden values": ("hidden_values", "x"),
    "hidden value in the summary": ("resource_summary", [{
        "name": "a", "visibility": Lane.HIDDEN.value, "kind": "text", "value": "B",
    }]),
    "expected answer": ("verifier_metadata.expected_answer", "B"),
    "key of another family": ("verifier_metadata.exit_code", 0),
    "another verifier": ("verifier_metadata.verifier", "free_response"),
    "no verifier": ("verifier_metadata", ...),
    "no verifier output": ("verifier_stdout", ...),
    "unknown key of the producer": ("producer_metadata.host_path", "/x"),
    "path outside": ("producer_metadata.workspace_root", "/var/lib/x"),
    "unknown harness": ("producer_metadata.harness", "other"),
    "unknown label": ("labels.extra", True),
    "label missing": ("labels.audit", ...),
    "unknown grading": ("labels.grading", "outside"),
    "digest without its form": ("digests.row", "abc"),
    "candidate of another kind": ("candidate_patch", "x"),
    "no attempt": ("attempt", 0),
    "reason of a pass": ("failure_reason", "verifier_timeout"),
    "family without verifier": ("task_type", "tool_call"),
}  # fmt: skip
FAILED_WRONG = {
    "no reason": ("failure_reason", ...),
    "reason without phase": ("failure_phase", ...),
    "reason without message": ("failure_message", ...),
    "unknown reason": ("failure_reason", "bad_luck"),
    "unknown phase": ("failure_phase", "later"),
    "reason of another outcome": ("failure_reason", "oom_killed"),
}


@pytest.mark.parametrize("name", SCORED_WRONG)
def test_the_schema_refuses_scored_records_that_cannot_be(name: str) -> None:
    made = line(record(history()))
    assert VALIDATOR.is_valid(made)
    assert not VALIDATOR.is_valid(change(made, *SCORED_WRONG[name]))


REWARDED: dict[str, tuple[dict[str, Any], bool]] = {
    "any finite number": ({"score": -2.5}, True),
    "a pass": ({"score": 42, "passed": True, "verification_status": "passed"}, True),
    "no number": ({"score": "1"}, False),
    "of an agent that left nothing": (
        {"score": 0.5, "outcome": "agent", "failure_reason": "candidate_missing"},
        False,
    ),
    "without a reward": ({"score": 0.5, "labels": {"grading": "exit-code"}}, False),
}


@pytest.mark.parametrize("name", REWARDED)
def test_a_reward_is_any_finite_number(name: str) -> None:
    changes, want = REWARDED[name]
    made = line(record(checked(), terminal_task()))
    for key in ("failure_reason", "failure_phase", "failure_message"):
        made.pop(key, None)
    labels = {**made["labels"], "grading": "reward-file", **changes.get("labels", {})}
    told = {"failure_phase": "producer", "failure_message": "m"}
    reason = told if "failure_reason" in changes else {}
    assert VALIDATOR.is_valid({**made, **changes, **reason, "labels": labels}) is want


@pytest.mark.parametrize("name", FAILED_WRONG)
def test_the_schema_refuses_failures_that_cannot_be(name: str) -> None:
    finish = failed(Outcome.AGENT, "candidate_missing", "candidate_extraction")
    past = checked().but(verification=None, finish=finish)
    made = line(record(past, terminal_task()))
    assert VALIDATOR.is_valid(made)
    assert not VALIDATOR.is_valid(change(made, *FAILED_WRONG[name]))
