"""The rules of an audit, in the order of its report.

* lint: what ``securebench pack lint`` finds (contract 2.2).
* payload: nothing that an agent gets holds a hidden value (A-001, A-002, R-23).
* image: no layer and no setting of a task's image holds a hidden value (A-005).
* history: a task's repository has no trace of commits after its base commit (A-003).
* null-answers: an answer without content scores 0 (A-082).
* oracle, nop, flaky and the trials of families: verdicts that runs of the pack must have. These
  rules are pure; they take records as ``candidates.jsonl`` has them (contract 16).

Families bring rules of their own (``Family.audit``). A rule that several families have appears once
in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from securebench.audit.images import (
    PROBE_BYTES,
    Catalogue,
    GitError,
    Image,
    LayerScanner,
    Repository,
    UnreadableImageError,
    gold_files,
    image_reference,
    images_of,
    repository_files,
    traces,
)
from securebench.audit.search import (
    HiddenValue,
    find,
    find_plain,
    hidden_values,
    plain_files,
    strings,
)
from securebench.audit.subject import (
    PACK,
    Finding,
    FindingProblem,
    Rule,
    Subject,
    TrialCandidate,
    findings,
    image_name,
    not_checked,
    summary,
    task_name,
)
from securebench.benchmark.families.base import (
    ORACLE,
    AnswerRule,
    AuditProblem,
    AuditRules,
    TaskRepository,
    TaskRule,
    TrialRule,
    passes,
)
from securebench.benchmark.families.registry import (
    FAMILIES,
    audit_rules_for,
    text_verifier,
    verifier_for_task_type,
)
from securebench.benchmark.files.load import asset_source
from securebench.benchmark.lint import LintFinding, LintRule, Severity, lint_graders, lint_pack
from securebench.benchmark.pack.lane_plan import asset_root, materialization_plan
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.benchmark.pack.paths import DEFAULT_TARGET
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Component
from securebench.errors import InvalidInputError, SecureBenchError
from securebench.run.records.reading import Record
from securebench.sizes import MIB


class _Named(Protocol):
    @property
    def name(self) -> str: ...


RuleT = TypeVar("RuleT", bound=_Named)


def task_rules() -> tuple[TaskRule, ...]:
    """Return the rules about rows, each name once."""
    return _once(rule for audit in _audits() for rule in audit.rules)


def answer_rules() -> tuple[AnswerRule, ...]:
    """Return the rules about reference answers, each name once; the common one comes first."""
    return _once((ORACLE, *(audit.answers for audit in _audits())))


def trial_rules() -> tuple[TrialRule, ...]:
    """Return the rules about runs with other candidates, each name once."""
    return _once(rule for audit in _audits() for rule in audit.trials)


def check_task_rules(subject: Subject) -> tuple[Finding, ...]:
    """Ask the family of each task for what is wrong with its row."""
    return tuple(finding for rule in task_rules() for finding in _findings(subject, rule))


def _findings(subject: Subject, rule: TaskRule) -> tuple[Finding, ...]:
    having = [
        (task, own)
        for task in subject.tasks
        for own in subject.rules_of(task).rules
        if own.name == rule.name
    ]
    problems = (
        FindingProblem(task_name(task.id), *problem)
        for task, own in having
        for problem in own.problems(task, subject.reference_text(task))
    )
    return findings(rule.name, problems, summary(len(having), rule.fulfilled))


def _audits() -> Iterator[AuditRules]:
    return (family.audit for family in FAMILIES.values())


def _once(rules: Iterable[RuleT]) -> tuple[RuleT, ...]:
    first: dict[str, RuleT] = {}
    for rule in rules:
        first.setdefault(rule.name, rule)
    return tuple(first.values())


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


MAX_DECODED_BYTES = 4 * MIB
"""Larger public files are searched for plain values only: to decode 1 MiB takes 1 to 5 s."""

_PAYLOAD_REMEDY = (
    "move it to the hidden lane or make the value another one, then push the pack again"
)


class Document(NamedTuple):
    """Something that the agent gets."""

    name: str
    content: bytes
    path: str = ""


def check_payload(subject: Subject) -> tuple[Finding, ...]:
    """Search what each task's agent gets for values of the lanes that it must not see."""
    problems = [problem for task in subject.tasks for problem in _payload_problems(subject, task)]
    return findings(
        Rule.PAYLOAD,
        problems,
        summary(len(subject.tasks), "what the agents of {} tasks get was searched"),
    )


def documents(subject: Subject, task: SecureBenchTask) -> Iterator[Document]:
    """Yield what an agent gets: the row's public texts, names, and the public files.

    Raises:
        PackError: A file of the task does not hold.
    """
    yield Document("the public part of the row", joined(strings(task.agent_payload())))
    plan = materialization_plan(task, Component.AGENT)
    names = [
        *plan.paths,
        *map(str, (task.environment.get(key, "") for key in ("image", "workdir"))),
    ]
    for item in plan.files:
        if item.reference is None:
            continue
        source = asset_source(subject.root, asset_root(task, item.reference.lane), item.reference)
        for below, path in plain_files(source):
            name = "/".join(filter(None, (item.path, below)))
            names.append(name)
            yield Document(f"the public file {name!r}", path.read_bytes(), name)
    yield Document("the names of files, image and folder", joined(names))


def joined(texts: Iterator[str] | list[str]) -> bytes:
    """Return texts as one haystack in which no value spans two of them."""
    return b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts)


def _payload_problems(subject: Subject, task: SecureBenchTask) -> Iterator[FindingProblem]:
    values = hidden_values(task, subject.root, subject.reference_text(task))
    name = task_name(task.id)
    for document in documents(subject, task):
        is_small = len(document.content) <= MAX_DECODED_BYTES
        if not is_small:
            yield FindingProblem(
                name,
                f"{document.name} is too large to be searched for encoded values",
                f"look at it yourself, or make it smaller than {MAX_DECODED_BYTES} bytes",
                checked=False,
            )
        search = find if is_small else find_plain
        for hit in search(values, document.content):
            if not hit.forms and hit.value.is_input(task, document.path):
                continue
            message = f"{hit.value.name} is in {document.name} ({hit.how})"
            yield FindingProblem(name, message, _PAYLOAD_REMEDY)


_IMAGE_REMEDY = (
    "build the image without it; a later layer that removes a file does not take it away"
)
_EXPORT = (
    "export it (docker save -o FOLDER/NAME.tar IMAGE, or skopeo copy docker://IMAGE"
    " docker-archive:FOLDER/NAME.tar:IMAGE) and use --images FOLDER"
)
_SETTINGS = ("config", "history", "container_config", "comment", "author")
"""Parts of an image's configuration that people write."""


def check_image(subject: Subject, archives: Catalogue | None) -> tuple[Finding, ...]:
    """Search the layers and settings of every task's image."""
    problems = list(absent(subject.tasks, archives))
    tasks = [task for task in subject.tasks if images_of(task, archives)]
    values: dict[str, Sequence[HiddenValue]] = {}
    for task in tasks:
        found, trouble = _values(subject, task, images_of(task, archives))
        values[task.id] = found
        problems += trouble
    unique = {value.content: None for found in values.values() for value in found}
    scanner = LayerScanner([content for content in unique if len(content) >= PROBE_BYTES])
    for task in tasks:
        for image in images_of(task, archives):
            problems += _image_problems(task, image, scanner, values[task.id])
    return findings(
        Rule.IMAGE, problems, summary(len(tasks), "the images of {} tasks were searched")
    )


def absent(
    tasks: Iterable[SecureBenchTask], archives: Catalogue | None
) -> Iterator[FindingProblem]:
    """Yield the images of which there is no archive."""
    for reference in dict.fromkeys(map(image_reference, tasks)):
        if archives is not None and archives.of(reference):
            continue
        bad = () if archives is None else archives.unreadable.items()
        unread = "".join(f"; {file} was not read: {reason}" for file, reason in bad)
        where = "no folder of archives was named" if archives is None else "it is in no archive"
        yield FindingProblem(image_name(reference), f"{where}{unread}", _EXPORT, checked=False)


def unreadable(name: str, error: SecureBenchError) -> FindingProblem:
    """Return the finding about an image that cannot be inspected."""
    remedy = "export the image anew without zstd compression, install git, or correct the row"
    return FindingProblem(name, error.reason, remedy, checked=False)


def _values(
    subject: Subject, task: SecureBenchTask, images: Iterable[Image]
) -> tuple[list[HiddenValue], list[FindingProblem]]:
    """Return hidden values and gold-patched files, and why the latter may be missing."""
    values = list(hidden_values(task, subject.root, subject.reference_text(task)))
    repository = subject.repository(task)
    problems: list[FindingProblem] = []
    if repository is None or not repository.patches:
        return values, problems
    for image in images:
        try:
            files = gold_files(repository, repository_files(repository, image))
        except (UnreadableImageError, GitError) as error:
            problems.append(unreadable(image_name(image_reference(task)), error))
            continue
        values += [HiddenValue(f"the gold-patched {path!r}", files[path]) for path in files]
    return values, problems


def _image_problems(
    task: SecureBenchTask, image: Image, scanner: LayerScanner, values: Sequence[HiddenValue]
) -> Iterator[FindingProblem]:
    name = image_name(image_reference(task))
    for part in _SETTINGS:
        for hit in find(values, joined(strings(image.config.get(part)))):
            where = "its history" if part == "history" else f"its {part}: ENV, LABEL or the like"
            yield FindingProblem(name, f"{hit.value.name} is in {where} ({hit.how})", _IMAGE_REMEDY)
    by_content = {value.content: value for value in values}
    workdir = f"{str(task.environment.get('workdir') or DEFAULT_TARGET).strip('/')}/"
    for number, layer in enumerate(image.layers, start=1):
        try:
            scan = scanner.scan(image, layer)
        except UnreadableImageError as error:
            yield unreadable(name, error)
            continue
        for path in scan.too_large:
            message = f"the file {path!r} of layer {number} is too large to be searched"
            yield FindingProblem(name, message, "look at it yourself", checked=False)
        for path, needle in scan.hits:
            value = by_content.get(needle)
            if value is not None and not (path.startswith(workdir) and value.is_input(task, path)):
                message = f"{value.name} is in the file {path!r} of layer {number}"
                yield FindingProblem(name, message, _IMAGE_REMEDY)


def check_history(subject: Subject, archives: Catalogue | None) -> tuple[Finding, ...]:
    """Inspect the repository in the image of every task that has one."""
    each = ((task, subject.repository(task)) for task in subject.tasks)
    tasks = [(task, repository) for task, repository in each if repository is not None]
    problems = [
        problem
        for task, repository in tasks
        for problem in (
            *absent([task], archives),
            *(
                p
                for image in images_of(task, archives)
                for p in _history_problems(task, repository, image)
            ),
        )
    ]
    return findings(
        Rule.HISTORY,
        problems,
        summary(len(tasks), "{} repositories hold their base commit and no more"),
    )


def _history_problems(
    task: SecureBenchTask, repository: TaskRepository, image: Image
) -> Iterator[FindingProblem]:
    name = image_name(image_reference(task))
    try:
        kept = repository_files(repository, image)
        found = Repository.of(kept, repository.folder)
        if found.is_empty:
            message = f"there is no repository in /{repository.folder}"
            yield FindingProblem(name, message, "correct environment.workdir, or the image")
            return
        for trace in traces(found, repository.base_commit, gold_files(repository, kept)):
            yield FindingProblem(name, f"the repository: {trace.message}", trace.remedy)
    except (UnreadableImageError, GitError) as error:
        yield unreadable(name, error)


NULL_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "an empty answer": "",
        "a blank answer": " \n\t\n",
        "the answer {}": "{}",
        "a refusal": "I'm sorry, but I can't help with that.",
    }
)
ECHO = "an echo of the question"


def check_null_answers(subject: Subject) -> tuple[Finding, ...]:
    """Let each text task's own scorer judge answers that say nothing."""
    tasks = [task for task in subject.tasks if text_verifier(task.task_type) is not None]
    problems = [problem for task in tasks for problem in _null_answer_problems(task)]
    return findings(
        Rule.NULL_ANSWERS, problems, summary(len(tasks), "{} text tasks give nothing for nothing")
    )


def answers_without_content(task: SecureBenchTask) -> Iterator[tuple[str, str]]:
    """Yield answers that say nothing, each with its name.

    A passage is not echoed: by the contract an accepted answer may stand within a longer text, so
    a reading task gives credit for its whole passage.
    """
    yield from NULL_ANSWERS.items()
    for name in audit_rules_for(task.task_type).asks:
        asked = task.resources.value(name)
        if isinstance(asked, str):
            yield ECHO, asked


def _null_answer_problems(task: SecureBenchTask) -> Iterator[FindingProblem]:
    scorer = text_verifier(task.task_type)
    if scorer is None:
        return
    for name, text in answers_without_content(task):
        if passes(scorer, task.resources, text):
            remedy = "change the accepted answers, or the question, so that this is none of them"
            yield FindingProblem(task_name(task.id), f"{name} passes", remedy)


Records = Sequence[Record]

_NO_VERDICT = "look at the records of the run, then audit again"


def check_answers(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """Every task passes with the pack's reference answer, in the words of its family."""
    return tuple(
        finding for rule in answer_rules() for finding in _answer_findings(subject, rule, records)
    )


def check_nop(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """No task passes when nothing is handed in."""
    problems = _judged(subject.tasks, records, _nop_problem)
    return findings(Rule.NOP, problems, summary(len(subject.tasks), "{} tasks fail with nothing"))


def check_trial(
    rule: TrialRule,
    subject: Subject,
    made: Mapping[str, Sequence[TrialCandidate]],
    records: Records,
) -> tuple[Finding, ...]:
    """Judge the run of a family's candidates.

    Args:
        made: By id of the tasks that the rule is about; none where a task has none.
        records: Records of the run.
    """
    known = _by_task(records)
    tried = [task for task in subject.tasks if made.get(task.id)]
    without = [name for name, of_task in made.items() if not of_task]
    problems = [
        *(
            replace(problem, message=f"{each.said} {problem.message}".lstrip())
            for task in tried
            for each in made[task.id]
            for problem in _judged_as(task, known.get(each.row_id), rule.problem)
        ),
        *(FindingProblem(task_name(name), *rule.without) for name in without),
    ]
    return findings(rule.name, problems, summary(len(tried), rule.fulfilled))


def check_flaky(subject: Subject, kinds: Mapping[str, Sequence[Records]]) -> tuple[Finding, ...]:
    """Each task has the same verdict in every run of a kind."""
    runs = min(map(len, kinds.values()), default=0)
    if runs <= 1:
        return not_checked(Rule.FLAKY, "the pack ran only once", "use --runs 3 or more")
    problems = [
        problem
        for kind, found in kinds.items()
        for task in subject.tasks
        for problem in _flaky(kind, task, [_by_task(records) for records in found])
    ]
    return findings(Rule.FLAKY, problems, f"{runs} runs of each kind agree")


def _judged(
    tasks: Iterable[SecureBenchTask],
    records: Records,
    problem_of: Callable[[Record], AuditProblem | None],
) -> Iterator[FindingProblem]:
    """Yield what a rule says of each record, and the tasks that have no verdict."""
    known = _by_task(records)
    for task in tasks:
        yield from _judged_as(task, known.get(task.id), problem_of)


def _judged_as(
    task: SecureBenchTask,
    record: Record | None,
    problem_of: Callable[[Record], AuditProblem | None],
) -> Iterator[FindingProblem]:
    name = task_name(task.id)
    if verifier_for_task_type(task.task_type) is None:
        message = f"the family {task.task_type!r} has no verifier"
        yield FindingProblem(name, message, "nothing: its records stay pending", checked=False)
    elif record is None or record.get("passed") is None:
        reason = None if record is None else record.get("failure_reason")
        message = f"the run has no verdict for it: {reason or 'no record'}"
        yield FindingProblem(name, message, _NO_VERDICT, checked=False)
    elif (problem := problem_of(record)) is not None:
        why = "" if record["passed"] else _why(record)
        yield FindingProblem(name, f"{problem.message}{why}", problem.remedy, problem.checked)


def _answer_findings(subject: Subject, rule: AnswerRule, records: Records) -> tuple[Finding, ...]:
    tasks = [task for task in subject.tasks if subject.rules_of(task).answers.name == rule.name]

    def problem(record: Record) -> AuditProblem | None:
        return None if record["passed"] else rule.failure

    return findings(
        rule.name, _judged(tasks, records, problem), summary(len(tasks), rule.fulfilled)
    )


def _nop_problem(record: Record) -> AuditProblem | None:
    if not record["passed"]:
        return None
    message = "it passes although nothing is handed in"
    return AuditProblem(message, "make the check require what is asked for")


def _flaky(
    kind: str, task: SecureBenchTask, runs: Sequence[Mapping[str, Record]]
) -> Iterator[FindingProblem]:
    verdicts = [run.get(task.id, {}).get("passed") for run in runs]
    passed, failed = verdicts.count(True), verdicts.count(False)
    name = task_name(task.id)
    if passed and failed:
        message = f"with the {kind} it passes in {passed} and fails in {failed} runs"
        yield FindingProblem(name, message, "make the check independent of time, order and chance")
    elif passed + failed < len(verdicts) and verifier_for_task_type(task.task_type) is not None:
        message = f"not every run with the {kind} has a verdict"
        yield FindingProblem(name, message, _NO_VERDICT, checked=False)


def _by_task(records: Records) -> dict[str, Record]:
    return {str(record.get("task_id")): record for record in records}


def _why(record: Record) -> str:
    metadata = record.get("verifier_metadata")
    facts = metadata if isinstance(metadata, Mapping) else {}
    reason = record.get("failure_reason") or facts.get("failure_reason")
    return f" ({reason})" if reason else ""
