"""An audit: every rule, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from securebench.audit.findings import Finding, Rule, not_checked
from securebench.audit.images.archive import Catalogue
from securebench.audit.rules.families import (
    answer_rules,
    check_task_rules,
    task_rules,
    trial_rules,
)
from securebench.audit.rules.history import check_history
from securebench.audit.rules.image import check_image
from securebench.audit.rules.lint import check_lint
from securebench.audit.rules.null_answers import check_null_answers
from securebench.audit.rules.payload import check_payload
from securebench.audit.rules.verdicts import (
    Records,
    check_answers,
    check_flaky,
    check_nop,
    check_trial,
)
from securebench.audit.subject import Subject
from securebench.audit.trial_pack import candidates, write_pack, write_trial_pack
from securebench.audit.trials import TrialKind
from securebench.benchmark.families.audit_rules import TrialRule
from securebench.core.errors import SecureBenchError
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE

RunPack = Callable[[Path, TrialKind, int | None], Records]
"""Runs a pack's folder with an oracle or a nop, only its first rows if a number is given."""


@dataclass(frozen=True, slots=True)
class AuditResources:
    """What an audit may use.

    Attributes:
        archives: Archives of the task images; None for none.
        run_pack: Runs the pack; None without a cluster.
        runs: So often an oracle and a nop run, at least once.
    """

    archives: Catalogue | None = None
    run_pack: RunPack | None = None
    runs: int = 1


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


def audit(subject: Subject, resources: AuditResources) -> Audited:
    """Return the findings of all rules."""
    found = check_lint(subject)
    if subject.checked.pack is None or subject.checked.errors or subject.answer_errors:
        remedy = "correct the errors that the rule 'lint' has found"
        message = "the pack has errors and could not run"
        return Audited(found + _none_checked(every_rule()[1:], message, remedy))
    found += check_payload(subject)
    found += check_task_rules(subject)
    found += check_null_answers(subject)
    found += check_image(subject, resources.archives)
    found += check_history(subject, resources.archives)
    of_runs = _run_findings(subject, resources)
    return of_runs._replace(findings=found + of_runs.findings)


def _run_findings(subject: Subject, resources: AuditResources) -> Audited:
    if resources.run_pack is None:
        remedy = "leave out --static; the audit then runs the pack on the cluster"
        return Audited(_none_checked(run_rules(), "nothing was run", remedy))
    try:
        return Audited(tuple(_run_all(subject, resources.run_pack, resources.runs)))
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
