"""Findings of ``securebench pack lint`` (contract 2.2). Pure: works on a pack that was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from securebench.benchmark.families.registry import EVAL_VISIBILITY, FAMILIES
from securebench.benchmark.pack.environment import WITHOUT_EFFECT
from securebench.benchmark.pack.paths import is_at_or_below, safe_relative_path
from securebench.benchmark.reading.rows import (
    ASSET_KEYS,
    ASSET_KEYS_WITHOUT_EFFECT,
    verifier_configuration_problem,
)
from securebench.text import did_you_mean

if TYPE_CHECKING:
    from securebench.benchmark.files.load import CheckedPack
    from securebench.benchmark.pack.task import CompiledTask
    from securebench.benchmark.reading.manifest import BenchmarkManifest
    from securebench.benchmark.reading.plain import KeyPath
    from securebench.benchmark.reading.rows import BenchmarkRow

_CLOSED = ("checker", "tests", "candidate_policy")
"""Eval keys whose own keys the row schema checks."""

SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class Severity(StrEnum):
    """Errors stop a run; warnings do so with ``--strict`` only."""

    ERROR = "error"
    WARNING = "warning"


class LintRule(StrEnum):
    """What a finding is about."""

    PACK = "pack"
    UNKNOWN_KEY = "unknown-key"
    NO_EFFECT = "no-effect"
    VERIFIER_CONFIGURATION = "verifier-configuration"
    ALLOW_PATHS = "allow-paths"
    EXIT_CODE = "exit-code"
    IMAGE_DIGEST = "image-digest"
    ASSET_KEY = "asset-key"
    ASSET_ROOTS = "asset-roots"
    SECRET_NAME = "secret-name"  # noqa: S105 - a rule's name
    ARTIFACT_PATH = "artifact-path"
    GRADER = "grader"
    TOLERANCE = "tolerance"
    ISOLATION = "isolation"


_HINTS: Final[Mapping[LintRule, str]] = {
    LintRule.UNKNOWN_KEY: "remove it; notes of your own belong in a row's metadata",
    LintRule.NO_EFFECT: "remove it",
    LintRule.VERIFIER_CONFIGURATION: "correct eval of the row",
    LintRule.EXIT_CODE: "start pytest itself in the command; docs/reference/checks.md says how",
    LintRule.ALLOW_PATHS: "list what a fix may change in candidate_policy.allow_paths",
    LintRule.IMAGE_DIGEST: "write name@sha256:<64 hex digits>",
    LintRule.ASSET_KEY: "remove it",
    LintRule.ASSET_ROOTS: "name two folders of which none lies in the other",
    LintRule.SECRET_NAME: "remove it unless the agent is meant to have it",
    LintRule.ARTIFACT_PATH: "remove artifact_path",
    LintRule.GRADER: "correct it",
    LintRule.ISOLATION: "set eval.tests.isolation to shared where the tests need it",
    LintRule.TOLERANCE: "say in eval.tolerance how far a number may be off",
}
"""What to do, by rule; defects of the pack itself say it in their message."""

_INPUT_KEY: Final = re.compile(r"\binput\.\w+")


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One error or warning.

    Args:
        path: File as the user named it, or None.
        line: Number from 1, or None.
        message: One sentence; no hidden value.
        rule: For filters; `securebench run` prints ``unknown-key``.
    """

    severity: Severity
    path: str | None
    line: int | None
    message: str
    rule: LintRule = LintRule.PACK

    @property
    def hint(self) -> str:
        """What to do, or empty where the message says it."""
        if self.message.endswith("?"):
            return ""
        of_input = _INPUT_KEY.search(self.message)
        if self.rule is LintRule.VERIFIER_CONFIGURATION and of_input is not None:
            return f"correct {of_input[0]}"
        return _HINTS.get(self.rule, "")

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        return f"{place}: {self.message}" if place else self.message


def lint_pack(checked: CheckedPack) -> tuple[LintFinding, ...]:
    """Return errors, then the warnings of the manifest, then those of the rows."""
    errors = [
        LintFinding(Severity.ERROR, error.path, error.line, error.reason)
        for error in checked.errors
    ]
    if checked.pack is None:
        return tuple(errors)
    path = checked.pack.tasks_path
    warnings = [
        *_manifest_warnings(checked.pack.manifest),
        *(finding for item in checked.tasks for finding in _task_warnings(item, path)),
    ]
    return (*errors, *warnings)


def lint_harness(
    env_names: Iterable[str],
    *,
    artifact_path: str | None = None,
    takes_checkout: bool = False,
    task_types: Iterable[str] | None = (),
    path: str | None = None,
) -> tuple[LintFinding, ...]:
    """Return the warnings of a harness.

    Args:
        env_names: ``harness.env``.
        artifact_path: Artifact path of a command harness, or None.
        takes_checkout: Whether the difference of a checkout is its candidate.
        task_types: Families of the pack's tasks; None where rows with errors may have others. Then
            nothing is said that depends on them.
        path: Tester YAML as the user named it.
    """
    findings = [
        _warning(
            LintRule.SECRET_NAME,
            path,
            None,
            f"harness.env {name!r} looks like a secret; the agent's container can read it",
        )
        for name in env_names
        if name.upper().endswith(SECRET_SUFFIXES)
    ]
    if task_types is None:
        return tuple(findings)
    kinds = {name: FAMILIES[name].candidate_kind for name in task_types if name in FAMILIES}
    of_workspace = sorted(name for name, kind in kinds.items() if kind == "workspace")
    if artifact_path is not None and of_workspace:
        message = (
            "harness.config.artifact_path wins over the workspace:"
            f" no {' or '.join(of_workspace)} can pass"
        )
        findings.append(_warning(LintRule.ARTIFACT_PATH, path, None, message))
    if takes_checkout and "patch" not in kinds.values():
        names = (name for name, family in FAMILIES.items() if family.candidate_kind == "patch")
        what = f"git_diff is for {' and '.join(names)} tasks"
        message = f"harness.config.extraction: {what}; the pack has none"
        findings.append(_warning(LintRule.NO_EFFECT, path, None, message))
    return tuple(findings)


def _manifest_warnings(manifest: BenchmarkManifest) -> Iterator[LintFinding]:
    for key, line in manifest.unknown_keys:
        yield _warning(LintRule.UNKNOWN_KEY, manifest.path, line, f"unknown manifest key {key!r}")
    environment = manifest.default_environment
    parent: KeyPath = ("defaults", "environment")
    for key in WITHOUT_EFFECT:
        if key in environment:
            line = manifest.lines.get((*parent, key))
            yield _without_effect(key, manifest.path, line)
    if _lacks_digest(environment):
        line = manifest.lines.get((*parent, "image"))
        yield _image_without_digest(manifest.path, line)
    public = safe_relative_path(manifest.asset_roots.public, "asset_roots.public")
    private = safe_relative_path(manifest.asset_roots.eval, "asset_roots.eval")
    if is_at_or_below(public, private) or is_at_or_below(private, public):
        message = "asset_roots overlap: a public asset could hold files of the eval root"
        line = manifest.lines.get(("asset_roots",))
        yield _warning(LintRule.ASSET_ROOTS, manifest.path, line, message)


def _task_warnings(item: CompiledTask, path: str | None) -> Iterator[LintFinding]:
    row, task = item
    for rule, message in _task_messages(item):
        context = f"task {task.id!r} ({task.task_type}): {message}"
        yield _warning(rule, path, row.line, context)
    for key in WITHOUT_EFFECT:
        if key in row.environment:
            yield _without_effect(key, path, row.line)
    if _lacks_digest(row.environment):
        yield _image_without_digest(path, row.line)


def _task_messages(item: CompiledTask) -> Iterator[tuple[LintRule, str]]:
    row, task = item
    for key in row.unknown_keys:
        yield LintRule.UNKNOWN_KEY, f"unknown row key {key!r}"
    for index, asset in enumerate(row.assets):
        for key in sorted(asset.keys() & ASSET_KEYS_WITHOUT_EFFECT):
            yield LintRule.ASSET_KEY, f"assets[{index}].{key} has no effect"
    yield from _eval_messages(row)
    problem = verifier_configuration_problem(task)
    if problem is not None:
        yield LintRule.VERIFIER_CONFIGURATION, f"this task can never score: {problem}"
    family = FAMILIES.get(task.task_type)
    for advice in () if family is None else family.advice(row.eval):
        yield LintRule(advice.rule), advice.message


def _eval_messages(row: BenchmarkRow) -> Iterator[tuple[LintRule, str]]:
    """Yield the keys without a meaning that stay hidden (contract 21.18)."""
    known = EVAL_VISIBILITY[row.family]
    for key in sorted(row.eval.keys() - known.keys()):
        yield (
            LintRule.UNKNOWN_KEY,
            f"unknown key eval.{key}, it stays hidden{did_you_mean([key], known)}",
        )
    for name, value in row.eval.items():
        if isinstance(value, Mapping) and "path" in value and name not in _CLOSED:
            for key in sorted(value.keys() - ASSET_KEYS):
                hint = did_you_mean([key], ASSET_KEYS)
                message = (
                    f"unknown key eval.{name}.{key}: the value is data and names no file{hint}"
                )
                yield LintRule.UNKNOWN_KEY, message


def _lacks_digest(environment: Mapping[str, object]) -> bool:
    image = environment.get("image")
    return isinstance(image, str) and "@sha256:" not in image


def _image_without_digest(path: str | None, line: int | None) -> LintFinding:
    return _warning(
        LintRule.IMAGE_DIGEST, path, line, "environment.image has no digest; its tag may move"
    )


def _without_effect(key: str, path: str | None, line: int | None) -> LintFinding:
    return _warning(LintRule.NO_EFFECT, path, line, f"environment.{key} has no effect")


def _warning(rule: LintRule, path: str | None, line: int | None, message: str) -> LintFinding:
    return LintFinding(Severity.WARNING, path, line, message, rule)
