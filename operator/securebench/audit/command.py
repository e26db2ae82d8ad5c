"""The command ``securebench audit``: arguments, output and exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from securebench.agents.registry import harness_config
from securebench.audit.auditor import AuditResources, RunPack, audit
from securebench.audit.images.archive import catalogue
from securebench.audit.report import Report, write_report
from securebench.audit.rules.verdicts import Records
from securebench.audit.subject import Subject, load_subject
from securebench.audit.trials import TrialKind, run_trial
from securebench.benchmark.files.pack_digest import pack_digest
from securebench.client.output import print_error, print_note
from securebench.client.packs.lint import harness_findings
from securebench.client.submit.tester_config import (
    TESTER_FILE,
    load_tester_config,
)
from securebench.client.volume.connection import ClusterTarget, open_connection
from securebench.core.clock import SystemClock, rfc3339
from securebench.core.errors import SecureBenchError
from securebench.core.names import logical_name
from securebench.core.unsafe_text import printable
from securebench.protocol.audit_result import AuditResult, PackAudit
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE

_HANDED_IN: Mapping[TrialKind, str] = {"oracle": "its reference answers", "nop": "nothing"}
"""What the runs of an audit hand in."""

PLAIN_WIDTH = 160
"""Columns of the table where stdout is no terminal."""

TABLE_WIDTH = 70
"""Columns below which the table has hardly any for what was found; there are lines then."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The flags.

    Attributes:
        pack: Folder of the pack; None with a config.
        config: Tester YAML that names the pack; None with a folder.
        output_dir: Folder of the report; None for ``audit-<pack id>`` in the current one.
        runs: So often the pack is run with an oracle and a nop.
    """

    pack: Path | None
    config: Path | None
    output_dir: Path | None
    limit: int | None
    images: Path | None
    runs: int
    static: bool
    target: ClusterTarget


def run_audit(options: AuditOptions) -> int:
    """Audit a pack, print and write what is found and return the exit code."""
    subject = _subject(options)
    versions: set[str] = set()
    resources = AuditResources(
        archives=None if options.images is None else catalogue(options.images),
        run_pack=None if options.static else _runner(options.target, versions),
        runs=options.runs,
    )
    audited = audit(subject, resources)
    report = Report(
        pack_id=subject.id,
        pack_digest=_digest(subject),
        tasks=len(subject.tasks),
        time=rfc3339(SystemClock().now()),
        findings=audited.findings,
        run_error=audited.run_error,
    )
    folder = options.output_dir or Path(f"audit-{logical_name(subject.id)}")
    path = write_report(report, folder)
    _show(report)
    _say(_leave(options, report, versions))
    if report.run_error:
        print_error(report.run_error)
    sys.stdout.write(f"securebench audit: {printable(report.line(path))}\n")
    sys.stdout.flush()
    return 1 if report.has_failed or report.run_error else 0


def _show(report: Report) -> None:
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    if console.width < TABLE_WIDTH:
        for line in report.lines():
            console.print(printable(line), soft_wrap=True)
    else:
        console.print(report.table())
    if report.idle_rules():
        console.print(f"not about this pack: {', '.join(report.idle_rules())}", soft_wrap=True)
    for why, rules in report.unchecked_rules().items():
        if why != report.run_error:
            console.print(printable(f"not checked: {', '.join(rules)}: {why}"), soft_wrap=True)
    for remedy in report.remedies():
        console.print(printable(remedy), soft_wrap=True)


def _subject(options: AuditOptions) -> Subject:
    folder = options.pack or Path()
    config = options.config
    if config is None and (folder / TESTER_FILE).is_file():
        config = folder / TESTER_FILE
    if config is None:
        return load_subject(folder / MANIFEST_FILE, folder / TASKS_FILE, limit=options.limit)
    loaded = load_tester_config(config)
    harness = harness_config(loaded.harness.type, loaded.harness.config)
    subject = load_subject(
        loaded.benchmark.manifest,
        loaded.benchmark.tasks,
        limit=options.limit,
        task_file=harness.task_file,
    )
    return subject.with_lint(harness_findings(loaded, harness, subject.checked))


def _digest(subject: Subject) -> str | None:
    pack = subject.checked.pack
    if pack is None or subject.checked.errors:
        return None
    return pack_digest(subject.manifest, subject.tasks_file, pack.manifest.asset_roots)


def _leave(options: AuditOptions, report: Report, versions: set[str]) -> str:
    """Leave the result on the results volume, and return what runs of the pack will say."""
    digest = report.pack_digest
    is_whole = options.limit is None or report.has_failed
    why = ""
    if not versions or digest is None:
        why = "nothing was run"
    elif len(versions) > 1:
        why = f"verifiers of versions {', '.join(sorted(versions))} judged"
    elif not is_whole or report.verdict is PackAudit.NONE:
        why = "not all of the pack was checked"
    if why or digest is None:
        return f"{why}: labels.pack_audit of its runs stays as it was"
    result = AuditResult(
        pack_digest=digest,
        verifier_version=versions.pop(),
        result=report.verdict,
        time=report.time,
        tasks=report.tasks,
        counts=report.counts(),
    )
    try:
        asyncio.run(_put(options.target, result))
    except SecureBenchError as error:
        return f"the result could not be left on the results volume: {error}"
    return f"runs of this pack say labels.pack_audit={result.result} from now on"


async def _put(target: ClusterTarget, result: AuditResult) -> None:
    async with open_connection(target) as connection:
        await connection.link.put_audit(result)


def _say(text: str) -> None:
    sys.stdout.write(f"securebench audit: {text}\n")


def _runner(target: ClusterTarget, versions: set[str]) -> RunPack:
    """Return what runs a pack and collects the versions of the verifiers that judged it."""

    def run_pack(folder: Path, kind: TrialKind, limit: int | None) -> Records:
        print_note(f"running the pack with {_HANDED_IN[kind]}, as harness {kind}")
        records = asyncio.run(run_trial(target, folder, kind, limit=limit)).records
        versions.update(str(record.get("verifier_version")) for record in records)
        return records

    return run_pack
