"""Copies of a pack that an audit runs: some of its rows, with its own answers or with others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from securebench.audit.subject import Subject
from securebench.benchmark.families.audit_rules import TrialRule
from securebench.benchmark.pack.oracle import ANSWERS_FILE, CANDIDATE
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE


class TrialCandidate(NamedTuple):
    """What a trial hands in for one task.

    Attributes:
        row_id: Of its row in the trial's pack.
        said: What it is, where one task has several.
    """

    task_id: str
    row_id: str
    said: str
    text: str


def candidates(subject: Subject, rule: TrialRule) -> dict[str, tuple[TrialCandidate, ...]]:
    """Return the candidates of a family's rule by task id; none where a task has none."""
    return {
        task.id: tuple(_of_task(task.id, own.candidates(task, subject.reference_text(task))))
        for task in subject.tasks
        for own in subject.rules_of(task).trials
        if own.name == rule.name
    }


def _of_task(task_id: str, texts: Mapping[str, str]) -> Iterator[TrialCandidate]:
    for number, (said, text) in enumerate(texts.items(), start=1):
        yield TrialCandidate(task_id, f"{task_id}--{number}" if said else task_id, said, text)


def write_trial_pack(subject: Subject, folder: Path, made: Sequence[TrialCandidate]) -> None:
    """Write a pack with a row for each candidate, which is its reference answer."""
    write_pack(subject, folder, {each.task_id for each in made})
    target = folder / ANSWERS_FILE
    target.parent.mkdir(exist_ok=True)
    answers = [{"id": each.row_id, CANDIDATE: each.text} for each in made]
    _write_lines(target, answers)
    if any(each.row_id != each.task_id for each in made):
        rows = {
            row["id"]: row
            for row in map(
                json.loads, filter(None, (folder / TASKS_FILE).read_bytes().split(b"\n"))
            )
        }
        copies = [{**rows[each.task_id], "id": each.row_id} for each in made]
        _write_lines(folder / TASKS_FILE, copies)


def _write_lines(path: Path, values: Iterable[Mapping[str, object]]) -> None:
    lines = (json.dumps(value) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_pack(subject: Subject, folder: Path, task_ids: Collection[str]) -> None:
    """Write manifest, some rows, assets and reference answers of a pack under the usual names."""
    pack = subject.checked.pack
    if pack is None:
        return
    shutil.copyfile(subject.manifest, folder / MANIFEST_FILE)
    wanted = {item.row.line for item in subject.checked.tasks if item.task.id in task_ids}
    lines = [line.content for line in pack.lines if line.number in wanted]
    (folder / TASKS_FILE).write_bytes(b"".join(line + b"\n" for line in lines))
    roots = (pack.manifest.asset_roots.public, pack.manifest.asset_roots.eval)
    names = {safe_relative_path(root, "asset root") for root in roots}
    for name in sorted(names | {str(Path(ANSWERS_FILE).parent)}):
        if (subject.root / name).is_dir():
            shutil.copytree(subject.root / name, folder / name, symlinks=True, dirs_exist_ok=True)
