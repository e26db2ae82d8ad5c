"""The command ``securebench pack lint``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from securebench.agents.harness import CommandHarness, HarnessConfig
from securebench.agents.registry import harness_config
from securebench.benchmark.files.load import CheckedPack, check_upload, read_answers
from securebench.benchmark.lint import LintFinding, Severity, lint_graders, lint_harness, lint_pack
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.oracle import ANSWERS_FILE, reference_answers
from securebench.client.output import print_json, print_line
from securebench.client.packs.source import PackFiles, PackSource, pack_source
from securebench.client.packs.watch import each_version
from securebench.client.submit.prepare import absent_files
from securebench.client.submit.tester_config import TesterConfig
from securebench.errors import ConfigErrors, InvalidInputError, PlacedError
from securebench.protocol.candidate import ExtractionMode


def lint(files: PackFiles, *, strict: bool, as_json: bool) -> int:
    """Lint a pack, print the findings and return the exit code."""
    findings = pack_findings(files)
    _print(findings, as_json=as_json)
    errors = _count(findings, Severity.ERROR)
    return 1 if errors or (strict and findings) else 0


def watch(files: PackFiles, *, as_json: bool) -> int:
    """Lint a pack now and after each change of its files; ends with an interrupt."""
    for _ in each_version(files):
        if not as_json:
            print_line("pack lint begins")
        _print(pack_findings(files), as_json=as_json)
    return 0


def pack_findings(files: PackFiles) -> list[LintFinding]:
    """Return what is wrong with a pack and the tester YAML that names it, errors first."""
    try:
        source = pack_source(files)
    except ConfigErrors as broken:
        return _as_findings(broken.errors)
    absent = () if source.config is None else absent_files(source.config)
    if absent:
        return [*_harness(source.config)[1], *_as_findings(absent)]
    findings = _source_findings(source)
    return sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)


def _source_findings(source: PackSource) -> list[LintFinding]:
    harness, findings = _harness(source.config)
    task_file = harness.task_file if harness is not None else TASK_FILE
    checked = check_upload(source.manifest, source.tasks, task_file=task_file)
    findings += (*lint_pack(checked), *lint_graders(checked))
    findings += _answer_findings(source.manifest.parent, checked)
    if source.config is not None:
        findings += harness_findings(source.config, harness, checked)
    return findings


def harness_findings(
    config: TesterConfig, harness: HarnessConfig | None, checked: CheckedPack
) -> tuple[LintFinding, ...]:
    """Return the warnings of the harness that a tester YAML names.

    Args:
        config: Names harness and pack.
        harness: None where its configuration does not hold.
        checked: The pack.
    """
    command = harness if isinstance(harness, CommandHarness) else None
    return lint_harness(
        config.harness.env,
        artifact_path=command.artifact_path if command is not None else None,
        takes_checkout=command is not None and command.extraction == ExtractionMode.GIT_DIFF,
        task_types=None if checked.errors else {task.task_type for _, task in checked.tasks},
        path=str(config.source),
    )


def _answer_findings(folder: Path, checked: CheckedPack) -> list[LintFinding]:
    """Return what is wrong with the reference answers: it stops audits, and runs of the oracle."""
    tasks = [item.task for item in checked.tasks]
    try:
        content = read_answers(folder)
        if content is not None:
            reference_answers(
                content,
                tasks,
                {task.id for task in tasks},
                is_whole=not checked.errors,
                path=str(folder / ANSWERS_FILE),
            )
    except ConfigErrors as broken:
        return _as_findings(broken.errors, Severity.WARNING)
    except InvalidInputError as error:
        return _as_findings([error], Severity.WARNING)
    return []


def _harness(config: TesterConfig | None) -> tuple[HarnessConfig | None, list[LintFinding]]:
    if config is None:
        return None, []
    try:
        return harness_config(config.harness.type, config.harness.config), []
    except ConfigErrors as broken:
        return None, _as_findings(config.placed(broken).errors)


def _as_findings(
    errors: Iterable[InvalidInputError], severity: Severity = Severity.ERROR
) -> list[LintFinding]:
    return [
        LintFinding(severity, error.path, error.line, error.reason)
        if isinstance(error, PlacedError)
        else LintFinding(severity, None, None, error.reason)
        for error in errors
    ]


def _print(findings: Sequence[LintFinding], *, as_json: bool) -> None:
    errors = _count(findings, Severity.ERROR)
    warnings = len(findings) - errors
    if as_json:
        items = [_as_json(finding) for finding in findings]
        print_json({"errors": errors, "warnings": warnings, "findings": items})
        return
    for finding in findings:
        hint = f"; {finding.hint}" if finding.hint else ""
        print_line(f"{finding.severity}: {finding}{hint}")
    print_line(f"pack lint errors={errors} warnings={warnings}")


def _as_json(finding: LintFinding) -> dict[str, object]:
    return {
        "severity": finding.severity.value,
        "path": finding.path,
        "line": finding.line,
        "rule": finding.rule.value,
        "message": finding.message,
        "hint": finding.hint or None,
    }


def _count(findings: Iterable[LintFinding], severity: Severity) -> int:
    return sum(1 for finding in findings if finding.severity is severity)
