"""What an audit asks of the patch that solves a task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from securebench.benchmark.patch.ecosystems import INLINE_TESTS
from securebench.benchmark.patch.judgement import judge_patch
from securebench.benchmark.patch.reader import read_patch
from securebench.benchmark.patch.sections import (
    Content,
    Mode,
    NoncanonicalPatchError,
    Section,
    changed_paths,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.benchmark.patch.candidate_policy import CandidatePolicy


_INLINE = tuple(INLINE_TESTS)


def why_not_whole(gold: str, policy: CandidatePolicy) -> str:
    """Return why less than a whole patch would be applied; empty where all of it would."""
    judgement = judge_patch(gold, policy)
    if judgement.problem is not None:
        denied = judgement.denied or judgement.dropped
        reasons = (f"{path}: {why.value}" for path, why in denied.items())
        return "; ".join((judgement.message, *reasons))
    if judgement.dropped:
        reasons = (f"{path}: {why.value}" for path, why in judgement.dropped.items())
        return "; ".join(("some of its paths are not applied", *reasons))
    if judgement.stripped:
        return f"patch_preserved_paths leaves out {', '.join(judgement.stripped)}"
    return ""


_NAMES = re.compile(r"^(?:diff --git a/.+ b/|rename to |\+\+\+ b/)([^\t\n]+)", re.MULTILINE)


def test_paths(patches: Iterable[str], gold: str | None) -> frozenset[str]:
    """Return the paths that only the tests of a row change.

    What its gold patch changes too is source, and so are files of languages that keep tests in it.

    Args:
        patches: The row's own; they need not be canonical.
        gold: The patch that solves the task, where it is known.
    """
    result: set[str] = set()
    for text in patches:
        try:
            sections = read_patch(text)
        except NoncanonicalPatchError:
            result.update(_NAMES.findall(text))
            continue
        made = {each.new_path for each in sections if each.is_addition}
        changed = set(changed_paths(sections))
        result |= made | {path for path in changed if not path.lower().endswith(_INLINE)}
    return frozenset(result - (test_paths([gold], None) if gold else frozenset()))


def patch_without_effect(gold: str, policy: CandidatePolicy) -> str | None:
    """Return a patch that a policy lets through and that no test should notice, or None.

    A patch that is empty is refused before any test runs, so it says nothing about the base. This
    one flips the executable bit of a file that the gold patch changes.
    """
    try:
        sections = read_patch(gold)
    except NoncanonicalPatchError:
        return None
    data = gold.encode()
    headed = ((data[each.start : each.end].decode(), each) for each in sections)
    texts = (_flip(text, section) for text, section in headed if _stays(text, section))
    return next((text for text in texts if judge_patch(text, policy).problem is None), None)


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
