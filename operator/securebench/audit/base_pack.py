"""A copy of a pack whose answers change nothing that tests can see: do its tests fail then?

A patch that is empty is refused before any test runs, so a nop says nothing about the base. The
patch here flips the executable bit of a file that the gold patch changes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from securebench.audit.subject import Subject
from securebench.benchmark.families.repo_patch import patch_plan
from securebench.benchmark.pack.oracle import ANSWERS_FILE, CANDIDATE
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.patch.reader import read_patch
from securebench.benchmark.patch.sections import Content, Mode, NoncanonicalPatchError, Section
from securebench.core.names import REPO_PATCH
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE


def patch_without_effect(subject: Subject, task: SecureBenchTask) -> str | None:
    """Return a patch that the task's policy lets through and that no test should notice, or None.

    Args:
        subject: The pack.
        task: A repo_patch task.
    """
    gold = subject.gold_patch(task) or ""
    plan = patch_plan(task)
    try:
        sections = read_patch(gold)
    except NoncanonicalPatchError:
        return None
    data = gold.encode()
    headed = ((data[each.start : each.end].decode(), each) for each in sections)
    texts = (_flip(text, section) for text, section in headed if _stays(text, section))
    return next((text for text in texts if plan.judged(text).problem is None), None)


def write_base_pack(subject: Subject, folder: Path) -> tuple[SecureBenchTask, ...]:
    """Write a pack of the tasks for which there is a patch without effect.

    Args:
        subject: The pack.
        folder: Empty.

    Returns:
        The tasks of the written pack; nothing is written when there are none.
    """
    patches = {
        task.id: patch
        for task in subject.of_family(REPO_PATCH)
        if (patch := patch_without_effect(subject, task)) is not None
    }
    if patches:
        answers = [{"id": name, CANDIDATE: patch} for name, patch in patches.items()]
        write_pack(subject, folder, set(patches))
        target = folder / ANSWERS_FILE
        target.parent.mkdir(exist_ok=True)
        target.write_text("".join(f"{json.dumps(each)}\n" for each in answers), encoding="utf-8")
    return tuple(task for task in subject.tasks if task.id in patches)


def write_pack(subject: Subject, folder: Path, task_ids: set[str]) -> None:
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


def _stays(text: str, section: Section) -> bool:
    """Tell whether a section changes the content of a file that is there, and nothing else."""
    header = text.partition("\n@@")[0]
    return (
        "\nnew file mode" not in header
        and section.old_path == section.new_path
        and section.content is Content.HUNKS
        and not section.is_deletion
        and section.modes <= {Mode.FILE, Mode.PROGRAM}
        and len(section.modes) == 1
    )


def _flip(text: str, section: Section) -> str:
    header = text.splitlines()[0]
    old, new = Mode.FILE.value, Mode.PROGRAM.value
    if Mode.PROGRAM in section.modes:
        old, new = new, old
    return f"{header}\nold mode {old}\nnew mode {new}\n"
