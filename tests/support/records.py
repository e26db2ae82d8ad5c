"""Histories of attempts, and the records that are made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

import securebench.schemas as schemas_folder
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, TaskLimits
from securebench.run.records.labels import IsolationLabel
from securebench.run.records.record import (
    RecordContext,
    RecordTexts,
    candidate_record,
)
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import (
    AttemptHistory,
    CommandReport,
    Finish,
    HarnessResult,
    PodFacts,
    StreamInfo,
    VerifierResult,
)
from support.build import changed, history_of
from support.manifest_samples import (
    candidate,
    run_plan,
    text_task,
)

SCHEMA = json.loads(
    (Path(next(iter(schemas_folder.__path__))) / "record.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
CONTEXT = RecordContext(IsolationLabel.VERIFIED, finished_at=1_767_225_700.25, run_ordinal=3)
STARTED_AT = 1_767_225_600.0
FACTS = PodFacts(image_id="registry.example/task@sha256:1", node="n", user_namespace=True)
PRODUCTION = HarnessResult(
    launch=1,
    command=CommandReport(exit_code=3, duration_seconds=1.5, phase="harness"),
    candidate=candidate(),
    facts=FACTS,
)
VERIFICATION = VerifierResult(
    launch=2,
    passed=True,
    metadata={"verifier": "short_answer", "match_strategy": "normalized_exact"},
    command=CommandReport(),
    facts=PodFacts(image_id="registry.example/pod@sha256:2"),
)
TEXTS = RecordTexts(producer_stdout="Erie \n", candidate="Erie \n")


class Past(NamedTuple):
    """An attempt of which a record is written: what was known of it, and how it ends."""

    history: AttemptHistory
    finish: Finish

    def but(self, *, finish: Finish | None = None, **changes: Any) -> Past:
        """Return another one."""
        return Past(changed(self.history, **changes), finish or self.finish)


def history(outcome: Outcome = Outcome.SCORED, **changes: Any) -> Past:
    finish = Finish(AttemptKey(0, 1), outcome, passed=True if outcome is Outcome.SCORED else None)
    known = history_of(
        AttemptKey(0, 1),
        launches=2,
        production=PRODUCTION,
        verification=VERIFICATION,
        started_at=STARTED_AT,
    )
    return Past(known, finish).but(**changes)


def failed(outcome: Outcome, reason: str, phase: str, **changes: Any) -> Finish:
    finish = Finish(AttemptKey(0, 1), outcome, reason, phase, "it went wrong", passed=False)
    return replace(finish, **changes)


def unchecked(
    past: Past, task: Any = None, texts: RecordTexts = TEXTS, **plan_changes: Any
) -> dict[str, Any]:
    task = text_task() if task is None else task
    return candidate_record(run_plan(task, **plan_changes), task, *past, texts, CONTEXT)


def record(past: Past, *given: Any, **changes: Any) -> dict[str, Any]:
    made = unchecked(past, *given, **changes)
    VALIDATOR.validate(json.loads(b"".join(record_line(made, TaskLimits()))))
    return made


CHECK_VERIFICATION = replace(
    VERIFICATION,
    metadata={},
    command=CommandReport(exit_code=1, duration_seconds=2.0, phase="checker"),
    stdout=StreamInfo(3_000_000, truncated=True),
)
WORKSPACE_PRODUCTION = replace(PRODUCTION, candidate=candidate("workspace.tar", dropped_entries=4))


def checked(**changes: Any) -> Past:
    return history(
        production=WORKSPACE_PRODUCTION,
        verification=CHECK_VERIFICATION,
        finish=Finish(AttemptKey(7, 1), Outcome.SCORED, passed=False),
        **changes,
    )
