"""Copies of a pack that an audit runs: some of its rows, with its own answers or with others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from securebench.audit.subject import Subject
from securebench.benchmark.families.audit_rules import TrialRule
from securebench.benchmark.pack.oracle import ANSWERS_FILE, CANDIDATE
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE


def candidates(subject: Subject, rule: TrialRule) -> dict[str, str | None]:
    """Return the candidates of a family's rule by task id; None where a task has none."""
    return {
        task.id: own.candidate(task, subject.reference_text(task))
        for task in subject.tasks
        for own in subject.rules_of(task).trials
        if own.name == rule.name
    }


def write_trial_pack(subject: Subject, folder: Path, candidates: Mapping[str, str]) -> None:
    """Write the rows of some tasks as a pack whose reference answers are these candidates."""
    write_pack(subject, folder, candidates.keys())
    target = folder / ANSWERS_FILE
    target.parent.mkdir(exist_ok=True)
    answers = (json.dumps({"id": name, CANDIDATE: text}) for name, text in candidates.items())
    target.write_text("".join(f"{line}\n" for line in answers), encoding="utf-8")


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
