"""What can be said of a patch before anything runs.

``judge_patch`` judges a candidate (contract 14.5.1, steps 0, 3 to 5). The functions at the end
answer what an audit asks of the patch that solves a task.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate, islice, takewhile
from typing import TYPE_CHECKING

from securebench.benchmark.patch.candidate_policy import INLINE_TESTS
from securebench.benchmark.patch.reader import (
    Content,
    Mode,
    NoncanonicalPatchError,
    PatchTooLargeError,
    Section,
    changed_paths,
    read_patch,
    render,
    unique_paths,
    utf8,
)
from securebench.reasons import FailurePhase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from securebench.benchmark.patch.candidate_policy import CandidatePolicy, PathDecision

CANDIDATE_PATCH = "candidate_patch"
CANDIDATE_POLICY = "candidate_policy"
"""Phases of contract 14.5.1 and 15.1."""

SHOWN_PATHS = 20
"""So many denied paths stand in a message; the metadata has more."""
SHOWN_CHARACTERS = 200
"""So much of a path stands in a message."""
LISTED_PATHS = 1000
LISTED_BYTES = 1 << 16
"""So many paths, and bytes of them, stand in each list of the metadata and in what is said."""

_BLANK_PIECE = 1 << 16


class PatchProblem(Enum):
    """Why a candidate patch is not applied; the value is the failure_reason."""

    TOO_LARGE = "candidate_too_large"
    EMPTY = "empty_candidate_patch"
    NONCANONICAL = "noncanonical_candidate_patch"
    EMPTY_FILTERED = "empty_filtered_candidate_patch"
    POLICY = "candidate_patch_policy_violation"
    MISMATCH = "candidate_patch_path_mismatch"

    @property
    def phase(self) -> str:
        """Return the phase of contract 14.5.1 in which it is found."""
        phases = {
            PatchProblem.TOO_LARGE: FailurePhase.CANDIDATE_EXTRACTION,
            PatchProblem.EMPTY: CANDIDATE_PATCH,
        }
        return phases.get(self, CANDIDATE_POLICY)


@dataclass(frozen=True, slots=True)
class PatchJudgement:
    """What is known of a patch.

    Attributes:
        problem: Why it is not applied, or None.
        message: One plain sentence where there is a problem.
        text: What is applied, in UTF-8; empty where there is a problem.
        paths: Declared paths of the whole patch.
        stripped: Paths of the sections that ``patch_preserved_paths`` left out.
        dropped: Denied paths whose sections are left out, with the reason.
        applied: Declared paths of the sections that are left.
        changed: Paths that are another entry after the patch.
        links: Text of the symlinks that the patch leaves, by path.
        denied: Paths for which the patch is refused, with the reason.
    """

    problem: PatchProblem | None = None
    message: str = ""
    text: bytes = b""
    paths: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    dropped: Mapping[str, PathDecision] = field(default_factory=dict)
    applied: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, PathDecision] = field(default_factory=dict)

    @property
    def stderr(self) -> str:
        """Return what the verifier says on its error stream."""
        shown = _first(self.denied)
        left_out = len(self.denied) - len(shown)
        more = f"and {left_out} more" if left_out else ""
        lines = (self.message, *(f"{path}: {self.denied[path].value}" for path in shown), more)
        return "".join(f"{line}\n" for line in lines if line)

    def metadata(self) -> dict[str, object]:
        """Return the keys of contract 14.5.1 that are known without running anything."""
        lists = listed("candidate_patch_paths", self.paths)
        lists |= listed("stripped_candidate_patch_paths", self.stripped)
        lists |= listed("applied_candidate_patch_paths", self.applied)
        if self.dropped:
            lists |= listed("patch_dropped_paths", self.dropped)
            reasons = [self.dropped[path].value for path in _first(self.dropped)]
            lists["patch_dropped_reasons"] = reasons
        if self.denied:
            lists |= listed("denied_candidate_patch_paths", self.denied)
        return lists


def listed(name: str, paths: Collection[str]) -> dict[str, object]:
    """Return a list of paths for the metadata; a long one is cut and its length stands beside it.

    Args:
        name: Key of the list.
        paths: All of them, in their order.
    """
    shown = _first(paths)
    cut: dict[str, object] = {name: shown}
    return cut if len(shown) == len(paths) else {**cut, f"{name}_total": len(paths)}


def _first(paths: Collection[str]) -> list[str]:
    """Return the paths that stand in a list."""
    ends = accumulate(len(path.encode()) for path in paths)
    fit = islice(
        takewhile(lambda pair: pair[1] <= LISTED_BYTES, zip(paths, ends, strict=True)), LISTED_PATHS
    )
    return [path for path, _ in fit]


def judge_patch(text: str | bytes, policy: CandidatePolicy) -> PatchJudgement:
    """Judge a candidate patch by its text; never raises.

    Args:
        text: The candidate; a text stands for its UTF-8.
        policy: The task's policy.
    """
    data = utf8(text)
    if _is_blank(data):
        return PatchJudgement(PatchProblem.EMPTY, "empty candidate patch")
    try:
        sections = read_patch(data)
    except PatchTooLargeError as error:
        message = f"the candidate patch is not read to its end: {error}"
        return PatchJudgement(PatchProblem.TOO_LARGE, message)
    except NoncanonicalPatchError as error:
        message = f"the candidate is not a canonical patch: {error}"
        return PatchJudgement(PatchProblem.NONCANONICAL, message)
    return _judge_sections(data, sections, policy)


def _is_blank(data: bytes) -> bool:
    """Tell whether a text has nothing but what Unicode calls white space."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = (data[at : at + _BLANK_PIECE] for at in range(0, len(data), _BLANK_PIECE))
    return not any(decoder.decode(piece).strip() for piece in pieces)


def _judge_sections(
    data: bytes, sections: tuple[Section, ...], policy: CandidatePolicy
) -> PatchJudgement:
    """Sort the sections; a path that any of them makes in vain is named once."""
    kept: list[Section] = []
    stripped: list[Section] = []
    dropped: dict[str, PathDecision] = {}
    denied: dict[str, PathDecision] = {}
    replaced = policy.replaced(sections)
    for section in sections:
        if any(map(policy.preserved.matches, section.paths)):
            stripped.append(section)
            continue
        found = policy.denied_in(section, data[section.start : section.end], replaced)
        if found and policy.drops(found.values()):
            dropped |= found
        else:
            denied |= found
            kept.append(section)
    known = PatchJudgement(
        paths=unique_paths(sections),
        stripped=unique_paths(stripped),
        dropped=dropped,
        applied=unique_paths(kept),
    )
    if denied:
        return replace(
            known, problem=PatchProblem.POLICY, message=_denial_message(denied), denied=denied
        )
    if not kept:
        message = _nothing_left(dropped, is_stripped=bool(stripped))
        return replace(known, problem=PatchProblem.EMPTY_FILTERED, message=message)
    kept_sections = tuple(kept)
    return replace(
        known,
        text=render(data, kept_sections),
        changed=changed_paths(kept_sections),
        links=_links(kept_sections),
    )


def _nothing_left(dropped: Mapping[str, PathDecision], *, is_stripped: bool) -> str:
    """Return one sentence about a patch of which nothing is applied."""
    if not dropped:
        return "the candidate patch touches preserved paths only"
    shown = ", ".join(
        f"{_shown(path)} ({why.value})" for path, why in islice(dropped.items(), SHOWN_PATHS)
    )
    more = f" and {len(dropped) - SHOWN_PATHS} more" if len(dropped) > SHOWN_PATHS else ""
    others = ", and preserved paths" if is_stripped else ""
    return f"the candidate patch has nothing that is applied, only {shown}{more}{others}"


def _denial_message(denied: Collection[str]) -> str:
    """Return one sentence about denied paths."""
    shown = ", ".join(map(_shown, islice(denied, SHOWN_PATHS)))
    more = f" and {len(denied) - SHOWN_PATHS} more" if len(denied) > SHOWN_PATHS else ""
    return f"the candidate patch touches paths that the policy denies: {shown}{more}"


def _shown(path: str) -> str:
    """Return a path in quotes, cut where it is long."""
    return repr(path if len(path) <= SHOWN_CHARACTERS else f"{path[:SHOWN_CHARACTERS]}…")


def _links(sections: tuple[Section, ...]) -> dict[str, str]:
    links: dict[str, str] = {}
    for section in sections:
        for path in section.changed_paths:
            links.pop(path, None)
        if section.is_link and section.target is not None:
            links[section.new_path] = section.target
    return links


def judge_changes(changed: Mapping[str, str | None], policy: CandidatePolicy) -> PatchJudgement:
    """Judge what a patch really changed, where that is not what it declares (steps 8 and 9).

    Args:
        changed: Really changed paths; for those that are symlinks now, their texts.
        policy: The task's policy.

    Returns:
        A judgement with a problem and nothing of what the patch declares.
    """
    links = {path: target for path, target in changed.items() if target is not None}
    denied = policy.denied(changed, links)
    if denied:
        return PatchJudgement(PatchProblem.POLICY, _denial_message(denied), denied=denied)
    message = "the paths that the patch really changed are not those that it declares"
    return PatchJudgement(PatchProblem.MISMATCH, message)


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
