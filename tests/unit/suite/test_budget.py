"""What a suite's budget gives to its runs, and what happens when it is used up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from securebench.run.api.status import Reason
from securebench.suite.api import BenchmarkSuiteSpec, CellState
from securebench.suite.budget import BudgetUse
from securebench.suite.decide import DesiredSuite, ObservedSuite, SuiteDecision, decide
from securebench.suite.planning import PackContent, PlannedRun, cells
from securebench.suite.progress import ObservedRuns, PastRun, SuiteRun
from securebench.suite.report import suite_status
from securebench.suite.rounds import SuiteState
from unit.suite.test_decide import CHANGED, NEW, NO_RUNS, NOW, PACKS, desired, seen

URL = "https://models.example.org/v1"


def suite(tokens: int | None = 100, names: str = "abcd", **spec: Any) -> DesiredSuite:
    """Return a suite of one cell for each name; that of ``x`` asks no model provider."""
    harnesses = [
        {
            "name": name,
            "harness": {
                "type": "command",
                "config": {"command": f"echo {name}"}
                | ({} if name == "x" else {"provider": {"url": URL}}),
            },
        }
        for name in names
    ]
    matrix = {
        "packs": [{"name": "p", "pack": {"volume": {"path": "p"}}}],
        "harnesses": harnesses,
    }
    budget = {} if tokens is None else {"budget": {"tokens": tokens}}
    parsed = BenchmarkSuiteSpec.parse({"matrix": matrix, **budget, **spec})
    return desired()._replace(spec=parsed, cells=cells(parsed))


def begun(wanted: DesiredSuite) -> SuiteDecision:
    return decide(ObservedSuite(NO_RUNS, PACKS), NEW, wanted, NOW)


def budgets(decision: SuiteDecision) -> dict[str, Any]:
    """Return the budgets of the runs that are created, by harness."""
    return {
        run.cell.removeprefix("p/"): run.spec["budget"]["tokens"] if "budget" in run.spec else None  # type: ignore[index]
        for run in decision.create
    }


class Round:
    """A round whose runs end as a test says."""

    def __init__(self, wanted: DesiredSuite) -> None:
        self.suite = wanted
        self.runs: dict[str, SuiteRun] = {}
        self.past: dict[str, PastRun] = {}
        self.used: dict[str, int] = {}
        self.state: SuiteState = NEW
        self.packs: Mapping[str, PackContent] | None = PACKS

    def next(self) -> SuiteDecision:
        """Decide, and create what is to be created."""
        runs = ObservedRuns(self.runs, self.past, self.used)
        seen_now = ObservedSuite(runs, self.packs, packs_age=0)
        decision = decide(seen_now, self.state, self.suite, NOW)
        again = decide(seen_now, decision.state, self.suite, NOW)
        assert (again.state, again.create) == (decision.state, decision.create)
        self.state, self.packs = decision.state, None
        self.runs |= {run.name: seen(run) for run in decision.create}
        return decision

    def planned(self, name: str) -> PlannedRun:
        return next(run for run in self.state.plan.runs if run.cell == f"p/{name}")

    def end(self, name: str, used: int | None, reason: str = "Completed") -> None:
        run = self.planned(name)
        self.runs[run.name] = seen(run, reason)
        if used is not None:
            self.used[run.name] = used

    def delete(self, name: str) -> None:
        """Delete a run that has begun and not ended."""
        run = self.planned(name)
        del self.runs[run.name]
        fields = run.fields
        self.past[run.name] = PastRun(
            run.name, "uid", fields.run_id or "", fields.pack or "", fields.harness,
            fields.verifier, "", 1,
        )  # fmt: skip


def states(decision: SuiteDecision) -> str:
    return " ".join(cell.state.value for cell in decision.findings.cells)


def test_a_suite_without_a_budget_gives_none() -> None:
    decision = begun(suite(None))
    assert budgets(decision) == {"a": None, "b": None}
    assert (decision.state.allowances, decision.findings.budget) == ({}, None)


def test_runs_get_equal_shares_and_leave_what_they_do_not_use() -> None:
    going = Round(suite(100, maxConcurrentRuns=2))
    assert budgets(going.next()) == {"a": 25, "b": 25}
    assert budgets(going.next()) == {}
    going.end("a", 5)
    assert budgets(going.next()) == {"c": 35}
    going.end("b", 25)
    going.end("c", 0)
    decision = going.next()
    assert budgets(decision) == {"d": 70}
    assert decision.findings.budget == BudgetUse(100, 30, 70)
    going.end("d", 60)
    assert states(going.next()) == "Succeeded Succeeded Succeeded Succeeded"


def test_what_a_run_used_too_much_is_taken_from_the_others() -> None:
    going = Round(suite(100, names="ab", maxConcurrentRuns=1))
    assert budgets(going.next()) == {"a": 50}
    going.end("a", 80, "BudgetExhausted")
    assert budgets(going.next()) == {"b": 20}


@pytest.mark.parametrize("used", [100, 130])
def test_cells_fail_when_nothing_is_left_and_nothing_comes_back(used: int) -> None:
    going = Round(suite(100, names="abx", maxConcurrentRuns=1))
    going.next()
    going.end("a", used, "BudgetExhausted")
    decision = going.next()
    assert budgets(decision) == {"x": None}
    _, second, _ = decision.findings.cells
    assert (second.state, second.reason) == (CellState.FAILED, Reason.BUDGET_EXHAUSTED.value)
    assert second.message == f"the budget of the suite, 100 tokens, is used up: {used} were used"


def test_cells_wait_while_something_may_come_back() -> None:
    going = Round(suite(3, maxConcurrentRuns=4))
    decision = going.next()
    assert budgets(decision) == {"a": 1, "b": 1, "c": 1}
    going.end("a", 1)
    assert states(going.next()) == "Succeeded Running Running Waiting"
    going.end("b", 0)
    assert budgets(going.next()) == {"d": 1}


def test_a_higher_budget_lets_the_rest_run() -> None:
    going = Round(suite(10, names="ab", maxConcurrentRuns=1))
    going.next()
    going.end("a", 10)
    assert states(going.next()) == "Succeeded Failed"
    going.suite = suite(30, names="ab", maxConcurrentRuns=1)
    assert budgets(going.next()) == {"b": 20}


def test_a_run_whose_use_is_not_known_has_used_all() -> None:
    going = Round(suite(100, names="abc", maxConcurrentRuns=1))
    assert budgets(going.next()) == {"a": 33}
    going.end("a", None)
    assert budgets(going.next()) == {"b": 33}
    going.delete("b")
    assert budgets(going.next()) == {"c": 34}


def test_the_budget_of_the_template_is_a_bound_for_each_run() -> None:
    decision = begun(suite(100, names="ab", template={"budget": {"tokens": 10}}))
    assert budgets(decision) == {"a": 10, "b": 10}
    assert decision.findings.budget == BudgetUse(100, 0, 20)


def test_a_cell_without_a_provider_gets_no_budget_of_the_template() -> None:
    decision = begun(suite(names="ax", template={"budget": {"tokens": 10}}))
    assert budgets(decision) == {"a": 10, "x": None}


def test_a_budget_changes_no_name() -> None:
    assert begun(suite(100)).state.plan == begun(suite(None)).state.plan


def test_a_new_round_counts_its_own_runs_and_those_in_progress() -> None:
    going = Round(suite(100, names="ab", maxConcurrentRuns=2))
    going.next()
    going.end("a", 40)
    going.packs = CHANGED
    decision = going.next()
    assert budgets(decision) == {"a": 25}
    assert decision.findings.budget == BudgetUse(100, 0, 75)


def test_the_status_has_the_budget() -> None:
    status = suite_status(begun(suite(100)).findings).to_json()
    assert status["budget"] == {"tokens": 100, "usedTokens": 0, "allottedTokens": 50}
