"""Which values of a task nobody but its check may see, and where they are found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from securebench.audit.search.encodings import SearchForm, View, views
from securebench.benchmark.families.registry import audit_rules_for, verifier_for_task_type
from securebench.benchmark.files.assets import asset_source
from securebench.benchmark.pack.references import CHECKER, asset_root, each_reference
from securebench.benchmark.pack.task import ASSETS, SecureBenchTask
from securebench.benchmark.resources import Lane
from securebench.core.errors import PackError

MIN_VALUE_BYTES = 16
"""Shorter values of a check stand in other texts by chance."""

MIN_ANSWER_BYTES = 8
"""Shorter answers, a letter or a number, are the letters of every encoded text."""

SETTINGS = frozenset(
    {
        "command",
        "mount",
        "path",
        "source",
        "type",
        "workdir",
    }
)
"""Keys whose values say how a check runs, in rows of any family; an instruction may quote them."""

_CANARY = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")


@dataclass(frozen=True, slots=True)
class HiddenValue:
    """Bytes that must not be found.

    Attributes:
        name: Where the pack has it; this is what messages show.
        content: Without blanks at its ends.
        is_answer: An answer to a question; its plain form may be part of the question.
        file_name: File name of a file beside the check; empty for everything else.
    """

    name: str
    content: bytes
    is_answer: bool = False
    file_name: str = ""

    def is_input(self, task: SecureBenchTask, path: str) -> bool:
        """Tell whether a file that holds the value is an input that the agent is told to use.

        A check often brings its own copy of an input, to see whether the agent left it as it was.
        Where the row's public text names the file and the agent has it under that name, the copy
        is no secret; were it the wanted result, the task would pass with a nop.

        Args:
            task: The task of the value.
            path: Path of the file, in the agent's workspace or image.
        """
        name = PurePosixPath(path).name
        if not self.file_name or name != self.file_name:
            return False
        said = {key: value for key, value in task.agent_payload().items() if key != ASSETS}
        return any(name in text for text in strings(said))


@dataclass(frozen=True, slots=True)
class ValueHit:
    """A value that was found.

    Attributes:
        forms: Its disguises, the outermost first; empty for the plain value.
    """

    value: HiddenValue
    forms: tuple[SearchForm, ...] = ()

    @property
    def how(self) -> str:
        """Return the disguises in words."""
        return " of ".join(self.forms) or "plain"


def hidden_values(
    task: SecureBenchTask, pack_root: Path, reference: str | None = None
) -> tuple[HiddenValue, ...]:
    """Return what must not be seen of one task, each value once.

    Raises:
        PackError: A file of the task does not hold.
        OSError: A file cannot be read.
    """
    found = [
        *_row_values(task),
        *_file_values(task, pack_root),
        *_reference_values(task, reference),
    ]
    unique: dict[bytes, HiddenValue] = {}
    for value in found:
        unique.setdefault(value.content, value)
    return tuple(unique.values())


def find(values: Iterable[HiddenValue], content: bytes) -> Iterator[ValueHit]:
    """Yield the values that a text holds, in any of its forms; each value once."""
    left = list(values)
    for view in views(content):
        hits = [value for value in left if _is_in(value, view)]
        yield from (ValueHit(value, view.forms) for value in hits)
        left = [value for value in left if value not in hits]
        if not left:
            return


def find_plain(values: Iterable[HiddenValue], content: bytes) -> Iterator[ValueHit]:
    """Yield the values that a text holds as they are."""
    return (ValueHit(value) for value in values if _is_in(value, View((), content)))


def strings(value: object) -> Iterator[str]:
    """Yield every string of a JSON value, the keys of mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (str(key), *strings(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def plain_files(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file, or the files of a folder, with their paths below it; a file has none."""
    if source.is_file():
        yield "", source
        return
    for folder, _, names in os.walk(source, followlinks=False):
        for name in sorted(names):
            path = Path(folder, name)
            yield path.relative_to(source).as_posix(), path


def _is_in(value: HiddenValue, view: View) -> bool:
    if value.is_answer and all(form is SearchForm.COMPRESSED for form in view.forms):
        return False
    return value.content in view.content


def _row_values(task: SecureBenchTask) -> Iterator[HiddenValue]:
    is_answer = _asks(task)
    settings = SETTINGS | audit_rules_for(task.task_type).settings
    for resource in task.resources:
        if resource.visibility is Lane.PUBLIC:
            continue
        name = f"eval.{resource.name}"
        for place, text in _leaves(name, resource.value):
            content = text.encode("utf-8", "surrogatepass")
            yield from _canaries(place, content)
            if place.rpartition(".")[2] not in settings:
                yield from _long_enough(place, content, is_answer=is_answer)


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the strings of a value with the keys that lead to them; items of lists share one."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(name, item)


def _file_values(task: SecureBenchTask, pack_root: Path) -> Iterator[HiddenValue]:
    for reference in each_reference(task):
        if isinstance(reference, PackError):
            raise reference
        if reference.lane is Lane.PUBLIC:
            continue
        source = asset_source(pack_root, asset_root(task, reference.lane), reference)
        for below, path in plain_files(source):
            name = f"file {'/'.join(filter(None, (reference.source, below)))!r}"
            content = path.read_bytes()
            yield from _canaries(name, content)
            is_check = reference.name == CHECKER and not below
            file_name = "" if is_check else path.name
            for value in _long_enough(name, content, is_answer=False):
                yield replace(value, file_name=file_name)


def _reference_values(task: SecureBenchTask, reference: str | None) -> Iterator[HiddenValue]:
    if reference is not None:
        content = reference.encode()
        yield from _long_enough("the reference answer", content, is_answer=_asks(task))


def _asks(task: SecureBenchTask) -> bool:
    """Tell whether a task is a question, whose answers may stand in it; others run a check."""
    verifier = verifier_for_task_type(task.task_type)
    return verifier is None or not verifier.is_executing


def _canaries(name: str, content: bytes) -> Iterator[HiddenValue]:
    for canary in _CANARY.findall(content):
        yield HiddenValue(f"the canary of {name}", canary)


def _long_enough(name: str, content: bytes, *, is_answer: bool) -> Iterator[HiddenValue]:
    stripped = content.strip()
    if len(stripped) >= (MIN_ANSWER_BYTES if is_answer else MIN_VALUE_BYTES):
        yield HiddenValue(name, stripped, is_answer)
