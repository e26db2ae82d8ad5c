"""Whether the results of a round keep to the gates of a suite; what is undecided never passes.

Gates read the records of each cell's run. The gate notWorse requires that no cell is worse than its
baseline: one test for each cell at the end, or one after each part of the baseline's tasks, so that
the run of a cell that is worse can be stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from securebench.json_values import as_number, object_at, text_at
from securebench.protocol.grading import REWARDS
from securebench.reasons import UNREWARDED
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import ConditionStatus
from securebench.run.records.reading import (
    AttemptVerdicts,
    DecisiveDigests,
    Record,
    RecordFlaws,
    compare_in_looks,
    decisive_digests,
    first_of_each,
    incomparable,
    look_evidence,
    record_key,
    record_use,
)
from securebench.stats.cost import Price, Use, cost, dollars
from securebench.stats.intervals import AttemptReward, TaskVerdicts, mean_reward, reward_text
from securebench.stats.paired import Difference, Pair, holm, mcnemar_exact, paired_difference
from securebench.stats.sequential import Course, Look
from securebench.suite.api import Gates, NotWorse, SuiteReason, Unavailable
from securebench.text import listed


class GateVerdict(NamedTuple):
    """What one gate says.

    Args:
        passed: None if it cannot be decided.
        message: Which gate, why, and on what.
    """

    passed: bool | None
    message: str


def gate_passed(message: str) -> GateVerdict:
    """Return the verdict of a gate to which the results keep."""
    return GateVerdict(passed=True, message=message)


def gate_failed(message: str) -> GateVerdict:
    """Return the verdict of a gate to which they do not."""
    return GateVerdict(passed=False, message=message)


def gate_undecided(message: str) -> GateVerdict:
    """Return the verdict of a gate that cannot be decided."""
    return GateVerdict(passed=None, message=message)


class GateReport(NamedTuple):
    """What all gates say, as the condition ``GatesPassed``.

    Args:
        status: False if one has failed, Unknown if one cannot be decided.
        reason: Reason of the condition.
        message: Message of the condition.
    """

    status: ConditionStatus
    reason: SuiteReason
    message: str


_LOST = frozenset({Outcome.INFRASTRUCTURE.value, Outcome.PROVIDER.value})


@dataclass(frozen=True, slots=True)
class CellResults:
    """The records of one run, as far as gates ask for them.

    Attributes:
        name: How the run is called in messages.
        attempts: Records.
        lost: Attempts that the cluster or the provider lost, and those without a reward.
        tasks: Verdicts by task; 0 of 0 for a task without any.
        rows: Digest of each task's row, where known.
        uses: Models and tokens.
        digests: What a comparison must share.
        verdicts: Verdicts of the attempts that are over.
        rewards: Scores of the attempts with a verdict; empty for a run without rewards.
    """

    name: str
    attempts: int
    lost: int
    tasks: Mapping[str, TaskVerdicts]
    rows: Mapping[str, str]
    uses: tuple[Use, ...]
    digests: frozenset[DecisiveDigests]
    verdicts: AttemptVerdicts
    rewards: tuple[AttemptReward, ...] = ()


class JudgedCell(NamedTuple):
    """What the gates judge.

    Args:
        results: Results of its run.
        baseline: What it is compared with; None if nothing is named.
        tries: Runs that were ever started with its digests.
        agent_tries: Runs of its agent and model on its pack by the user who requested its run,
            whatever else differed.
        tries_by_others: The same by other users.
        is_first: Whether it is compared with the last good result of its own suite, which has none
            yet.
        is_stopped: Whether its run was cancelled; looks at a comparison count what it has done.
    """

    cell: str
    results: CellResults | Unavailable
    baseline: CellResults | Unavailable | None
    tries: int = 1
    is_first: bool = False
    is_stopped: bool = False
    agent_tries: int = 1
    tries_by_others: int = 0


def read_results(name: str, records: Iterable[Record | None]) -> CellResults | Unavailable:
    """Return what gates ask of a run's records, or why they cannot be read.

    Args:
        name: How the run is called in messages.
        records: None for a damaged line.
    """
    tasks: dict[str, TaskVerdicts] = {}
    verdicts: dict[str, dict[int, bool | None]] = {}
    rows: dict[str, str] = {}
    decisive: set[DecisiveDigests] = set()
    uses: list[Use] = []
    rewards: list[AttemptReward] = []
    has_rewards = False
    attempts = lost = 0
    flaws = RecordFlaws()
    for record in first_of_each(records, flaws):
        task, number = record_key(record)
        known, passed = tasks.get(task, TaskVerdicts(0, 0)), record.get("passed")
        has_verdict = isinstance(passed, bool)
        tasks[task] = TaskVerdicts(known.verified + has_verdict, known.passed + (passed is True))
        if record.get("outcome") != Outcome.CANCELLED:
            verdicts.setdefault(task, {})[number] = passed is True if has_verdict else None
        rows[task] = text_at(object_at(record, "digests"), "row")
        attempts, lost = attempts + 1, lost + _is_lost(record)
        score = as_number(record.get("score"))
        rewards += [] if score is None else [AttemptReward(task, score)]
        has_rewards |= object_at(record, "labels").get("grading") in REWARDS
        decisive.add(decisive_digests(record))
        uses += [use] if (use := record_use(record)) is not None else []
    if flaws:
        return Unavailable("; ".join(flaws.sentences(name)))
    if not attempts:
        return Unavailable(f"{name} has no record")
    return CellResults(
        name,
        attempts,
        lost,
        tasks,
        rows,
        tuple(uses),
        frozenset(decisive),
        verdicts,
        tuple(rewards) if has_rewards else (),
    )


def _is_lost(record: Record) -> bool:
    outcome, reason = record.get("outcome"), record.get("failure_reason")
    return outcome in _LOST or (outcome == Outcome.VERIFIER and reason in UNREWARDED)


class _Compared(NamedTuple):
    """A cell compared with its baseline over all tasks with a verdict in both.

    Args:
        course: The looks at it; None where they are not asked for.
    """

    cell: str
    difference: Difference
    lost: str
    course: Course | None


def not_worse(gate: NotWorse, cells: Sequence[JudgedCell]) -> GateVerdict:
    """Judge all cells of a round by the paired test, with an error rate for all of them together.

    Args:
        cells: All of the round.
    """
    found = [_compared(gate, cell, len(cells)) for cell in cells if not cell.is_first]
    compared = [each for each in found if isinstance(each, _Compared)]
    undecided = [each.reason for each in found if isinstance(each, Unavailable)]
    worse = list(_worse_in_looks(compared) if gate.looks else _worse_at_the_end(gate, compared))
    undecided += [text for each in compared if (text := _unfinished(each))]
    if worse:
        return gate_failed(f"notWorse: {listed([*worse, *undecided])}")
    if undecided:
        return gate_undecided(f"notWorse: {listed(undecided)}")
    blind = [text for each in compared if (text := _blind(gate, each, len(compared)))]
    if blind:
        return gate_undecided(f"notWorse: too few tasks to show any loss: {listed(blind)}")
    return gate_passed(_no_loss(gate, compared, [cell.cell for cell in cells if cell.is_first]))


class LookState(NamedTuple):
    """How far the looks at a cell are whose run goes on.

    Args:
        regression: What shows that it is worse; empty while no look does.
        next_tasks: How many tasks the next look needs; 0 if that is not known yet, None if there is
            none.
    """

    regression: str
    next_tasks: int | None


def look_state(gate: NotWorse, cell: JudgedCell, cells: int) -> LookState:
    """Look at a cell whose run goes on.

    Args:
        cell: The cell, with the records so far.
        cells: Cells of the round.
    """
    new, old = cell.results, cell.baseline
    if not isinstance(new, CellResults) or not isinstance(old, CellResults):
        return LookState("", 0)
    if any(incomparable(old.digests, new.digests)):
        return LookState("", None)
    found = _course(gate, old, new, cells)
    if found is None or found.decision is None:
        return LookState("", found.next_tasks if found is not None else None)
    decision = _regression(found)
    return LookState(_said_of_look(found, decision) if decision is not None else "", None)


def _compared(gate: NotWorse, cell: JudgedCell, cells: int) -> _Compared | Unavailable:
    """Compare a cell with its baseline, or say why it cannot be compared."""
    new, old = cell.results, cell.baseline
    if not isinstance(new, CellResults) or not isinstance(old, CellResults):
        why = old.reason if isinstance(old, Unavailable) else "no baseline is named"
        return Unavailable(f"{cell.cell}: {why}")
    for problem in incomparable(old.digests, new.digests):
        why = f"it cannot be compared with its baseline {old.name}: {problem}"
        return Unavailable(f"{cell.cell}: {why}")
    pairs = {
        task: Pair(old.tasks[task], new.tasks[task])
        for task in old.tasks
        if task in new.tasks
        and old.tasks[task].verified
        and new.tasks[task].verified
        and old.rows[task] == new.rows[task]
    }
    found = paired_difference(tuple(pairs.values()))
    if found is None:
        why = f"it has no task with a verdict in common with its baseline {old.name}"
        return Unavailable(f"{cell.cell}: {why}")
    lost = listed([task for task, pair in pairs.items() if pair.change < 0])
    return _Compared(cell.cell, found, lost, _course(gate, old, new, cells))


def _course(gate: NotWorse, old: CellResults, new: CellResults, cells: int) -> Course | None:
    """Return the looks at a cell, which share its part of the level; None without looks.

    The part is fixed before the round begins (Bonferroni): Holm's correction asks for the results
    of all cells, and a cell is stopped before the others have theirs.
    """
    if gate.looks is None:
        return None
    changed = {task for task in old.rows if task in new.rows and old.rows[task] != new.rows[task]}
    level = float(gate.level) / cells
    return compare_in_looks(old.verdicts, new.verdicts, changed, gate.looks, level)


def _regression(found: Course | None) -> Look | None:
    decision = found.decision if found is not None else None
    return decision if decision is not None and decision.value < 0 else None


def _said_of_look(found: Course, look: Look) -> str:
    points = f"{-look.value * 100:.1f} points at look {look.number} of {found.planned}"
    return f"worse by {points} {look_evidence(look, found.tasks)}"


def _worse_in_looks(compared: Sequence[_Compared]) -> Iterator[str]:
    for each in compared:
        decision = _regression(each.course)
        if each.course is not None and decision is not None:
            said = _said_of_look(each.course, decision)
            yield f"{each.cell} is {said}; lost: {each.lost}"


def _worse_at_the_end(gate: NotWorse, compared: Sequence[_Compared]) -> Iterator[str]:
    corrected = holm([each.difference.p_value for each in compared])
    for each, p_value in zip(compared, corrected, strict=True):
        found = each.difference
        if found.value < 0 and p_value <= float(gate.level):
            yield (
                f"{each.cell} is worse by {-found.value * 100:.1f} points (p = {p_value:.3g},"
                f" {found.tasks} tasks; lost: {each.lost})"
            )


def _unfinished(each: _Compared) -> str:
    """Say that a cell ended before its last look, and none decides."""
    found = each.course
    if found is None or found.decision is not None or found.next_tasks is None:
        return ""
    return (
        f"{each.cell}: its run has done {found.done} of {found.tasks} tasks of its baseline, and no"
        " look shows a loss by then"
    )


def _blind(gate: NotWorse, each: _Compared, compared: int) -> str:
    """Return the cell, and why, if even a loss of every verdict would not have been shown."""
    if each.course is None:
        # Changes of one sign have the p-value of the exact McNemar test, whatever their sizes.
        least = mcnemar_exact(each.difference.tasks, 0) * compared
        return each.cell if least > float(gate.level) else ""
    last = each.course.taken[-1]
    if last.is_decisive or not last.is_blind:
        return ""
    return f"{each.cell} ({last.lost} lost attempts could hide one)" if last.lost else each.cell


def _no_loss(gate: NotWorse, compared: Sequence[_Compared], first: Sequence[str]) -> str:
    new = f"; first result, nothing to compare with: {listed(first)}" if first else ""
    if not compared:
        return f"notWorse{new}"
    detectable = [each.difference.detectable for each in compared]
    seen = max(1.0 if each is None else each for each in detectable)
    looks = f" in {gate.looks} looks" if gate.looks else ""
    return (
        f"notWorse: no cell is worse at level {float(gate.level):g}{looks}; a loss of"
        f" {seen * 100:.1f} points would be found 4 times in 5 (one cell, level 0.05){new}"
    )


def judge(gates: Gates, cells: Sequence[JudgedCell]) -> GateReport:
    """Return what the gates say of a round that has ended.

    Args:
        cells: All of the round.
    """
    verdicts = list(_verdicts(gates, cells))
    tries = _tries(cells)
    failed = [each.message for each in verdicts if each.passed is False]
    undecided = [each.message for each in verdicts if each.passed is None]
    if failed:
        message = " | ".join([*failed, *undecided, *tries])
        return GateReport(ConditionStatus.FALSE, SuiteReason.GATES_FAILED, message)
    if undecided:
        message = " | ".join([*undecided, *tries])
        return GateReport(ConditionStatus.UNKNOWN, SuiteReason.GATES_UNDECIDED, message)
    message = " | ".join([*(each.message for each in verdicts), *tries])
    return GateReport(ConditionStatus.TRUE, SuiteReason.GATES_PASSED, message)


def _tries(cells: Sequence[JudgedCell]) -> list[str]:
    """Say which cells were run more than once, so that the best of many does not look like one."""
    same = [f"{cell.cell} {cell.tries} times" for cell in cells if cell.tries > 1]
    like = [
        f"{cell.cell} is number {cell.agent_tries}"
        for cell in cells
        if cell.agent_tries > max(cell.tries, 1)
    ]
    found = [f"the same was run before: {listed(same)}"] if same else []
    if like:
        found.append(
            f"runs of this agent and model on this pack, with any other settings: {listed(like)}"
        )
    others = [f"{cell.cell} {cell.tries_by_others}" for cell in cells if cell.tries_by_others]
    if others:
        found.append(f"more by others, which count for nothing here: {listed(others)}")
    return found


def _verdicts(gates: Gates, cells: Sequence[JudgedCell]) -> Iterator[GateVerdict]:
    missing = [cell.results.reason for cell in cells if isinstance(cell.results, Unavailable)]
    if missing:
        yield gate_undecided(f"no gate can be decided: {listed(missing)}")
        return
    stopped = [cell.cell for cell in cells if cell.is_stopped]
    if stopped:
        yield gate_undecided(f"stopped early, with no result to judge: {listed(stopped)}")
    whole = [cell for cell in cells if not cell.is_stopped]
    if gates.min_pass_rate is not None:
        yield _by_cell("minPassRate", whole, _pass_rate, Decimal(gates.min_pass_rate))
    if gates.min_mean_reward is not None:
        yield _by_cell("minMeanReward", whole, _mean_reward, Decimal(gates.min_mean_reward))
    if gates.max_lost_share is not None:
        yield _by_cell("maxLostShare", whole, _lost_share, Decimal(gates.max_lost_share))
    if gates.max_cost_micro_dollars is not None:
        yield _cost(gates, gates.max_cost_micro_dollars, cells)
    if gates.not_worse is not None:
        yield not_worse(gates.not_worse, cells)


class _CellVerdict(NamedTuple):
    passed: bool | None
    said: str


_Rule = Callable[[CellResults, Decimal], _CellVerdict]


def _by_cell(gate: str, cells: Sequence[JudgedCell], rule: _Rule, bound: Decimal) -> GateVerdict:
    found = [
        (cell.cell, rule(cell.results, bound))
        for cell in cells
        if isinstance(cell.results, CellResults)
    ]
    for state in (False, None):
        said = [f"{name} {each.said}" for name, each in found if each.passed is state]
        if said:
            return GateVerdict(passed=state, message=f"{gate}: {listed(said)}")
    return gate_passed(f"{gate}: all {len(found)} cells keep to {bound}")


def _pass_rate(results: CellResults, least: Decimal) -> _CellVerdict:
    verified = sum(task.verified for task in results.tasks.values())
    passed = sum(task.passed for task in results.tasks.values())
    if not verified:
        return _CellVerdict(None, "has no verdict")
    return _CellVerdict(
        passed >= least * verified,
        f"passed {passed} of {verified} ({passed / verified:.3f}), needed are {least}",
    )


def _mean_reward(results: CellResults, least: Decimal) -> _CellVerdict:
    mean = mean_reward(results.rewards)
    if mean is None:
        return _CellVerdict(None, "has no reward")
    said = f"has mean reward {reward_text(mean)}, needed are {least}"
    return _CellVerdict(Decimal(mean.value) >= least, said)


def _lost_share(results: CellResults, greatest: Decimal) -> _CellVerdict:
    share = results.lost / results.attempts
    return _CellVerdict(
        results.lost <= greatest * results.attempts,
        f"lost {results.lost} of {results.attempts} attempts ({share:.3f}), allowed are {greatest}",
    )


def _cost(gates: Gates, greatest: int, cells: Sequence[JudgedCell]) -> GateVerdict:
    prices = {
        each.model: Price(
            each.input,
            each.input if each.cached_input is None else each.cached_input,
            each.output,
        )
        for each in gates.prices
    }
    uses = (
        use for cell in cells if isinstance(cell.results, CellResults) for use in cell.results.uses
    )
    found = cost(uses, prices)
    said = f"maxCostMicroDollars: {found.summary}, allowed are {dollars(greatest)}"
    if found.micro_dollars > greatest:
        return gate_failed(said)
    return gate_undecided(said) if found.unpriced else gate_passed(said)
