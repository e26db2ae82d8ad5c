"""What a family is: row schema, lanes, candidate, verification and what it adds to a record.

Fields are the keys of ``input`` and ``eval`` with their schemas and lanes. A candidate is verified
by an algorithm that scores, by a command that checks, or by tests that call it. ``AuditRules`` is
what a family brings to the audit of a pack: an audit reads packs and images and runs trials, and
families define what it looks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import PatchJudgement, judge_patch
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.result import VerifierConfigurationError
from securebench.json_values import PATTERNS, Schema, described, object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from securebench.benchmark.resources import ResourceBundle
    from securebench.benchmark.scorers.result import VerificationResult
    from securebench.protocol.candidate import CandidateKind


@dataclass(frozen=True, slots=True)
class Field:
    """One key of ``input`` or ``eval``."""

    name: str
    schema: Schema
    required: bool = False
    lane: Lane = Lane.PUBLIC


@dataclass(frozen=True, slots=True)
class FieldSection:
    """``input`` or ``eval`` of a family; other keys are refused.

    Args:
        name: As messages show it.
        fields: In the order of the contract.
    """

    name: str
    fields: Sequence[Field] = field(default=())

    @property
    def schema(self) -> Schema:
        """The section as JSON Schema."""
        properties = {known.name: known.schema for known in self.fields}
        return object_of(properties, *(known.name for known in self.fields if known.required))


PYTEST, SCRIPT = CHECKER_SOURCES = ("pytest", "script")
"""Kinds of a file of the pack that checks a candidate."""


SEPARATE, SHARED = ISOLATIONS = ("separate", "shared")
"""Values of ``tests.isolation``: candidate and tests in containers of their own, or in one."""


SKIPS = described(
    PATTERNS,
    "Tests that may be skipped or fail as expected, by their pytest ids, with or without"
    " parameters; `*` stands for anything.",
    ["tests/test_x.py::test_on_windows"],
    [],
)


def texts_in(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return the texts of a list in a row that holds; without it none."""
    value = fields.get(name)
    return tuple(map(str, value)) if isinstance(value, Sequence) else ()


class TextVerifier(NamedTuple):
    """A scoring algorithm that runs no code of anybody.

    Attributes:
        verify: Judges a candidate, None counts as empty, by the public and the hidden values;
            raises VerifierConfigurationError for an unusable row.
        configuration_problem: Says of the same values why no candidate can be judged, or None.
    """

    verify: Callable[[str | None, Mapping[str, object], Mapping[str, object]], VerificationResult]
    configuration_problem: Callable[[Mapping[str, object], Mapping[str, object]], str | None]


def passes(scorer: TextVerifier, resources: ResourceBundle, text: str) -> bool:
    """Tell whether an answer passes; with a row that cannot be judged none does."""
    try:
        verdict = scorer.verify(text, resources.agent_payload(), resources.hidden_payload())
    except VerifierConfigurationError:
        return False
    return verdict.passed


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """How a patch of the candidate is checked (contract 14.5).

    Attributes:
        policy: Value of the row's ``candidate_policy``.
        test_paths: Paths that only the row's own patches change.
        folder: Where the tests start, in the repository; empty for its root.
    """

    policy: Mapping[str, object]
    base_commit: str
    has_setup: bool
    has_test: bool
    has_control: bool
    test_paths: frozenset[str] = frozenset()
    folder: str = ""

    @property
    def candidate_policy(self) -> CandidatePolicy:
        """The task's policy."""
        return CandidatePolicy.of(self.policy, self.test_paths, self.folder)

    def judged(self, text: str | bytes) -> PatchJudgement:
        """Return what a candidate's text says of it; never raises."""
        return judge_patch(text, self.candidate_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What a row says of the command that checks its candidate in the task's image.

    Attributes:
        command: A string for the shell or a list of words; None for a file of the pack.
        base: Absolute folder that a relative ``workdir`` starts from; empty: the workspace.
        workdir: As written, or None.
        timeouts: Seconds as written; the first that is a number holds.
        needed_commands: Commands that need a capability.
        patch: Present where the candidate is a patch to the image's repository.
        skips: Ids, or patterns of them, of tests that may be skipped.
        plugins: Plugins of the image's pytest that run beside a file of the pack.
    """

    command: object
    base: str = ""
    workdir: object = None
    timeouts: tuple[object, ...] = ()
    needed_commands: tuple[str, ...] = ()
    patch: PatchPlan | None = None
    skips: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodePlan:
    """How a candidate module is tested.

    Attributes:
        timeout_seconds: Time limit of import and tests together.
        isolation: ``separate``: candidate and tests in containers of their own; ``shared``: in
            one interpreter.
        declared: Names of builtins and standard modules that the task asks the candidate to define.
        repeat: So many calls of the tests are made again in fresh workers.
    """

    timeout_seconds: float
    isolation: str
    declared: tuple[str, ...]
    repeat: int = 0

    @property
    def is_shared(self) -> bool:
        """Whether candidate code runs where the tests run."""
        return self.isolation == SHARED


class WantedArtifact(NamedTuple):
    """A path of the agent's container that a script gets.

    Attributes:
        source: Absolute, or relative to the agent's working folder.
        exclude: Patterns of tar for what is left out of a folder.
    """

    source: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRequest:
    """What a row says of the script that leaves a reward.

    Attributes:
        script: Its path below the evaluation inputs.
        environment: In what it runs, as ``run.plan.environment.in_image`` reads it; without an
            image in the agent's.
        timeout_seconds: Its time limit, or None.
        threshold: Smallest score that passes.
        artifacts: What alone of the agent's container it gets; None: all that the agent changed
            there.
        brings_tests: Whether its image has the tests, so that none are handed to it.
    """

    script: str
    environment: Mapping[str, object] = field(default_factory=dict)
    timeout_seconds: float | None = None
    threshold: float = 1.0
    artifacts: tuple[WantedArtifact, ...] | None = None
    brings_tests: bool = False


class TaskView(Protocol):
    """The part of a task that families read."""

    @property
    def task_type(self) -> str:
        """Family name."""
        ...

    @property
    def resources(self) -> ResourceBundle:
        """Resources with lanes."""
        ...

    @property
    def environment(self) -> Mapping[str, object]:
        """Merged environment."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """Metadata of its row, and of its pack."""
        ...


class Advice(NamedTuple):
    """A warning of ``pack lint`` about a row that holds.

    Attributes:
        rule: Value of ``benchmark.lint.LintRule``.
        message: Without the row's context.
    """

    rule: str
    message: str


class AuditProblem(NamedTuple):
    """What a rule has to say about one task.

    Attributes:
        message: One sentence; never a hidden value.
        checked: False where the rule could not look.
    """

    message: str
    remedy: str
    checked: bool = True


class TaskRule(NamedTuple):
    """A rule about rows and their reference answers; families may share its name.

    Attributes:
        name: As the report has it.
        fulfilled: Said where no task has a problem, with ``{}`` for the number of tasks.
        problems: Yields what is wrong with a task; the second argument is the text of its
            reference answer, or None.
    """

    name: str
    fulfilled: str
    problems: Callable[[TaskView, str | None], Iterator[AuditProblem]]


class AnswerRule(NamedTuple):
    """The rule that reference answers pass, in the words of a family.

    Attributes:
        name: As the report has it; families with the same rule share it.
        fulfilled: As of ``TaskRule``.
    """

    name: str
    fulfilled: str
    failure: AuditProblem


class TrialRule(NamedTuple):
    """A run with candidates that a family makes from reference answers, and what must come of it.

    Attributes:
        name: As the report has it.
        fulfilled: As of ``TaskRule``.
        candidates: Returns the candidates of a task with that reference answer, by what is said
            of them; empty where a problem needs no more words.
        without: What is said of a task that has no such candidate.
        problem: Says what is wrong with the record of a candidate, or None.
        decides: Whether no audit passed without the rule.
    """

    name: str
    fulfilled: str
    candidates: Callable[[TaskView, str | None], Mapping[str, str]]
    without: AuditProblem
    problem: Callable[[Mapping[str, object]], AuditProblem | None]
    decides: bool = False


class TaskRepository(NamedTuple):
    """The repository in the image of a task.

    Attributes:
        folder: Without slashes at its ends.
        base_commit: Full hash.
        patches: What leads from the image to the solution, in order; empty where nobody knows it.
    """

    folder: str
    base_commit: str
    patches: tuple[str, ...]


ORACLE = AnswerRule(
    "oracle",
    "{} reference answers pass",
    AuditProblem(
        "it fails with the pack's reference answer",
        "correct the answer in oracle/answers.jsonl, or the check",
    ),
)


def _no_repository(_task: TaskView, _reference: str | None) -> TaskRepository | None:
    """Return None: what the image holds is no repository of the task."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRules:
    """What an audit asks of the tasks of one family.

    Attributes:
        rules: About rows and reference answers.
        answers: That reference answers pass.
        trials: Runs with other candidates.
        asks: Names of public values that put the question; a candidate that only repeats one must
            not pass.
        settings: Keys of ``eval`` whose values say how a check runs, so that instructions may quote
            them; beside those that every family has.
        repository: Returns the repository that a task's image holds, by the task and the text of
            its reference answer, or None.
    """

    rules: tuple[TaskRule, ...] = ()
    answers: AnswerRule = ORACLE
    trials: tuple[TrialRule, ...] = ()
    asks: tuple[str, ...] = ()
    settings: frozenset[str] = frozenset()
    repository: Callable[[TaskView, str | None], TaskRepository | None] = _no_repository


def collisions(search: Callable[[TaskView], Iterator[str]]) -> TaskRule:
    """Return the rule that answers which must differ also differ for the scorer (A-084).

    Args:
        search: Yields what collides in one task.
    """
    remedy = (
        "write the answers so that they differ in more than case, blanks and signs at their ends"
    )

    def problems(task: TaskView, _reference: str | None) -> Iterator[AuditProblem]:
        return (AuditProblem(message, remedy) for message in search(task))

    return TaskRule("collisions", "the scorer keeps the listed answers of {} tasks apart", problems)


def _no_problems(
    _row_input: Mapping[str, object], _row_eval: Mapping[str, object]
) -> Iterator[str]:
    """Yield nothing: the sections say everything about the family's rows."""
    return iter(())


def _no_advice(_row_eval: Mapping[str, object]) -> Iterator[Advice]:
    """Yield nothing."""
    return iter(())


def _no_texts(_task: TaskView) -> Iterator[tuple[str, str]]:
    """Yield nothing."""
    return iter(())


def _no_answer_problems(_task: TaskView) -> Iterator[str]:
    """Yield nothing."""
    return iter(())


def _as_written(
    _row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Mapping[str, object]:
    """Return ``eval`` as it is."""
    return row_eval


def _no_answer(_task: TaskView) -> str | None:
    """Return None: reference answers are a file of the pack."""
    return None


def _closed_network(_task: TaskView, _domains: Sequence[str]) -> str:
    """Return nothing: the task asks for no network."""
    return ""


def _no_metadata(_task: TaskView) -> Mapping[str, object]:
    """Return nothing: the common fields say everything."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One active family.

    Our kinds of verification read one of ``scorer``, ``check``, ``code``
    and ``reward``.

    Args:
        name: As rows and records name it.
        candidate_kind: What the agent hands in.
        verification: Name of the kind of verification (``run.plan.kinds``).
        input: Keys of ``input``; all public.
        eval: Keys of ``eval`` with their lanes; every other key is refused.
        needs: What the verifier needs of resources by name, where a task may come without a row
            or the row's schema is wider ("VC" in the contract).
        own_problem: Says why the verifier cannot work with a task that has those, or None; without
            one the scorer is asked.
        cross_problems: Yields defects that concern several keys of a row.
        required_resources: Names without which no task of the family is built.
        never_written: Hidden resources that are put on no disk.
        scorer: Algorithm that judges a text without running anything.
        check: Returns the command that checks a candidate in the task's image; asked only of tasks
            without a configuration problem.
        code: Returns how a candidate module is tested.
        reward: Returns the script that leaves a reward.
        has_checker: Whether ``eval.checker`` may name a file of the pack.
        record_metadata: Returns what records of a verdict say beside the common metadata.
        test_sources: Yields the Python sources of a row that grade, each after its name.
        patches: Yields the patches of a row that grade, each after its name.
        answer_problems: Yields what is certainly wrong with answers or tests.
        completed: Returns ``eval`` of a row with what ``input`` and ``eval`` together say.
        advice: Yields warnings about ``eval`` of a row that holds.
        audit: What an audit asks of its tasks beside what it asks of all.
        has_rows: Whether rows of a task file may name it; else folders of the pack are its tasks.
        folders: Resources whose value lists files of the task's folder, with the name of the folder
            below it. Those of the evaluation inputs lie at the root of that lane.
        answer: Returns the script that solves a task, where tasks bring their reference answers.
        prompt: Name of the public value that is the agent's whole prompt; empty: the prompt names
            the file with all values.
        asked_network: Returns what network a task asks for that a run does not open, or nothing;
            the second argument is the domains that the run opens for agents.
    """

    name: str
    candidate_kind: CandidateKind
    verification: str
    input: FieldSection
    eval: FieldSection
    scorer: TextVerifier | None = None
    check: Callable[[TaskView], CheckRequest] | None = None
    code: Callable[[TaskView], CodePlan] | None = None
    reward: Callable[[TaskView], RewardRequest] | None = None
    needs: Mapping[str, Schema] = field(default_factory=dict)
    own_problem: Callable[[TaskView], str | None] | None = None
    cross_problems: Callable[[Mapping[str, object], Mapping[str, object]], Iterator[str]] = (
        _no_problems
    )
    required_resources: tuple[str, ...] = ()
    never_written: frozenset[str] = frozenset()
    has_checker: bool = False
    record_metadata: Callable[[TaskView], Mapping[str, object]] = _no_metadata
    test_sources: Callable[[TaskView], Iterator[tuple[str, str]]] = _no_texts
    patches: Callable[[TaskView], Iterator[tuple[str, str]]] = _no_texts
    answer_problems: Callable[[TaskView], Iterator[str]] = _no_answer_problems
    completed: Callable[[Mapping[str, object], Mapping[str, object]], Mapping[str, object]] = (
        _as_written
    )
    advice: Callable[[Mapping[str, object]], Iterator[Advice]] = _no_advice
    audit: AuditRules = field(default_factory=AuditRules)
    has_rows: bool = True
    folders: Mapping[str, str] = field(default_factory=dict)
    answer: Callable[[TaskView], str | None] = _no_answer
    prompt: str = ""
    asked_network: Callable[[TaskView, Sequence[str]], str] = _closed_network

    def eval_visibility(self) -> dict[str, Lane]:
        """Return the lane of every known eval key."""
        return {known.name: known.lane for known in self.eval.fields}
