"""The token budget of a suite, handed to its runs in allowances whose sum never exceeds it. Pure.

Source: decision 0088.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.api.status import Reason
from securebench.suite.api import BenchmarkSuiteSpec, CellState
from securebench.suite.planning import PlannedRun, has_provider
from securebench.suite.progress import CellProgress, ObservedRuns
from securebench.suite.rounds import SuiteState


class BudgetUse(NamedTuple):
    """What has become of a suite's budget.

    Args:
        tokens: The budget.
        used: What runs that have ended used; those that were deleted before count with all that
            they were allowed.
        allotted: Allowances of runs in progress, and of those that are about to be created.
    """

    tokens: int
    used: int
    allotted: int

    @property
    def left(self) -> int:
        """What can be handed out."""
        return max(self.tokens - self.used - self.allotted, 0)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, and nothing can come back."""
        return self.left == 0 and self.allotted == 0


def budget_use(
    spec: BenchmarkSuiteSpec, state: SuiteState, observed: ObservedRuns
) -> BudgetUse | None:
    """Return what has become of the budget of a suite; None without one."""
    if spec.budget is None:
        return None
    used = allotted = 0
    for name, allowance in state.allowances.items():
        if _is_over(name, observed):
            used += observed.used.get(name, allowance)
        else:
            allotted += allowance
    return BudgetUse(spec.budget.tokens, used, allotted)


def current_allowances(state: SuiteState, observed: ObservedRuns) -> SuiteState:
    """Return the state with the allowances that count: of this round, and of runs in progress."""
    names = state.plan.run_names
    going = {name for name, run in observed.runs.items() if not run.has_ended}
    kept = {name: of for name, of in state.allowances.items() if name in names | going}
    return replace(state, allowances=kept)


def fail_unfunded_cells(
    cells: Sequence[CellProgress], use: BudgetUse | None, state: SuiteState
) -> tuple[CellProgress, ...]:
    """Fail the waiting cells once the budget is used up, but those that use no tokens."""
    if use is None or not use.is_spent:
        return tuple(cells)
    waiting = _waiting(cells, state)
    message = f"the budget of the suite, {use.tokens} tokens, is used up: {use.used} were used"
    reason = Reason.BUDGET_EXHAUSTED.value
    return tuple(
        replace(cell, state=CellState.FAILED, reason=reason, message=message)
        if cell.run in waiting
        else cell
        for cell in cells
    )


class FundedRuns(NamedTuple):
    """Runs that have what they need.

    Args:
        runs: Those that can be created now, with their budgets in their specs.
        state: What the suite remembers from now on; on the volume before they are created.
        use: What has become of the budget with their allowances.
    """

    runs: tuple[PlannedRun, ...]
    state: SuiteState
    use: BudgetUse


def allot_budget(
    wanted: Sequence[PlannedRun], cells: Sequence[CellProgress], use: BudgetUse, state: SuiteState
) -> FundedRuns:
    """Split what is left equally among the waiting runs; runs that get nothing are left out.

    Args:
        wanted: Runs to create, of cells that wait; they get their shares now.
        cells: How far the round is, as ``fail_unfunded_cells`` returned it.
        use: What has become of the budget.
    """
    if use.is_spent:  # the runs that still wait use no tokens
        return FundedRuns(tuple(wanted), state, use)
    allowances, left = dict(state.allowances), use.left
    waiting = _waiting(cells, state)
    missing = len(waiting)
    runs: list[PlannedRun] = []
    for run in wanted:
        if run.name in waiting:
            if left == 0:
                continue
            share = _bounded(waiting[run.name], max(left // missing, 1))
            allowances[run.name] = share
            left, missing = left - share, missing - 1
        runs.append(_with_budget(run, allowances.get(run.name)))
    use = use._replace(allotted=use.allotted + use.left - left)
    return FundedRuns(tuple(runs), replace(state, allowances=allowances), use)


def _waiting(cells: Sequence[CellProgress], state: SuiteState) -> Mapping[str, BenchmarkRunSpec]:
    """Return the specs of the runs that wait for an allowance, by name."""
    names = {cell.run for cell in cells if cell.state is CellState.WAITING}
    specs = {
        run.name: BenchmarkRunSpec.parse(run.spec)
        for run in state.plan.runs
        if run.name in names and run.name not in state.allowances
    }
    return {name: spec for name, spec in specs.items() if has_provider(spec)}


def _is_over(name: str, observed: ObservedRuns) -> bool:
    """Whether a run has ended, or was deleted after its begin."""
    run = observed.runs.get(name)
    return name in observed.past if run is None else run.has_ended


def _bounded(spec: BenchmarkRunSpec, share: int) -> int:
    """Return a share, or the budget that the template gives to every run if that is lower."""
    return share if spec.budget is None else min(share, spec.budget.tokens)


def _with_budget(run: PlannedRun, allowance: int | None) -> PlannedRun:
    if allowance is None:
        return run
    budget: Mapping[str, object] = {"tokens": allowance}
    return replace(run, spec={**run.spec, "budget": budget})
