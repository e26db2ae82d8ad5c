"""Texts of patches, and a program that applies them without a question."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from securebench.benchmark.patch.reader import decoded

NO_END = "\\ No newline at end of file"
LINK_MODE, SUBMODULE_MODE = "120000", "160000"


def new_file(path: str, content: str, mode: str = "100644") -> str:
    """Return a patch that makes a file of one or more lines."""
    lines = content.splitlines()
    body = "".join(f"+{line}\n" for line in lines)
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1,{len(lines)} @@\n{body}"
    )


def new_link(path: str, target: str) -> str:
    """Return a patch that makes a symbolic link."""
    return new_file(path, target + "\n", LINK_MODE) + NO_END + "\n"


def change(path: str, old: str, new: str) -> str:
    """Return a patch that replaces the only line of a file."""
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    )


def delete(path: str, old: str) -> str:
    """Return a patch that deletes a file of one line."""
    return (
        f"diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n"
        f"@@ -1 +0,0 @@\n-{old}\n"
    )


def move(old: str, new: str, verb: str = "rename") -> str:
    """Return a patch that renames or copies a file."""
    return (
        f"diff --git a/{old} b/{new}\nsimilarity index 100%\n{verb} from {old}\n{verb} to {new}\n"
    )


def new_mode(path: str, old: str, new: str) -> str:
    """Return a patch that changes a mode."""
    return f"diff --git a/{path} b/{path}\nold mode {old}\nnew mode {new}\n"


@dataclass(slots=True)
class _Step:
    """What the naive program has read of one file."""

    source: str = ""
    target: str = ""
    verb: str = ""
    mode: str = ""
    is_deletion: bool = False
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


def naive_apply(text: str, root: Path) -> None:
    """Apply a patch as a program does that believes its names, modes and order.

    It follows links, takes names as they stand in the last header, ignores the numbers of hunks,
    and leaves what it cannot apply in a file beside.
    """
    for step in _steps(text):
        _apply(step, root)


def _steps(text: str) -> Iterator[_Step]:
    step = _Step()
    for line in text.splitlines():
        is_header = line.startswith("diff --git ")
        is_body = bool(step.added or step.removed)
        if step.target and (is_header or (is_body and line.startswith("--- "))):
            yield step
            step = _Step()
        _read(step, line)
    if step.target:
        yield step


def _read(step: _Step, line: str) -> None:
    word = line.partition(" ")[0]
    if line.startswith("diff --git "):
        step.source, step.target = map(_name, re.findall(r'"[^"]*"|\S+', line)[2:4])
    elif found := re.match(r"(rename|copy) (from|to) (.*)", line):
        step.verb = found[1]
        setattr(step, "source" if found[2] == "from" else "target", _plain(found[3]))
    elif found := re.match(r"(?:new|new file) mode (\d+)", line):
        step.mode = found[1]
    elif line.startswith("deleted file"):
        step.is_deletion = True
    elif word in ("---", "+++"):
        step.target = step.target if "/dev/null" in line else _name(line[4:].partition("\t")[0])
    elif line[:1] in "+-" and line:
        (step.added if line[0] == "+" else step.removed).append(line[1:])


def _plain(name: str) -> str:
    return decoded(name.encode()) or name


def _name(name: str) -> str:
    """Take one component off, as ``-p1`` does."""
    return _plain(name).partition("/")[2]


def _apply(step: _Step, root: Path) -> None:
    target = root / step.target
    if step.is_deletion:
        target.unlink()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if step.verb:
        take = shutil.move if step.verb == "rename" else shutil.copyfile
        take(root / step.source, target)
    if step.mode == SUBMODULE_MODE:
        target.mkdir()
    elif step.mode == LINK_MODE:
        target.unlink(missing_ok=True)
        target.symlink_to(step.added[0])
    elif step.added or step.removed:
        _write(step, target)
    if step.mode in ("100755", "100644"):
        target.chmod(int(step.mode[-3:], 8))


def _write(step: _Step, target: Path) -> None:
    now = target.read_text().splitlines() if target.exists() else []
    if not set(step.removed) <= set(now):
        target = target.with_name(target.name + ".rej")
        now = []
    kept = [line for line in now if line not in step.removed]
    target.write_text("".join(f"{line}\n" for line in [*step.added, *kept]))
