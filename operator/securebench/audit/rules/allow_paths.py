"""allow-paths: the policy of a repo_patch row lets its gold patch through (contract 14.5.3)."""

from __future__ import annotations

from collections.abc import Iterator

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, summary, task_name
from securebench.audit.subject import Subject
from securebench.benchmark.families.repo_patch import patch_plan
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.patch.judgement import PatchJudgement
from securebench.core.names import REPO_PATCH


def check_allow_paths(subject: Subject) -> tuple[Finding, ...]:
    """Judge every gold patch as a candidate would be judged."""
    tasks = subject.of_family(REPO_PATCH)
    problems = [problem for task in tasks for problem in _problems(subject, task)]
    return findings(
        Rule.ALLOW_PATHS, problems, summary(len(tasks), "{} gold patches are permitted whole")
    )


def _problems(subject: Subject, task: SecureBenchTask) -> Iterator[FindingProblem]:
    name = task_name(task.id)
    plan = patch_plan(task)
    if not plan.candidate_policy.allow:
        message = "the row has no allow_paths; an agent may change every file but the default ones"
        yield FindingProblem(name, message, "list the folders that a solution needs in allow_paths")
    patch = subject.gold_patch(task)
    if patch is None:
        message = "there is no gold patch to compare with allow_paths"
        remedy = "add eval.gold_patch, or a reference answer in oracle/answers.jsonl"
        yield FindingProblem(name, message, remedy, checked=False)
        return
    judgement = plan.judged(patch)
    problem = _defect(judgement)
    if problem:
        remedy = "correct candidate_policy, or the gold patch"
        yield FindingProblem(name, f"the gold patch would be refused or cut: {problem}", remedy)


def _defect(judgement: PatchJudgement) -> str:
    """Return why less than the whole patch would be applied; empty where all of it would."""
    if judgement.problem is not None:
        reasons = (f"{path}: {why.value}" for path, why in judgement.denied.items())
        return "; ".join((judgement.message, *reasons))
    if judgement.stripped:
        return f"patch_preserved_paths leaves out {', '.join(judgement.stripped)}"
    return ""
