"""Reference answers of a pack (design 10): read for oracles only. Pure.

``oracle/answers.jsonl`` beside the manifest has one JSON object per line:
``{"id": TASK_ID, "candidate": TEXT}`` or ``{"id": TASK_ID, "command": SHELL}``. Tasks that are
folders bring their answers themselves, and no such file counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.harbor_task import SOLVE_SCRIPT
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.paths import is_unicode
from securebench.benchmark.reading.plain import PlainProblem, parse_json
from securebench.benchmark.reading.rows import RawLine, split_lines
from securebench.digests import content_digest, json_digest
from securebench.errors import ConfigErrors, PackError

if TYPE_CHECKING:
    from securebench.benchmark.pack.task import SecureBenchTask

ANSWERS_FILE = "oracle/answers.jsonl"
"""Relative to the manifest's folder."""

CANDIDATE = "candidate"
"""Form of an answer: the text of the candidate."""
COMMAND = "command"
"""Form of an answer: a shell script for the workspace; what it prints is the candidate's text."""


class ReferenceAnswer(NamedTuple):
    """The reference answer of one task.

    Args:
        kind: ``CANDIDATE`` or ``COMMAND``.
        text: Not blank, can be written as UTF-8.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The reference answers of a pack.

    Args:
        digest: ``sha256:…`` of the file; without one, of what the tasks bring.
    """

    by_id: Mapping[str, ReferenceAnswer] = field(default_factory=dict)
    digest: str = ""


def reference_answers(
    content: bytes | None,
    tasks: Sequence[SecureBenchTask],
    wanted: Collection[str],
    *,
    is_whole: bool,
    path: str = ANSWERS_FILE,
) -> Answers:
    """Check a pack's reference answers and return them.

    Args:
        content: Content of the file; None where the pack has none. Unused where tasks are folders.
        tasks: Compiled rows.
        wanted: Ids of the tasks that need an answer.
        is_whole: Whether the rows are all of the pack; else ids without a row are no error.
        path: The file as errors name it.

    Raises:
        ConfigErrors: One PackError per defect: the file's in file order, then the missing answers.
    """
    if any(map(_is_folder, tasks)):
        own = dict(_own_answers(tasks))
        errors = [
            PackError(f"task {task.id!r} has no {SOLVE_SCRIPT}, which an oracle runs")
            for task in tasks
            if task.id in wanted and task.id not in own
        ]
        if errors:
            raise ConfigErrors(errors)
        return Answers(own, json_digest({name: each.text for name, each in own.items()}))
    if content is None:
        reason = "the pack has no such file; an oracle hands in the answers that stand there"
        raise ConfigErrors([PackError(reason, path=path)])
    reader = _OracleReader({task.id: task for task in tasks}, path, is_whole=is_whole)
    for line in split_lines(BytesIO(content)):
        reader.read(line)
    missing = (task.id for task in tasks if task.id in wanted and task.id not in reader.lines)
    errors = [
        *reader.errors,
        *(PackError(f"there is no answer for task {task_id!r}", path=path) for task_id in missing),
    ]
    if errors:
        raise ConfigErrors(errors)
    return Answers(reader.answers, content_digest(content))


def _is_folder(task: SecureBenchTask) -> bool:
    family = FAMILIES.get(task.task_type)
    return family is not None and not family.has_rows


def _own_answers(tasks: Sequence[SecureBenchTask]) -> Iterator[tuple[str, ReferenceAnswer]]:
    for task in tasks:
        family = FAMILIES.get(task.task_type)
        script = None if family is None else family.answer(task)
        if script is not None:
            yield task.id, ReferenceAnswer(COMMAND, script)


class _OracleReader:
    """Reads the lines and collects what is wrong with them."""

    def __init__(self, tasks: Mapping[str, SecureBenchTask], path: str, *, is_whole: bool) -> None:
        self._tasks = tasks
        self._path = path
        self._is_whole = is_whole
        self.answers: dict[str, ReferenceAnswer] = {}
        self.lines: dict[str, int] = {}
        self.errors: list[PackError] = []

    def read(self, line: RawLine) -> None:
        problems = list(self._problems(line))
        self.errors += [PackError(text, path=self._path, line=line.number) for text in problems]

    def _problems(self, line: RawLine) -> Iterator[str]:
        try:
            value = parse_json(line.content)
        except PlainProblem as problem:
            yield problem.reason
            return
        if not isinstance(value, dict):
            yield "an answer must be an object"
            return
        task_id = value.get("id")
        if not isinstance(task_id, str) or not task_id.strip():
            yield "id must be a non-empty string"
            return
        first = self.lines.setdefault(task_id, line.number)
        if first != line.number:
            yield f"a second answer for task {task_id!r}; the first is on line {first}"
        if self._is_whole and task_id not in self._tasks:
            yield f"the pack has no task {task_id!r}"
        yield from self._content_problems(task_id, value)

    def _content_problems(self, task_id: str, value: Mapping[str, object]) -> Iterator[str]:
        unknown = sorted(set(value) - {"id", CANDIDATE, COMMAND})
        if unknown:
            yield f"the answer for task {task_id!r} has unknown key(s): {', '.join(unknown)}"
        kinds = [kind for kind in (CANDIDATE, COMMAND) if kind in value]
        if len(kinds) != 1:
            yield f"the answer for task {task_id!r} needs either {CANDIDATE} or {COMMAND}"
            return
        kind, text = kinds[0], value[kinds[0]]
        if not isinstance(text, str) or not text.strip() or not is_unicode(text):
            yield f"{kind} of the answer for task {task_id!r} must be a non-empty string"
        elif kind == CANDIDATE and _works_in_workspace(self._tasks.get(task_id)):
            yield f"task {task_id!r} is solved in its workspace: its answer needs a {COMMAND}"
        else:
            self.answers[task_id] = ReferenceAnswer(kind, text)


def _works_in_workspace(task: SecureBenchTask | None) -> bool:
    family = None if task is None else FAMILIES.get(task.task_type)
    return family is not None and family.candidate_kind == "workspace"
