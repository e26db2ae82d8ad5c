"""All gates of a suite, judged on the results of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from securebench.run.api.status import ConditionStatus
from securebench.stats.cost import Price, cost, dollars
from securebench.suite.api.models import Gates
from securebench.suite.api.reasons import SuiteReason
from securebench.suite.gates.not_worse import not_worse
from securebench.suite.gates.results import CellResults, JudgedCell
from securebench.suite.gates.verdict import (
    GateReport,
    GateVerdict,
    gate_failed,
    gate_passed,
    gate_undecided,
)
from securebench.text import listed


def judge(gates: Gates, cells: Sequence[JudgedCell]) -> GateReport:
    """Return what the gates say of a round that has ended.

    Args:
        gates: Gates of the suite.
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
    return found


def _verdicts(gates: Gates, cells: Sequence[JudgedCell]) -> Iterator[GateVerdict]:
    missing = [cell.results for cell in cells if isinstance(cell.results, str)]
    if missing:
        yield gate_undecided(f"no gate can be decided: {listed(missing)}")
        return
    stopped = [cell.cell for cell in cells if cell.is_stopped]
    if stopped:
        yield gate_undecided(f"stopped early, with no result to judge: {listed(stopped)}")
    whole = [cell for cell in cells if not cell.is_stopped]
    if gates.min_pass_rate is not None:
        yield _by_cell("minPassRate", whole, _pass_rate, Decimal(gates.min_pass_rate))
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
        if not isinstance(cell.results, str)
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
    uses = (use for cell in cells if not isinstance(cell.results, str) for use in cell.results.uses)
    found = cost(uses, prices)
    said = f"maxCostMicroDollars: {found.summary}, allowed are {dollars(greatest)}"
    if found.micro_dollars > greatest:
        return gate_failed(said)
    return gate_undecided(said) if found.unpriced else gate_passed(said)
