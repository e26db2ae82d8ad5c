"""What can be said of a candidate patch before anything runs (contract 14.5.1, steps 0, 3 to 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING

from securebench.verifiers.patch.model import (
    NoncanonicalPatchError,
    changed_paths,
    unique_paths,
)
from securebench.verifiers.patch.policy import Decision
from securebench.verifiers.patch.reader import read_patch, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.verifiers.patch.model import Section
    from securebench.verifiers.patch.policy import CandidatePolicy

CANDIDATE_PATCH = "candidate_patch"
CANDIDATE_POLICY = "candidate_policy"
"""Phases of contract 14.5.1."""

SHOWN_PATHS = 20
"""So many denied paths stand in a message; the metadata has all."""


class PatchProblem(Enum):
    """Why a candidate patch is not applied; the value is the failure_reason."""

    EMPTY = "empty_candidate_patch"
    NONCANONICAL = "noncanonical_candidate_patch"
    EMPTY_FILTERED = "empty_filtered_candidate_patch"
    POLICY = "candidate_patch_policy_violation"
    MISMATCH = "candidate_patch_path_mismatch"

    @property
    def phase(self) -> str:
        """Return the phase of contract 14.5.1 in which it is found."""
        return CANDIDATE_PATCH if self is PatchProblem.EMPTY else CANDIDATE_POLICY


@dataclass(frozen=True, slots=True)
class PatchJudgement:
    """What is known of a patch.

    Attributes:
        problem: Why it is not applied, or None.
        message: One plain sentence where there is a problem.
        text: What is applied; empty where there is a problem.
        paths: Declared paths of the whole patch.
        stripped: Paths of the sections that ``patch_preserved_paths`` left out.
        applied: Declared paths of the sections that are left.
        changed: Paths that are another entry after the patch.
        links: Text of the symlinks that the patch leaves, by path.
        denied: Paths that the policy denies, with the reason.
    """

    problem: PatchProblem | None = None
    message: str = ""
    text: str = ""
    paths: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def stderr(self) -> str:
        """Return what the verifier says on its error stream."""
        lines = [self.message, *(f"{path}: {why.value}" for path, why in self.denied.items())]
        return "".join(f"{line}\n" for line in lines if line)

    def metadata(self) -> dict[str, object]:
        """Return the keys of contract 14.5.1 that are known without running anything."""
        lists: dict[str, object] = {
            "candidate_patch_paths": list(self.paths),
            "stripped_candidate_patch_paths": list(self.stripped),
            "applied_candidate_patch_paths": list(self.applied),
        }
        if self.denied:
            lists["denied_candidate_patch_paths"] = list(self.denied)
        return lists


def judge_patch(text: str, policy: CandidatePolicy) -> PatchJudgement:
    """Judge a candidate patch by its text; never raises.

    Args:
        text: The candidate.
        policy: The task's policy.
    """
    if not text.strip():
        return PatchJudgement(PatchProblem.EMPTY, "empty candidate patch")
    try:
        sections = read_patch(text)
    except NoncanonicalPatchError as error:
        message = f"the candidate is not a canonical patch: {error}"
        return PatchJudgement(PatchProblem.NONCANONICAL, message)
    return _judge_sections(text, sections, policy)


def _judge_sections(
    text: str, sections: tuple[Section, ...], policy: CandidatePolicy
) -> PatchJudgement:
    is_kept = [not any(map(policy.preserved.matches, section.paths)) for section in sections]
    kept = tuple(compress(sections, is_kept))
    stripped = unique_paths(tuple(compress(sections, map(not_, is_kept))))
    paths = unique_paths(sections)
    if not kept:
        message = "the candidate patch touches preserved paths only"
        return PatchJudgement(PatchProblem.EMPTY_FILTERED, message, paths=paths, stripped=stripped)
    applied = unique_paths(kept)
    denied: dict[str, Decision] = {}
    for section in kept:
        denied |= policy.denied(section)
    if denied:
        return PatchJudgement(
            PatchProblem.POLICY,
            denial_message(denied),
            paths=paths,
            stripped=stripped,
            applied=applied,
            denied=denied,
        )
    return PatchJudgement(
        text=render(text, kept),
        paths=paths,
        stripped=stripped,
        applied=applied,
        changed=changed_paths(kept),
        links=_links(kept),
    )


def denial_message(denied: Iterable[str]) -> str:
    """Return one sentence about denied paths."""
    paths = list(denied)
    shown = ", ".join(repr(path) for path in paths[:SHOWN_PATHS])
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    return f"the candidate patch touches paths that the policy denies: {shown}{more}"


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
    decisions = {path: policy.decide(path) for path in changed}
    for path, target in changed.items():
        if target is not None and decisions[path] is Decision.ALLOWED:
            decisions[path] = policy.decide_link(path, target)
    denied = {path: why for path, why in decisions.items() if why is not Decision.ALLOWED}
    if denied:
        return PatchJudgement(PatchProblem.POLICY, denial_message(denied), denied=denied)
    message = "the paths that the patch really changed are not those that it declares"
    return PatchJudgement(PatchProblem.MISMATCH, message)
