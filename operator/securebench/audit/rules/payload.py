"""payload: nothing that an agent gets holds a hidden value (A-001, A-002, R-23)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, summary, task_name
from securebench.audit.search.values import find, find_plain, hidden_values, plain_files, strings
from securebench.audit.subject import Subject
from securebench.benchmark.files.assets import asset_source
from securebench.benchmark.pack.lane_plan import materialization_plan
from securebench.benchmark.pack.references import asset_root
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Component
from securebench.core.sizes import MIB

MAX_DECODED_BYTES = 4 * MIB
"""Larger public files are searched for plain values only: to decode 1 MiB takes 1 to 5 s."""

_REMEDY = "move it to the hidden lane or make the value another one, then push the pack again"


class Document(NamedTuple):
    """Something that the agent gets."""

    name: str
    content: bytes
    path: str = ""


def check_payload(subject: Subject) -> tuple[Finding, ...]:
    """Search what each task's agent gets for values of the lanes that it must not see."""
    problems = [problem for task in subject.tasks for problem in _problems(subject, task)]
    return findings(
        Rule.PAYLOAD,
        problems,
        summary(len(subject.tasks), "what the agents of {} tasks get was searched"),
    )


def documents(subject: Subject, task: SecureBenchTask) -> Iterator[Document]:
    """Yield what an agent gets: the row's public texts, names, and the public files.

    Raises:
        PackError: A file of the task does not hold.
    """
    yield Document("the public part of the row", joined(strings(task.agent_payload())))
    plan = materialization_plan(task, Component.AGENT)
    names = [
        *plan.paths,
        *map(str, (task.environment.get(key, "") for key in ("image", "workdir"))),
    ]
    for item in plan.files:
        if item.reference is None:
            continue
        source = asset_source(subject.root, asset_root(task, item.reference.lane), item.reference)
        for below, path in plain_files(source):
            name = "/".join(filter(None, (item.path, below)))
            names.append(name)
            yield Document(f"the public file {name!r}", path.read_bytes(), name)
    yield Document("the names of files, image and folder", joined(names))


def joined(texts: Iterator[str] | list[str]) -> bytes:
    """Return texts as one haystack in which no value spans two of them."""
    return b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts)


def _problems(subject: Subject, task: SecureBenchTask) -> Iterator[FindingProblem]:
    values = hidden_values(task, subject.root, subject.reference_text(task))
    name = task_name(task.id)
    for document in documents(subject, task):
        is_small = len(document.content) <= MAX_DECODED_BYTES
        if not is_small:
            yield FindingProblem(
                name,
                f"{document.name} is too large to be searched for encoded values",
                f"look at it yourself, or make it smaller than {MAX_DECODED_BYTES} bytes",
                checked=False,
            )
        search = find if is_small else find_plain
        for hit in search(values, document.content):
            if not hit.forms and hit.value.is_input(task, document.path):
                continue
            message = f"{hit.value.name} is in {document.name} ({hit.how})"
            yield FindingProblem(name, message, _REMEDY)
