"""An audit: every rule, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.audit.base_pack import write_base_pack, write_pack
from securebench.audit.findings import Finding, Rule, not_checked
from securebench.audit.images.archive import Catalogue
from securebench.audit.rules.allow_paths import check_allow_paths
from securebench.audit.rules.collisions import check_collisions
from securebench.audit.rules.history import check_history
from securebench.audit.rules.image import check_image
from securebench.audit.rules.lint import check_lint
from securebench.audit.rules.null_answers import check_null_answers
from securebench.audit.rules.payload import check_payload
from securebench.audit.rules.verdicts import (
    Records,
    check_base_fails,
    check_flaky,
    check_gold_passes,
    check_nop,
    check_oracle,
)
from securebench.audit.subject import Subject
from securebench.audit.trials import TrialKind
from securebench.core.errors import SecureBenchError
from securebench.core.names import REPO_PATCH
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE

RunPack = Callable[[Path, TrialKind, int | None], Records]
"""Runs a pack's folder with an oracle or a nop, only its first rows if a number is given."""

STATIC_RULES = (
    Rule.PAYLOAD,
    Rule.ALLOW_PATHS,
    Rule.NULL_ANSWERS,
    Rule.COLLISIONS,
    Rule.IMAGE,
    Rule.HISTORY,
)
RUN_RULES = (Rule.ORACLE, Rule.NOP, Rule.BASE_FAILS, Rule.GOLD_PASSES, Rule.FLAKY)


@dataclass(frozen=True, slots=True)
class Means:
    """What an audit may use.

    Attributes:
        archives: Archives of the task images; None for none.
        run_pack: Runs the pack; None without a cluster.
        runs: So often an oracle and a nop run, at least once.
    """

    archives: Catalogue | None = None
    run_pack: RunPack | None = None
    runs: int = 1


def audit(subject: Subject, means: Means) -> tuple[Finding, ...]:
    """Return the findings of all rules; each rule has at least one."""
    found = check_lint(subject)
    if subject.checked.pack is None or subject.checked.errors or subject.answer_errors:
        remedy = "correct the errors that the rule 'lint' has found"
        rules = (*STATIC_RULES, *RUN_RULES)
        return found + _none_checked(rules, "the pack has errors and could not run", remedy)
    found += check_payload(subject)
    found += check_allow_paths(subject)
    found += check_null_answers(subject)
    found += check_collisions(subject)
    found += check_image(subject, means.archives)
    found += check_history(subject, means.archives)
    return found + _run_findings(subject, means)


def _run_findings(subject: Subject, means: Means) -> tuple[Finding, ...]:
    if means.run_pack is None:
        remedy = "leave out --static; the audit then runs the pack on the cluster"
        return _none_checked(RUN_RULES, "nothing was run", remedy)
    try:
        return tuple(_run_all(subject, means.run_pack, means.runs))
    except SecureBenchError as error:
        reason = " ".join(str(error).split())
        remedy = "correct what the message names, or use --static"
        return _none_checked(RUN_RULES, f"the pack could not be run: {reason}", remedy)


def _run_all(subject: Subject, run_pack: RunPack, runs: int) -> Iterator[Finding]:
    with TemporaryDirectory(prefix="securebench-audit-") as temporary:
        folder, limit = _trial_folder(subject, Path(temporary))
        oracle = [run_pack(folder, "oracle", limit) for _ in range(runs)]
        nop = [run_pack(folder, "nop", limit) for _ in range(runs)]
    yield from check_oracle(subject, oracle[0])
    yield from check_nop(subject, nop[0])
    yield from _base_findings(subject, run_pack)
    yield from check_gold_passes(subject, oracle[0])
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


def _base_findings(subject: Subject, run_pack: RunPack) -> tuple[Finding, ...]:
    with TemporaryDirectory(prefix="securebench-audit-") as temporary:
        folder = Path(temporary, f"{subject.manifest.resolve().parent.name}-base")
        folder.mkdir()
        tasks = write_base_pack(subject, folder)
        records = run_pack(folder, "oracle", None) if tasks else ()
    without = [task for task in subject.of_family(REPO_PATCH) if task not in tasks]
    return check_base_fails(subject, records, without)


def _none_checked(rules: Sequence[Rule], message: str, remedy: str) -> tuple[Finding, ...]:
    return tuple(finding for rule in rules for finding in not_checked(rule, message, remedy))
