"""terminal_task: a workspace judged by a checker (contract 14.6, 14.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securebench.benchmark.families.audit_rules import AuditRules
from securebench.benchmark.families.base import Family, TaskView
from securebench.benchmark.families.fields import (
    ANYTHING,
    COMMAND,
    OBJECT,
    POSITIVE,
    TEXT,
    TEXT_OR_OBJECT,
    Field,
    FieldSection,
    Schema,
    object_of,
)
from securebench.benchmark.families.verification import CheckRequest
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.dangerous_commands import KNOWN_COMMANDS

PYTEST, SCRIPT = CHECKER_SOURCES = ("pytest", "script")
"""Kinds of a checker's own file."""

_COMMAND_FORM = object_of(
    {"command": COMMAND, "workdir": TEXT, "timeout_seconds": POSITIVE}, "command"
)
_SOURCE_FORM = object_of(
    {"source": {"enum": list(CHECKER_SOURCES)}, "path": TEXT, "timeout_seconds": POSITIVE},
    "source",
    "path",
)
CHECKER: Schema = {
    "if": {"anyOf": [{"required": ["source"]}, {"required": ["path"]}]},
    "then": _SOURCE_FORM,
    "else": _COMMAND_FORM,
}
NEEDED_COMMANDS: Schema = {
    "type": "array",
    "items": {"enum": list(KNOWN_COMMANDS)},
    "description": "a list",
}


def is_source_form(checker: object) -> bool:
    """Return whether a checker names a file of the pack instead of a command."""
    return isinstance(checker, Mapping) and ("source" in checker or "path" in checker)


def _check(task: TaskView) -> CheckRequest:
    checker = task.resources.value("checker")
    fields = checker if isinstance(checker, Mapping) else {}
    needed = task.resources.value("needed_commands")
    return CheckRequest(
        command=fields.get("command"),
        workdir=fields.get("workdir"),
        timeouts=(fields.get("timeout_seconds"), task.environment.get("timeout_seconds")),
        needed_commands=tuple(map(str, needed)) if isinstance(needed, Sequence) else (),
    )


def _record_metadata(task: TaskView) -> Mapping[str, object]:
    checker = task.resources.value("checker")
    command = checker.get("command") if isinstance(checker, Mapping) else None
    return {"command": command, "phase": "checker"}


FAMILY = Family(
    name="terminal_task",
    candidate_kind="workspace",
    input=FieldSection(
        "input", (Field("instructions", TEXT, required=True), Field("context", TEXT_OR_OBJECT))
    ),
    eval=FieldSection(
        "eval",
        (
            Field("checker", CHECKER, required=True, lane=Lane.EVALUATION_INPUTS),
            Field("needed_commands", NEEDED_COMMANDS, lane=Lane.EVALUATION_INPUTS),
            Field("run_tests", OBJECT, lane=Lane.EVALUATION_INPUTS),
            Field("test_files", OBJECT, lane=Lane.EVALUATION_INPUTS),
            Field("expected_state", ANYTHING, lane=Lane.HIDDEN),
        ),
    ),
    needs={"checker": CHECKER},
    check=_check,
    has_checker=True,
    record_metadata=_record_metadata,
    never_written=frozenset({"expected_state"}),
    audit=AuditRules(settings=frozenset({"needed_commands"})),
)
