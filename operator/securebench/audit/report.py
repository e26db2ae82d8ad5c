"""The report of an audit: JSON for programs, a table for people, one line for scripts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from securebench.audit.findings import (
    NO_TASK,
    PACK,
    Finding,
    FindingOutcome,
    Rule,
)
from securebench.audit.rules.families import answer_rules, trial_rules
from securebench.core.unsafe_text import printable
from securebench.protocol.audit_result import PackAudit

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
