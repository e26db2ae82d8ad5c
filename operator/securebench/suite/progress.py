"""How far the cells of a round are, from the runs that are there and those that were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from securebench.json_values import object_at, text_at
from securebench.names import RERUN_ANNOTATION, SUITE_CELL_ANNOTATION
from securebench.run.api.status import (
    ConditionStatus,
    ConditionType,
    Reason,
    get_condition,
    read_conditions,
    run_end,
)
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import CellState
from securebench.suite.planning import Plan, PlannedRun, is_same_work

AGAIN = f"to run it again, set the annotation {RERUN_ANNOTATION} of the suite to a new value"


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A BenchmarkRun of a suite.

    Attributes:
        cell: The cell that it was made for.
        created_at: RFC 3339.
        reason: Why it ended; empty while it goes on.
        succeeded: Whether it is complete.
        message: Message of its condition ``Succeeded``.
        pass_rate: Pass rate of its status; empty without one.
        mean_reward: Mean reward of its status; empty without one.
    """

    name: str
    uid: str
    cell: str
    created_at: str
    spec: Mapping[str, object]
    reason: str
    succeeded: bool
    message: str
    pass_rate: Mapping[str, object]
    mean_reward: Mapping[str, object]

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return bool(self.reason)


class PastRun(NamedTuple):
    """A run that was begun, as the index of the volume has it.

    Args:
        uid: UID of its BenchmarkRun.
        run_id: Run ID of its records.
        pack_digest: Contract 15.6.
        harness_digest: Contract 15.6.
        verifier_version: Contract 15.6.
        outcome: Reason of ``Succeeded``; empty if it did not end.
        ordinal: How often these were started, from 1.
        agent_tries: Runs of its agent and model on its pack that were started up to it by the user
            who requested it.
        tries_by_others: The same by other users.
    """

    name: str
    uid: str
    run_id: str
    pack_digest: str
    harness_digest: str
    verifier_version: str
    outcome: str
    ordinal: int
    agent_tries: int = 1
    tries_by_others: int = 0


@dataclass(frozen=True, slots=True)
class CellProgress:
    """A cell of the current round.

    Attributes:
        state: How far its run is.
        run: Name of its run; empty for a cell that cannot run.
        uid: UID of the run once it is there; names its results on the volume.
        reason: Why the run ended.
        message: Why the cell cannot run, or failed.
        tries: How often it was started with the same digests; 0 if never.
        pass_rate: As its run shows it.
        mean_reward: As its run shows it.
        exists: Whether its BenchmarkRun is there.
        agent_tries: As of ``PastRun``; 0 if it was never started.
        tries_by_others: As of ``PastRun``.
    """

    cell: str
    state: CellState
    run: str = ""
    uid: str = ""
    reason: str = ""
    message: str = ""
    tries: int = 0
    pass_rate: Mapping[str, object] | None = None
    exists: bool = False
    agent_tries: int = 0
    tries_by_others: int = 0
    mean_reward: Mapping[str, object] | None = None


class EndRules(NamedTuple):
    """What the end of a run means for its cell.

    Args:
        accepts_lost_attempts: Whether a run with lost attempts counts as a result that gates judge.
        takes_looks: Whether gates judge the records of a cancelled run.
    """

    accepts_lost_attempts: bool
    takes_looks: bool

    def state(self, reason: str) -> CellState:
        """Return the state of a cell whose run ended for a reason; empty: it did not end."""
        is_good = reason == Reason.COMPLETED or (
            self.accepts_lost_attempts and reason == Reason.INCOMPLETE
        )
        if is_good:
            return CellState.SUCCEEDED
        is_stopped = self.takes_looks and reason == Reason.CANCELLED
        return CellState.STOPPED if is_stopped else CellState.FAILED


class ObservedRuns(NamedTuple):
    """Existing and past runs of a suite.

    Args:
        runs: BenchmarkRuns by name.
        past: Runs of the index by name, the first that was begun under each name.
        used: Tokens that runs with an allowance have used, by name; of those that have ended.
    """

    runs: Mapping[str, SuiteRun]
    past: Mapping[str, PastRun]
    used: Mapping[str, int] = MappingProxyType({})


def suite_run(raw: Mapping[str, object]) -> SuiteRun:
    """Return what counts of a BenchmarkRun."""
    metadata, status = object_at(raw, "metadata"), object_at(raw, "status")
    found = get_condition(read_conditions(status.get("conditions", ())), ConditionType.SUCCEEDED)
    state = found.status if found is not None else ""
    has_ended = found is not None and run_end(state, found.reason) is not None
    return SuiteRun(
        name=text_at(metadata, "name"),
        uid=text_at(metadata, "uid"),
        cell=text_at(object_at(metadata, "annotations"), SUITE_CELL_ANNOTATION),
        created_at=text_at(metadata, "creationTimestamp"),
        spec=object_at(raw, "spec"),
        reason=found.reason if found is not None and has_ended else "",
        succeeded=state == ConditionStatus.TRUE,
        message=found.message if found is not None else "",
        pass_rate=object_at(object_at(status, "score"), "passRate"),
        mean_reward=object_at(object_at(status, "score"), "meanReward"),
    )


def progress(
    plan: Plan, observed: ObservedRuns, installation: ScoreSettings, rules: EndRules
) -> tuple[CellProgress, ...]:
    """Return how far every cell is, those that cannot run last.

    Args:
        observed: What there is.
        installation: Settings that a score depends on.
        rules: What the end of a run means.
    """
    found = [_progress(run, observed, installation, rules) for run in plan.runs]
    invalid = (plan.invalid or {}).items()
    return (*found, *(CellProgress(cell, CellState.INVALID, message=why) for cell, why in invalid))


def _progress(
    planned: PlannedRun, observed: ObservedRuns, installation: ScoreSettings, rules: EndRules
) -> CellProgress:
    past = observed.past.get(planned.name)
    run = observed.runs.get(planned.name)
    if run is not None:
        return _existing_run_progress(planned, run, past, installation, rules)
    if past is None:
        return CellProgress(planned.cell, CellState.WAITING, planned.name)
    if not _is_same_past(past, planned):
        return _name_conflict(planned)
    why = f"the run ended with {past.outcome}"
    if not past.outcome:
        why = "its BenchmarkRun was deleted before it ended"
    state = rules.state(past.outcome)
    message = _end_message(state, why)
    return CellProgress(
        planned.cell,
        state,
        planned.name,
        past.uid,
        past.outcome,
        message,
        past.ordinal,
        agent_tries=past.agent_tries,
        tries_by_others=past.tries_by_others,
    )


def _end_message(state: CellState, why: str) -> str:
    if state is CellState.STOPPED:
        return f"its run was cancelled: the gate notWorse judges what it has done; {AGAIN}"
    return f"{why}; {AGAIN}" if state is CellState.FAILED else ""


def _existing_run_progress(
    planned: PlannedRun,
    run: SuiteRun,
    past: PastRun | None,
    installation: ScoreSettings,
    rules: EndRules,
) -> CellProgress:
    if past is not None and past.uid != run.uid:
        return _name_taken(planned, past, run)
    if not is_same_work(run.spec, planned, installation):
        return _name_conflict(planned)
    state, message = CellState.RUNNING, ""
    if run.has_ended:
        state = CellState.SUCCEEDED if run.succeeded else rules.state(run.reason)
        message = _end_message(state, run.message or run.reason)
    return CellProgress(
        planned.cell,
        state,
        run.name,
        run.uid,
        run.reason,
        message,
        past.ordinal if past is not None else 0,
        run.pass_rate or None,
        exists=True,
        agent_tries=past.agent_tries if past is not None else 0,
        tries_by_others=past.tries_by_others if past is not None else 0,
        mean_reward=run.mean_reward or None,
    )


def _name_conflict(planned: PlannedRun) -> CellProgress:
    return CellProgress(
        planned.cell,
        CellState.INVALID,
        planned.name,
        message=(
            f"the name of its run, {planned.name}, belongs to a run with another spec: delete that,"
            f" or set the annotation {RERUN_ANNOTATION} of the suite to a new value"
        ),
    )


def _name_taken(planned: PlannedRun, past: PastRun, run: SuiteRun) -> CellProgress:
    return CellProgress(
        planned.cell,
        CellState.INVALID,
        planned.name,
        message=(
            f"its run {planned.name} was begun with uid {past.uid}, and uid {run.uid} has that name"
            f" now: delete that, or set the annotation {RERUN_ANNOTATION} of the suite to a new"
            " value"
        ),
    )


def _is_same_past(past: PastRun, planned: PlannedRun) -> bool:
    fields = planned.fields
    wanted = (fields.run_id, fields.pack, fields.verifier)
    is_same = wanted == (past.run_id, past.pack_digest, past.verifier_version)
    # The index has the digest of an audit's answers as they were read, which nobody knows here.
    return is_same and (planned.audit or fields.harness == past.harness_digest)


def counts(cells: Iterable[CellProgress]) -> Counter[CellState]:
    """Return the number of cells by state."""
    return Counter(cell.state for cell in cells)


def to_create(
    plan: Plan, cells: Sequence[CellProgress], active: int, limit: int
) -> Iterator[PlannedRun]:
    """Yield the runs to create now, in the order of the cells.

    Args:
        cells: How far its cells are.
        active: Runs of the suite that go on, of earlier rounds too.
        limit: How many may go on at once.
    """
    waiting = {cell.run for cell in cells if cell.state is CellState.WAITING}
    wanted = [run for run in plan.runs if run.name in waiting]
    yield from wanted[: max(limit - active, 0)]


def to_delete(
    plan: Plan, runs: Iterable[SuiteRun], successful: int, failed: int
) -> Iterator[SuiteRun]:
    """Yield the runs of earlier rounds that are beyond the history limits, by cell.

    Args:
        plan: The current round, of which none goes.
        runs: Runs of the suite.
        successful: How many complete ones of a cell stay.
        failed: How many others.
    """
    current = plan.run_names
    left: dict[tuple[str, bool], int] = {}
    newest_first = sorted(runs, key=lambda run: (run.created_at, run.name), reverse=True)
    for run in newest_first:
        if run.name in current or not run.has_ended:
            continue
        kept = left.setdefault((run.cell, run.succeeded), successful if run.succeeded else failed)
        left[run.cell, run.succeeded] = kept - 1
        if kept <= 0:
            yield run
