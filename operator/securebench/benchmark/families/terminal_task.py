"""terminal_task: a workspace judged by a checker (contract 14.6, 14.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from securebench.benchmark.families.base import (
    CHECKER_SOURCES,
    PYTEST,
    SKIPS,
    Advice,
    AuditRules,
    CheckRequest,
    Family,
    Field,
    FieldSection,
    TaskView,
    texts_in,
)
from securebench.benchmark.families.counted_commands import exit_code_alone, names_test_tool
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.dangerous_commands import KNOWN_COMMANDS
from securebench.json_values import (
    ANYTHING,
    COMMAND,
    OBJECT,
    PATTERNS,
    SECONDS,
    TEXT,
    TEXT_OR_OBJECT,
    Schema,
    described,
    object_of,
)

_SECONDS = described(
    SECONDS, "Time limit of the check; without it `environment.timeout_seconds`, else 300.", 60
)
_COMMAND_FORM = object_of(
    {
        "command": described(
            COMMAND,
            "Runs in the workspace; exit code 0 is a pass. A text runs by `sh -lc`.",
            ["sh", "-c", "test -s answer.txt"],
        ),
        "workdir": described(TEXT, "Folder to run in, relative to the workspace.", "report"),
        "timeout_seconds": _SECONDS,
    },
    "command",
)
_SOURCE_FORM = object_of(
    {
        "source": described(
            {"enum": list(CHECKER_SOURCES)},
            "`pytest`: the file or folder has tests. `script`: it is started by its `#!` line.",
            PYTEST,
        ),
        "path": described(TEXT, "File or folder below the eval root.", "test_sorted.py"),
        "timeout_seconds": _SECONDS,
        "skips": SKIPS,
        "plugins": described(
            PATTERNS,
            "Plugins of the image's pytest that run beside the tests, by plugin or distribution.",
            ["pytest_asyncio"],
            [],
        ),
    },
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
        skips=texts_in(fields, "skips"),
        plugins=texts_in(fields, "plugins"),
    )


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    checker = row_eval["checker"]
    command = checker.get("command") if isinstance(checker, Mapping) else None
    if command is not None and names_test_tool(command):
        message = f"eval.checker.command: {exit_code_alone(command)}; source: pytest counts tests"
        yield Advice("exit-code", message)


def _record_metadata(task: TaskView) -> Mapping[str, object]:
    checker = task.resources.value("checker")
    command = checker.get("command") if isinstance(checker, Mapping) else None
    return {"command": command, "phase": "checker"}


FAMILY = Family(
    name="terminal_task",
    candidate_kind="workspace",
    verification="command",
    input=FieldSection(
        "input",
        (
            Field(
                "instructions",
                described(
                    TEXT,
                    "What is to be done.",
                    "Write the names in alphabetical order to sorted.txt.",
                ),
                required=True,
            ),
            Field(
                "context",
                described(
                    TEXT_OR_OBJECT, "A passage or data beside the instructions.", {"language": "de"}
                ),
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "checker",
                described(
                    CHECKER,
                    "What judges the workspace: a command, or a file of the pack.",
                    {"source": "pytest", "path": "test_sorted.py"},
                ),
                required=True,
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                "needed_commands",
                described(
                    NEEDED_COMMANDS,
                    "Commands of the check that need a Linux capability; the tester allows them.",
                    ["chroot"],
                    [],
                ),
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                "run_tests",
                described(
                    OBJECT,
                    "A file or folder below the eval root that the command calls.",
                    {"path": "run-tests.sh"},
                ),
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                "test_files",
                described(OBJECT, "A further file or folder for the command.", {"path": "cases"}),
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                "expected_state",
                described(
                    ANYTHING,
                    "What should come out, for people; on no disk, and it never scores.",
                    {"answer.txt": "3"},
                ),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    needs={"checker": CHECKER},
    check=_check,
    advice=_advice,
    has_checker=True,
    record_metadata=_record_metadata,
    never_written=frozenset({"expected_state"}),
    audit=AuditRules(settings=frozenset({"needed_commands"})),
)
