"""Whatever runs use, end or are deleted, the allowances of a suite stay within its budget."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.suite.decide import SuiteDecision
from unit.suite.test_budget import Round, suite

NAMES = "abcde"
BUDGET = 100
STEPS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 130)),
    st.tuples(st.just("end unknown"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("delete"), st.integers(0, 9), st.just(0)),
)


class Spending:
    """A suite whose runs use what they are allowed, and at most one request more."""

    def __init__(self, at_once: int) -> None:
        self.round = Round(suite(BUDGET, NAMES, maxConcurrentRuns=at_once))
        self.spent: dict[str, int] = {}
        self.over = 0
        self.pass_once()

    def going(self) -> list[str]:
        return [
            name
            for name in NAMES
            if (run := self.round.runs.get(self.round.planned(name).name)) and not run.has_ended
        ]

    def pass_once(self) -> SuiteDecision:
        decision = self.round.next()
        allowed = sum(
            self.round.state.allowances[self.round.planned(name).name] for name in self.going()
        )
        assert not decision.create or allowed + sum(self.spent.values()) <= BUDGET + self.over
        return decision

    def step(self, kind: str, choice: int, percent: int) -> None:
        going = self.going()
        if not going:
            return
        name = going[choice % len(going)]
        allowance = self.round.state.allowances[self.round.planned(name).name]
        self.spent[name] = allowance
        match kind:
            case "end":
                self.spent[name] = allowance * percent // 100
                self.over += max(self.spent[name] - allowance, 0)
                self.round.end(name, self.spent[name])
            case "end unknown":
                self.round.end(name, None)
            case "delete":
                self.round.delete(name)
        self.pass_once()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, len(NAMES)), st.lists(STEPS, max_size=8))
def test_allowances_and_use_stay_within_the_budget(at_once, steps):
    spending = Spending(at_once)
    for step in steps:
        spending.step(*step)
    while spending.going():
        spending.step("end", 0, 0)
    assert sum(spending.spent.values()) <= BUDGET + spending.over
    assert {cell.state.value for cell in spending.pass_once().findings.cells} <= {
        "Succeeded",
        "Failed",
    }


@settings(max_examples=15, deadline=None)
@given(st.integers(1, len(NAMES)), st.lists(st.integers(0, 99), min_size=5, max_size=5))
def test_no_cell_is_left_out_while_runs_keep_to_their_shares(at_once, shares):
    spending = Spending(at_once)
    for percent in shares:
        spending.step("end", 0, percent)
    assert sorted(spending.spent) == list(NAMES)
