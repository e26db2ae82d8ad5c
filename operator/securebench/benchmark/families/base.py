"""What a family is: row schema, lanes, candidate, verification and what it adds to a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from securebench.benchmark.families.audit_rules import AuditRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.benchmark.families.fields import FieldSection
    from securebench.benchmark.families.verification import CheckRequest, CodePlan, TextVerifier
    from securebench.benchmark.resources import Lane, ResourceBundle
    from securebench.json_values import Schema
    from securebench.protocol.candidate import CandidateKind


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


class Advice(NamedTuple):
    """A warning of ``pack lint`` about a row that holds.

    Attributes:
        rule: Value of ``benchmark.lint.LintRule``.
        message: Without the row's context.
    """

    rule: str
    message: str


def no_problems(_row_input: Mapping[str, object], _row_eval: Mapping[str, object]) -> Iterator[str]:
    """Yield nothing: the sections say everything about the family's rows."""
    return iter(())


def no_advice(_row_eval: Mapping[str, object]) -> Iterator[Advice]:
    """Yield nothing."""
    return iter(())


def no_texts(_task: TaskView) -> Iterator[tuple[str, str]]:
    """Yield nothing."""
    return iter(())


def no_answer_problems(_task: TaskView) -> Iterator[str]:
    """Yield nothing."""
    return iter(())


def as_written(
    _row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Mapping[str, object]:
    """Return ``eval`` as it is."""
    return row_eval


def no_metadata(_task: TaskView) -> Mapping[str, object]:
    """Return nothing: the common fields say everything."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """One active family; exactly one of ``scorer``, ``check`` and ``code`` verifies its candidates.

    Args:
        name: As rows and records name it.
        candidate_kind: What the agent hands in.
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
        has_checker: Whether ``eval.checker`` may name a file of the pack.
        record_metadata: Returns what records of a verdict say beside the common metadata.
        test_sources: Yields the Python sources of a row that grade, each after its name.
        patches: Yields the patches of a row that grade, each after its name.
        answer_problems: Yields what is certainly wrong with answers or tests.
        completed: Returns ``eval`` of a row with what ``input`` and ``eval`` together say.
        advice: Yields warnings about ``eval`` of a row that holds.
        audit: What an audit asks of its tasks beside what it asks of all.
    """

    name: str
    candidate_kind: CandidateKind
    input: FieldSection
    eval: FieldSection
    scorer: TextVerifier | None = None
    check: Callable[[TaskView], CheckRequest] | None = None
    code: Callable[[TaskView], CodePlan] | None = None
    needs: Mapping[str, Schema] = field(default_factory=dict)
    own_problem: Callable[[TaskView], str | None] | None = None
    cross_problems: Callable[[Mapping[str, object], Mapping[str, object]], Iterator[str]] = (
        no_problems
    )
    required_resources: tuple[str, ...] = ()
    never_written: frozenset[str] = frozenset()
    has_checker: bool = False
    record_metadata: Callable[[TaskView], Mapping[str, object]] = no_metadata
    test_sources: Callable[[TaskView], Iterator[tuple[str, str]]] = no_texts
    patches: Callable[[TaskView], Iterator[tuple[str, str]]] = no_texts
    answer_problems: Callable[[TaskView], Iterator[str]] = no_answer_problems
    completed: Callable[[Mapping[str, object], Mapping[str, object]], Mapping[str, object]] = (
        as_written
    )
    advice: Callable[[Mapping[str, object]], Iterator[Advice]] = no_advice
    audit: AuditRules = field(default_factory=AuditRules)

    def eval_visibility(self) -> dict[str, Lane]:
        """Return the lane of every known eval key."""
        return {known.name: known.lane for known in self.eval.fields}
