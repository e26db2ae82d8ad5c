"""The command ``securebench pack show`` of a local pack: digests, and who sees what of a task."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from securebench.agents.harness import CommandHarness, HarnessConfig
from securebench.agents.registry import harness_config
from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.files.load import check_upload
from securebench.benchmark.pack.task import CompiledTask
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.client.output import print_json, print_line
from securebench.client.packs.source import PackFiles, pack_source, valid_pack
from securebench.client.packs.visibility import (
    TaskVisibility,
    VisibleFile,
    VisibleSide,
    task_visibility,
)
from securebench.client.submit.prepare import LocalPack
from securebench.client.submit.tester_config import TesterConfig
from securebench.client.volume.link import LOCAL_LIMITS
from securebench.errors import ConfigErrors, InvalidInputError
from securebench.text import did_you_mean, printable, printable_lines

_SHOWN_CHARACTERS = 600
"""Of one value, in text; JSON has all of it."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What is shown beside the digests: one task, by id or ``#INDEX``, or all, or none."""

    task: str | None = None
    is_all: bool = False
    as_json: bool = False


class _Summary(TypedDict):
    pack: str
    digest: str
    content: str
    files: int
    size_bytes: int
    families: dict[str, int]


def show_local(files: PackFiles, options: ShowOptions) -> int:
    """Print digests and size of a local pack, and what agent and verifier see of its tasks."""
    source = pack_source(files)
    checked = check_upload(source.manifest, source.tasks)
    pack = valid_pack(source, checked)
    harness, policy = _harness(source.config)
    visible_tasks = [
        task_visibility(index, item.task, harness, policy, source.manifest.parent)
        for index, item in _chosen(checked.tasks, options)
    ]
    if options.as_json:
        print_json({**_summary(pack, checked.tasks), "tasks": visible_tasks})
        return 0
    _print_summary(_summary(pack, checked.tasks))
    for visible in visible_tasks:
        _print_task(visible, "not chosen" if source.config is None else harness.type)
    return 0


def _harness(config: TesterConfig | None) -> tuple[HarnessConfig, VerificationPolicy]:
    if config is None:
        return CommandHarness(command=("true",)), VerificationPolicy()
    try:
        return harness_config(config.harness.type, config.harness.config), config.verification
    except ConfigErrors as broken:
        raise config.placed(broken) from None


def _chosen(
    tasks: Sequence[CompiledTask], options: ShowOptions
) -> Iterable[tuple[int, CompiledTask]]:
    if options.task is None:
        return enumerate(tasks) if options.is_all else ()
    for index, item in enumerate(tasks):
        if options.task in (item.task.id, f"#{index}"):
            return [(index, item)]
    hint = did_you_mean([options.task], [item.task.id for item in tasks])
    raise InvalidInputError(f"the pack has no task {options.task!r}{hint}")


def _summary(pack: LocalPack, tasks: Sequence[CompiledTask]) -> _Summary:
    receipt = files_receipt(pack.files, LOCAL_LIMITS)
    families = Counter(item.task.task_type for item in tasks)
    return _Summary(
        pack=pack.id,
        digest=pack.digest,
        content=receipt.digest,
        files=receipt.files,
        size_bytes=receipt.size_bytes,
        families=dict(sorted(families.items())),
    )


def _print_summary(summary: _Summary) -> None:
    families = summary["families"]
    print_line(f"pack {summary['pack']} digest={summary['digest']}")
    print_line(
        f"content={summary['content']} files={summary['files']}"
        f" size_bytes={summary['size_bytes']} tasks={sum(families.values())}"
    )
    for family, count in families.items():
        print_line(f"{family}={count}")


def _print_task(visible: TaskVisibility, harness: str) -> None:
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    table = Table(expand=True, show_lines=True)
    for side in ("the agent sees", "only the verifier sees"):
        table.add_column(side, overflow="fold")
    table.title = Text(f"{printable(visible['id'])} ({printable(visible['family'])})")
    table.title_justify = "left"
    secret = [("evaluation_inputs", visible["evaluation_inputs"]), ("hidden", visible["hidden"])]
    table.add_row(Text("\n".join(_agent_facts(visible, harness))), Text(_verifier_facts(visible)))
    table.add_row(
        Text("\n".join(_value_lines(visible["agent"]))),
        Text("\n".join(line for lane, side in secret for line in _value_lines(side, lane))),
    )
    table.add_row(
        Text("\n".join(_file_lines(visible["agent"]["files"]))),
        Text("\n".join(line for _, side in secret for line in _file_lines(side["files"]))),
    )
    console.print(table)


def _agent_facts(visible: TaskVisibility, harness: str) -> Iterator[str]:
    candidate = visible["candidate"]
    yield f"image: {printable(visible['image'])}"
    yield f"harness: {harness}, starts in {visible['working_folder']}"
    yield f"time: {_seconds(visible['agent_seconds'])}"
    yield f"network: {', '.join(visible['network']) or 'none'}"
    path = f" {candidate['path']}" if candidate["path"] else ""
    source = "" if candidate["from"] == candidate["kind"] else f" from {candidate['from']}"
    yield f"hands in: {candidate['kind']}{source}{path}"


def _verifier_facts(visible: TaskVisibility) -> str:
    how = {
        "text": "compares texts, no code of the agent runs",
        "check": "runs a check in the task's image, without network",
        "code": "calls the candidate from tests, without network",
        "none": "none: the task stays pending",
    }[visible["verifier"]]
    limit = visible["check_seconds"]
    return f"verifier: {how}" if limit is None else f"verifier: {how}\ntime: {_seconds(limit)}"


def _seconds(limit: float | None) -> str:
    return "no limit" if limit is None else f"at most {limit:g} s"


def _value_lines(side: VisibleSide, lane: str = "") -> Iterator[str]:
    for name, value in side["values"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = printable_lines(text[:_SHOWN_CHARACTERS])
        more = f"… ({len(text)} characters)" if len(text) > _SHOWN_CHARACTERS else ""
        yield f"{printable(name)}{f' [{lane}]' if lane else ''}: {shown}{more}"


def _file_lines(files: Iterable[VisibleFile]) -> Iterator[str]:
    for file in files:
        count = f", {file['files']} files" if file["files"] != 1 else ""
        only = ", read-only" if file["read_only"] else ""
        yield f"{printable(file['path'])} ({file['size_bytes']} B{count}{only})"
