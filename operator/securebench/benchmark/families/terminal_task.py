"""terminal_task: a workspace judged by a checker (contract 14.6, 14.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from securebench.benchmark.families.base import Family, TaskView
from securebench.benchmark.families.fields import (
    ANYTHING,
    COMMAND,
    OBJECT,
    POSITIVE,
    TEXT,
    TEXT_OR_OBJECT,
    Field,
    FieldRule,
    FieldSection,
    is_text,
    object_rule,
    simple,
)
from securebench.benchmark.families.verification import CheckRequest
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.dangerous_commands import KNOWN_COMMANDS

CHECKER_SOURCES = ("pytest", "script")

_COMMAND_FORM = FieldSection(
    "checker",
    (
        Field("command", COMMAND, required=True),
        Field("workdir", TEXT),
        Field("timeout_seconds", POSITIVE),
    ),
)
_SOURCE_FORM = FieldSection(
    "checker",
    (
        Field(
            "source",
            simple(
                {"enum": list(CHECKER_SOURCES)},
                lambda value: value in CHECKER_SOURCES,
                f"one of {', '.join(CHECKER_SOURCES)}",
            ),
            required=True,
        ),
        Field("path", TEXT, required=True),
        Field("timeout_seconds", POSITIVE),
    ),
)


def is_source_form(checker: object) -> bool:
    """Return whether a checker names a file of the pack instead of a command."""
    return isinstance(checker, Mapping) and ("source" in checker or "path" in checker)


def _checker_problems(name: str, value: object) -> Iterator[str]:
    form = _SOURCE_FORM if is_source_form(value) else _COMMAND_FORM
    yield from object_rule(form).problems(name, value)


def _needed_problems(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{name} must be a list"
        return
    for index, item in enumerate(value):
        if not is_text(item):
            yield f"{name}[{index}] must be a non-empty string"
        elif item not in KNOWN_COMMANDS:
            yield f"{name}[{index}] must be one of {', '.join(KNOWN_COMMANDS)}"


CHECKER = FieldRule({"anyOf": [_COMMAND_FORM.schema(), _SOURCE_FORM.schema()]}, _checker_problems)
NEEDED_COMMANDS = FieldRule(
    {"type": "array", "items": {"enum": list(KNOWN_COMMANDS)}}, _needed_problems
)


def configuration_problem(task: TaskView) -> str | None:
    """Return why the checker cannot be run, or None.

    Rows that pass the schema always work; a task from elsewhere may not.
    """
    problem = next(CHECKER.problems("checker", task.resources.value("checker")), None)
    return None if problem is None else f"terminal_task {problem}"


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
    own_problem=configuration_problem,
    check=_check,
    has_checker=True,
    record_metadata=_record_metadata,
    never_written=frozenset({"expected_state"}),
)
