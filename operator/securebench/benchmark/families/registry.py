"""All families by name: the active ones, those of other packages, and those that only run.

Source: contract 7, 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.benchmark.families import (
    code_completion,
    free_response,
    harbor_task,
    multiple_choice,
    repo_patch,
    short_answer,
    terminal_task,
)
from securebench.benchmark.families.base import AuditRules
from securebench.benchmark.resources import Lane
from securebench.plugins import PluginRegistry
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from securebench.benchmark.families.base import Family, TextVerifier

FAMILIES: Final[PluginRegistry[Family]] = PluginRegistry(
    "securebench.families",
    {
        module.FAMILY.name: module.FAMILY
        for module in (
            multiple_choice,
            short_answer,
            free_response,
            code_completion,
            repo_patch,
            terminal_task,
            harbor_task,
        )
    },
)
"""The one registry of what has a schema and a verifier; everything about a family asks here."""


def row_families() -> Mapping[str, Family]:
    """Return the families that rows of a task file may name."""
    return {name: family for name, family in FAMILIES.items() if family.has_rows}


_HIDDEN, _INPUTS = Lane.HIDDEN, Lane.EVALUATION_INPUTS
DEFERRED_EVAL_VISIBILITY: Mapping[str, Mapping[str, Lane]] = {
    "tool_call": {
        "initial_state": _INPUTS,
        "expected_calls": _HIDDEN,
        "expected_final_state": _HIDDEN,
    },
    "browser_task": {"credentials": _INPUTS, "success_check": _HIDDEN},
    "desktop_task": {"success_check": _HIDDEN},
    "artifact_task": {"reference_artifact": _HIDDEN, "rubric": _HIDDEN},
    "multimodal_qa": {"answer": _HIDDEN, "rubric": _HIDDEN},
    "preference_pair": {"preference": _HIDDEN, "rubric": _HIDDEN},
}
"""Families without schema, contract and verifier; their rows run and stay pending."""


class _EvalVisibility(Mapping[str, Mapping[str, Lane]]):
    """Lanes of eval keys by family, of whatever is registered."""

    def __getitem__(self, name: str) -> Mapping[str, Lane]:
        family = FAMILIES.get(name)
        return DEFERRED_EVAL_VISIBILITY[name] if family is None else family.eval_visibility()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*row_families(), *DEFERRED_EVAL_VISIBILITY)))

    def __len__(self) -> int:
        return len(list(iter(self)))


EVAL_VISIBILITY: Final[Mapping[str, Mapping[str, Lane]]] = _EvalVisibility()


@dataclass(frozen=True, slots=True)
class Verifier:
    """How a family is verified.

    Args:
        name: The family; also ``metadata.verifier`` of its results.
        scorer: The algorithm of a text family; None where a Pod has to run a check.
    """

    name: str
    scorer: TextVerifier | None

    @property
    def is_executing(self) -> bool:
        """Tell whether a check has to run in the task's image."""
        return self.scorer is None


def verifier_for_task_type(name: str) -> Verifier | None:
    """Return the verifier of an active family, or None."""
    family = FAMILIES.get(name)
    return None if family is None else Verifier(name, family.scorer)


def text_verifier(family: str) -> TextVerifier | None:
    """Return the scoring algorithm of a text family, or None for every other name."""
    known = FAMILIES.get(family)
    return None if known is None else known.scorer


def audit_rules_for(family: str) -> AuditRules:
    """Return what a family brings to an audit; for every other name what holds for all."""
    known = FAMILIES.get(family)
    return AuditRules() if known is None else known.audit


def eval_visibility_for(family: str, key: str) -> Lane:
    """Return the lane of an eval key; unknown keys and families are hidden."""
    return EVAL_VISIBILITY.get(family, {}).get(key, Lane.HIDDEN)


def family_problems(family: str) -> Iterator[str]:
    """Yield why rows of a family cannot run: nobody knows its name (contract 21.18)."""
    known = FAMILIES.get(family)
    if known is not None and not known.has_rows:
        yield f"{family} is no family of rows: its tasks are folders with a task.toml"
    elif family not in EVAL_VISIBILITY:
        yield f"unknown family {family!r}{did_you_mean_or_known(family, EVAL_VISIBILITY)}"
