"""The command ``securebench audit``: it applies every rule to a pack and reports the findings.

Unless the audit is static, the pack also runs in the cluster: with its reference answers, which
must pass, with nothing, which must fail, and with the candidates of its families' trials. The
report is JSON for programs, a table for people and one line for scripts. The result of a whole
audit goes to the results volume, from which later runs of the pack take ``labels.pack_audit``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from securebench.agents.harness import NO_NETWORK
from securebench.agents.registry import harness_config
from securebench.audit.images import Catalogue, catalogue
from securebench.audit.rules import (
    Records,
    answer_rules,
    check_answers,
    check_flaky,
    check_history,
    check_image,
    check_lint,
    check_nop,
    check_null_answers,
    check_payload,
    check_task_rules,
    check_trial,
    task_rules,
    trial_rules,
)
from securebench.audit.subject import (
    NO_TASK,
    PACK,
    Finding,
    FindingOutcome,
    Rule,
    Subject,
    candidates,
    load_subject,
    not_checked,
    write_pack,
    write_trial_pack,
)
from securebench.benchmark.families.base import TrialRule
from securebench.benchmark.files.folders import is_folder_pack
from securebench.benchmark.files.load import pack_digest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.client.output import print_error, print_note
from securebench.client.packs import harness_findings
from securebench.client.progress import NullReporter
from securebench.client.session import open_session
from securebench.client.submit import prepare
from securebench.client.tester_config import (
    TESTER_FILE,
    BenchmarkSection,
    HarnessSection,
    RunSection,
    TesterConfig,
    load_tester_config,
)
from securebench.client.volume import ClusterTarget, open_connection
from securebench.clock import SystemClock, rfc3339
from securebench.errors import SecureBenchError
from securebench.names import logical_name
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES, AuditResult, PackAudit
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE
from securebench.run.records.reading import Record
from securebench.text import printable

TrialKind = Literal["oracle", "nop"]


@dataclass(frozen=True, slots=True)
class Trial:
    """How a pack did with an oracle or a nop.

    Attributes:
        family_by_task: Family of each task of the run, in pack order.
        scored: Records that have a verdict.
        seconds: From the first request to the last record.
    """

    pack_id: str
    family_by_task: Mapping[str, str]
    kind: TrialKind
    passed: int
    scored: int
    tasks: int
    seconds: float
    records: tuple[Record, ...]

    @property
    def score(self) -> float | None:
        """Passed by all tasks; None for a run without tasks."""
        return self.passed / self.tasks if self.tasks else None


async def run_trial(
    target: ClusterTarget,
    pack: Path,
    kind: TrialKind,
    *,
    limit: int | None = None,
    parallelism: int | None = None,
) -> Trial:
    """Run a pack with an oracle or a nop on the cluster.

    Args:
        target: Where the operator is.
        pack: Folder of the pack; its tester YAML, where it has one, says which files the pack has
            and what its verifiers may do.
        kind: What stands in for the agent.
        limit: Only the first rows; None for all.
        parallelism: Attempts at the same time; None leaves it to the API's default.

    Raises:
        ConfigErrors: The pack or its reference answers are wrong; nothing was created.
        SecureBenchError: The cluster refused, or the run ended without finishing its work.
    """
    with TemporaryDirectory(prefix="securebench-audit-") as folder:
        config = _trial_config(pack, kind, Path(folder), limit)
        prepared = prepare(config)
        begun = time.monotonic()
        async with open_session(config, prepared, NullReporter(), target, parallelism) as session:
            end = await session.execute()
        seconds = time.monotonic() - begun
        if end.exit_code != 0 or end.summary is None:
            raise SecureBenchError(end.failure())
        records = _read_records(config.run.output_dir / CANDIDATES)
    return Trial(
        pack_id=prepared.pack.id,
        family_by_task=prepared.families,
        kind=kind,
        passed=sum(record.get("passed") is True for record in records),
        scored=sum(record.get("passed") is not None for record in records),
        tasks=len(prepared.families),
        seconds=seconds,
        records=records,
    )


def _read_records(path: Path) -> tuple[Record, ...]:
    return tuple(map(decode_object, filter(None, path.read_bytes().split(b"\n"))))


def _trial_config(pack: Path, kind: TrialKind, output: Path, limit: int | None) -> TesterConfig:
    tester = pack / TESTER_FILE
    if tester.exists():
        config = load_tester_config(tester)
    else:
        benchmark = BenchmarkSection.of_folder(pack)
        run = RunSection(pack.resolve().name, output)
        config = TesterConfig(run, benchmark, HarnessSection(kind), VerificationPolicy())
    run = RunSection(f"{config.run.id}-{kind}", output, limit=limit)
    is_open = is_folder_pack(config.benchmark.manifest, config.benchmark.tasks)
    harness = HarnessSection(kind, config={"network": NO_NETWORK} if is_open else {})
    return replace(config, run=run, harness=harness, source=None, lines={})


RunPack = Callable[[Path, TrialKind, int | None], Records]
"""Runs a pack's folder with an oracle or a nop, only its first rows if a number is given."""


class Audited(NamedTuple):
    """What an audit found.

    Args:
        findings: In the order of the rules; each has at least one.
        run_error: Why the pack could not be run, or empty.
    """

    findings: tuple[Finding, ...]
    run_error: str = ""


def static_rules() -> tuple[str, ...]:
    """Return the names of the rules for which nothing runs, in the order of the report."""
    families = (rule.name for rule in task_rules())
    return (Rule.PAYLOAD, *families, Rule.NULL_ANSWERS, Rule.IMAGE, Rule.HISTORY)


def run_rules() -> tuple[str, ...]:
    """Return the names of the rules for which the pack runs, in the order of the report."""
    answers, trials = answer_rules(), trial_rules()
    names = (*(rule.name for rule in answers), Rule.NOP, *(rule.name for rule in trials))
    return (*names, Rule.FLAKY)


def every_rule() -> tuple[str, ...]:
    """Return the names of all rules, in the order of the report."""
    return (Rule.LINT, *static_rules(), *run_rules())


def audit(
    subject: Subject,
    archives: Catalogue | None = None,
    run_pack: RunPack | None = None,
    runs: int = 1,
) -> Audited:
    """Return the findings of all rules.

    Args:
        archives: Archives of the task images; None for none.
        run_pack: Runs the pack; None without a cluster.
        runs: So often an oracle and a nop run, at least once.
    """
    found = check_lint(subject)
    if subject.checked.pack is None or subject.checked.errors or subject.answer_errors:
        remedy = "correct the errors that the rule 'lint' has found"
        message = "the pack has errors and could not run"
        return Audited(found + _none_checked(every_rule()[1:], message, remedy))
    found += check_payload(subject)
    found += check_task_rules(subject)
    found += check_null_answers(subject)
    found += check_image(subject, archives)
    found += check_history(subject, archives)
    of_runs = _run_findings(subject, run_pack, runs)
    return of_runs._replace(findings=found + of_runs.findings)


def _run_findings(subject: Subject, run_pack: RunPack | None, runs: int) -> Audited:
    if run_pack is None:
        remedy = "leave out --static; the audit then runs the pack on the cluster"
        return Audited(_none_checked(run_rules(), "nothing was run", remedy))
    try:
        return Audited(tuple(_run_all(subject, run_pack, runs)))
    except SecureBenchError as error:
        message = f"the pack could not be run: {' '.join(str(error).split())}"
        remedy = "correct what the error names, or use --static"
        return Audited(_none_checked(run_rules(), message, remedy), message)


def _run_all(subject: Subject, run_pack: RunPack, runs: int) -> Iterator[Finding]:
    with TemporaryDirectory(prefix="securebench-audit-") as temporary:
        folder, limit = _trial_folder(subject, Path(temporary))
        oracle = [run_pack(folder, "oracle", limit) for _ in range(runs)]
        nop = [run_pack(folder, "nop", limit) for _ in range(runs)]
    yield from check_answers(subject, oracle[0])
    yield from check_nop(subject, nop[0])
    for rule in trial_rules():
        yield from _trial_findings(subject, run_pack, rule)
    yield from check_flaky(subject, {"oracle": oracle, "nop": nop})


def _trial_folder(subject: Subject, temporary: Path) -> tuple[Path, int | None]:
    """Return a folder in which manifest and task file have their usual names."""
    usual = (subject.root / MANIFEST_FILE, subject.root / TASKS_FILE)
    if (subject.manifest, subject.tasks_file) == usual:
        return subject.root, subject.limit
    folder = temporary / "pack"
    folder.mkdir()
    write_pack(subject, folder, {task.id for task in subject.tasks})
    return folder, None


def _trial_findings(subject: Subject, run_pack: RunPack, rule: TrialRule) -> tuple[Finding, ...]:
    made = candidates(subject, rule)
    given = [each for of_task in made.values() for each in of_task]
    records: Records = ()
    with TemporaryDirectory(prefix="securebench-audit-") as temporary:
        folder = Path(temporary, f"{subject.manifest.resolve().parent.name}-{rule.name}")
        folder.mkdir()
        if given:
            write_trial_pack(subject, folder, given)
            records = run_pack(folder, "oracle", None)
    return check_trial(rule, subject, made, records)


def _none_checked(rules: Sequence[str], message: str, remedy: str) -> tuple[Finding, ...]:
    return tuple(finding for rule in rules for finding in not_checked(rule, message, remedy))


REPORT_FILE = "audit-report.json"
SCHEMA_VERSION = "1"

_STYLES: Mapping[FindingOutcome, str] = {
    FindingOutcome.PASSED: "green",
    FindingOutcome.FAILED: "bold red",
    FindingOutcome.NOT_CHECKED: "yellow",
}


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit found.

    Attributes:
        pack_digest: ``sha256:…`` of contract 15.6; None where the pack has errors.
        time: RFC 3339, UTC.
        findings: In the order of the rules.
        run_error: Why the pack could not be run, or empty.
    """

    pack_id: str
    pack_digest: str | None
    tasks: int
    time: str
    findings: tuple[Finding, ...]
    run_error: str = ""

    @property
    def verdict(self) -> PackAudit:
        """Return what runs of this pack may say of it: ``none`` where not enough was inspected."""
        if self.has_failed:
            return PackAudit.FAILED
        unchecked = {f.rule for f in self.findings if f.outcome is FindingOutcome.NOT_CHECKED}
        return PackAudit.NONE if unchecked & _deciding() else PackAudit.PASSED

    @property
    def has_failed(self) -> bool:
        """Tell whether any finding failed."""
        return any(finding.outcome is FindingOutcome.FAILED for finding in self.findings)

    def counts(self) -> dict[str, int]:
        """Return the number of findings by outcome."""
        found = Counter(finding.outcome for finding in self.findings)
        return {outcome.value: found[outcome] for outcome in FindingOutcome}

    def as_json(self) -> dict[str, object]:
        """Return the content of the report's file."""
        return {
            "schema_version": SCHEMA_VERSION,
            "pack": {"id": self.pack_id, "digest": self.pack_digest, "tasks": self.tasks},
            "time": self.time,
            "counts": self.counts(),
            "findings": [
                {
                    "rule": finding.rule,
                    "outcome": finding.outcome.value,
                    "object": finding.object,
                    "message": finding.message,
                    "remedy": finding.remedy,
                }
                for finding in self.findings
            ],
        }

    def line(self, path: Path) -> str:
        """Return the last line on stdout, without its prefix; idle rules do not count."""
        passed = FindingOutcome.PASSED.value
        numbers = self.counts()
        numbers[passed] -= len(self.idle_rules())
        counts = " ".join(f"{name}={number}" for name, number in numbers.items())
        return f"pack={self.pack_id} {counts} report={path.resolve()}"

    def table(self) -> Table:
        """Return the findings as a table, without rules that one line names together."""
        table = Table(box=SIMPLE)
        for column in ("rule", "outcome", "object", "finding"):
            table.add_column(column, overflow="fold", no_wrap=column in {"rule", "outcome"})
        for finding in self._rows():
            table.add_row(
                finding.rule,
                Text(finding.outcome.value, style=_STYLES[finding.outcome]),
                Text(printable(finding.object)),
                Text(printable(finding.message)),
            )
        return table

    def lines(self) -> tuple[str, ...]:
        """Return the rows of the table as lines, for terminals on which it has no room."""
        return tuple(
            f"{row.rule}: {row.outcome.value}: {row.object}: {row.message}" for row in self._rows()
        )

    def idle_rules(self) -> tuple[str, ...]:
        """Return the rules that have nothing to look at in this pack."""
        return tuple(finding.rule for finding in self.findings if finding.message == NO_TASK)

    def unchecked_rules(self) -> dict[str, tuple[str, ...]]:
        """Return rules that looked at nothing for the same reason, two or more, by the reason."""
        rules: dict[str, list[str]] = defaultdict(list)
        for finding in self.findings:
            if finding.outcome is FindingOutcome.NOT_CHECKED and finding.object == PACK:
                rules[finding.message].append(finding.rule)
        return {why: tuple(names) for why, names in rules.items() if len(names) > 1}

    def _rows(self) -> list[Finding]:
        together = {NO_TASK, *self.unchecked_rules()}
        return [finding for finding in self.findings if finding.message not in together]

    def remedies(self) -> tuple[str, ...]:
        """Return what has to be done, one line for each thing, with the rules that ask for it."""
        rules: dict[str, dict[str, None]] = defaultdict(dict)
        for finding in self.findings:
            if finding.remedy:
                rules[finding.remedy][finding.rule] = None
        return tuple(f"{', '.join(names)}: {remedy}" for remedy, names in rules.items())


def _deciding() -> frozenset[str]:
    """Return the rules without which no audit passed: right answers pass, and nothing does not."""
    trials = (rule.name for rule in trial_rules() if rule.decides)
    return frozenset({Rule.NOP, *(rule.name for rule in answer_rules()), *trials})


def write_report(report: Report, folder: Path) -> Path:
    """Write the report and return where it lies.

    Raises:
        OSError: It cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / REPORT_FILE
    text = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
    return path


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
    audited = audit(
        subject,
        archives=None if options.images is None else catalogue(options.images),
        run_pack=None if options.static else _runner(options.target, versions),
        runs=options.runs,
    )
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
    if config is not None and config.is_dir() and not (config / TESTER_FILE).exists():
        folder, config = config, None
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
