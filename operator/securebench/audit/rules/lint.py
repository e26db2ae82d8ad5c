"""lint: what ``securebench pack lint`` finds (contract 2.2)."""

from __future__ import annotations

from securebench.audit.findings import PACK, Finding, FindingProblem, Rule, findings
from securebench.audit.rules.families import task_rules
from securebench.audit.subject import Subject
from securebench.benchmark.lint.graders import lint_graders
from securebench.benchmark.lint.pack_lint import LintFinding, LintRule, Severity, lint_pack
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.core.errors import InvalidInputError


def check_lint(subject: Subject) -> tuple[Finding, ...]:
    """Return errors and warnings; doubts about images and ways of running tests are not checked.

    Warnings that a family's rule of the audit has under the same name are left to that rule.
    """
    everything = (
        *lint_pack(subject.checked),
        *lint_graders(subject.checked),
        *subject.further_lint,
    )
    elsewhere = {rule.name for rule in task_rules()}
    found = [each for each in everything if each.rule.value not in elsewhere]
    problems = [*map(_problem, found), *map(_answer_problem, subject.answer_errors)]
    return findings(Rule.LINT, problems, f"{len(subject.tasks)} rows have no error and no warning")


def _problem(found: LintFinding) -> FindingProblem:
    place = ":".join(str(part) for part in (found.path, found.line) if part is not None)
    if found.rule is LintRule.IMAGE_DIGEST:
        remedy = (
            "name the image by its digest, so that the image that was audited is the one that runs"
        )
        return FindingProblem(place or PACK, found.message, remedy, checked=False)
    if found.rule is LintRule.EXIT_CODE:
        return _uncounted(place, found)
    if found.rule is LintRule.ISOLATION:
        return FindingProblem(place or PACK, found.message, found.hint, checked=False)
    kind = "error" if found.severity is Severity.ERROR else "warning"
    return FindingProblem(place or PACK, found.message, f"correct what this {kind} names")


def _uncounted(place: str, found: LintFinding) -> FindingProblem:
    remedy = "start pytest itself in the command, or see that tests.control finds what ends it"
    return FindingProblem(place, found.message, remedy, checked=False)


def _answer_problem(error: InvalidInputError) -> FindingProblem:
    line = getattr(error, "line", None)
    place = ANSWERS_FILE if line is None else f"{ANSWERS_FILE}:{line}"
    return FindingProblem(place, error.reason, "correct the file of the reference answers")
