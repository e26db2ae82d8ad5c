"""What a family is: row schema, lanes, contract and verifier requirements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.families.fields import Section
    from securebench.resources import Lane, ResourceBundle
    from securebench.verifiers.registry import TextVerifier

CandidateKind = Literal["text", "code", "patch", "workspace", "none"]


class TaskView(Protocol):
    """The part of a task that families look at."""

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


@dataclass(frozen=True, slots=True)
class FamilyContract:
    """What the harness side must know of a family.

    Args:
        family: Name.
        candidate_kind: What the agent hands in.
        workspace_required: Whether the agent works on a workspace or repository.
    """

    family: str
    candidate_kind: CandidateKind
    workspace_required: bool


def no_problems(_row_input: Mapping[str, object], _row_eval: Mapping[str, object]) -> Iterator[str]:
    """Yield nothing: the sections say everything about the family's rows."""
    return iter(())


def scorer_problem(scorer: TextVerifier) -> Callable[[TaskView], str | None]:
    """Return the check of a text family: what its scoring algorithm says about the task."""

    def configuration_problem(task: TaskView) -> str | None:
        resources = task.resources
        return scorer.configuration_problem(resources.agent_payload(), resources.hidden_payload())

    return configuration_problem


@dataclass(frozen=True, slots=True)
class Family:
    """One active family.

    Args:
        contract: See FamilyContract.
        input: Keys of ``input``; all public.
        eval: Keys of ``eval`` with their lanes; every other key is refused.
        configuration_problem: Says why the verifier cannot work with a task that passed the
            row schema ("VC" in the contract), or None.
        cross_problems: Yields defects that concern several keys of a row.
        required_resources: Names without which no task of the family is built.
        never_written: Hidden resources that are put on no disk.
    """

    contract: FamilyContract
    input: Section
    eval: Section
    configuration_problem: Callable[[TaskView], str | None]
    cross_problems: Callable[[Mapping[str, object], Mapping[str, object]], Iterator[str]] = (
        no_problems
    )
    required_resources: tuple[str, ...] = ()
    never_written: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The family's name."""
        return self.contract.family

    def eval_visibility(self) -> dict[str, Lane]:
        """Return the lane of every known eval key."""
        return {known.name: known.lane for known in self.eval.fields}

    def row_problems(
        self, row_input: Mapping[str, object], row_eval: Mapping[str, object]
    ) -> Iterator[str]:
        """Yield what is wrong with a row, without its context."""
        yield from self.input.problems(row_input)
        yield from self.eval.problems(row_eval)
        yield from self.cross_problems(row_input, row_eval)
