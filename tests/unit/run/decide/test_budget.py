"""A run whose token budget is used up starts nothing, and blames no agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.decide.controls import EndReason, Halt
from securebench.run.decide.reconcile import RunDecision
from securebench.run.decide.waits import WaitReason
from securebench.run.observe.waiting import ObservedProvider
from securebench.run.plan.model import AttemptKey, EarlierRun, EgressPlan
from securebench.run.state.attempts import (
    AttemptHistory,
    CommandReport,
    Finish,
    ProducerNetwork,
    Usage,
)
from support.build import (
    HARNESS,
    KEY,
    OPENAI,
    PROVEN_NETWORK,
    check_task,
    history_of,
    live,
    production,
    relayed,
    unverified_task,
    view_of,
)
from support.manifest_samples import text_task
from unit.run.decide.test_reconcile import RUNNING, decide, finished, fresh, made, verifier

LIMIT = 5000
SPENT = f"the budget of the run, {LIMIT} tokens, is used up"
CUT = "the budget of the run was used up while the agent worked"


def with_limit(limit: int | None) -> EgressPlan:
    assert OPENAI.provider is not None
    return replace(OPENAI, provider=replace(OPENAI.provider, run_tokens=limit))


def after(used: int, *histories: AttemptHistory, limit: int | None = LIMIT, **given: Any):
    """Decide about a run that has used so many tokens."""
    network = replace(PROVEN_NETWORK, provider=ObservedProvider("host", tokens_used=used))
    return decide(*histories, egress=with_limit(limit), network=network, **given)


def cut(task: int = 0, **relay: Any) -> AttemptHistory:
    """An attempt whose launch was refused a request for the run's budget, and has ended."""
    result = production(egress=relayed(run_budget_exhausted=True, **relay))
    return history_of(AttemptKey(task, 1), production=result)


def ended(task: int = 0) -> AttemptHistory:
    finish = Finish(AttemptKey(task, 1), Outcome.CANCELLED, "run_budget_exhausted", "queued", SPENT)
    return history_of(AttemptKey(task, 1), finish=finish, usage=Usage(1, 4000, 0, 2000))


@pytest.mark.parametrize(("used", "limit"), [(LIMIT - 1, LIMIT), (10**9, None)])
def test_a_budget_that_is_not_reached_changes_nothing(used: int, limit: int | None) -> None:
    want = decide(fresh(0), made(1), egress=with_limit(None))
    assert after(used, fresh(0), made(1), limit=limit) == want


def test_no_attempt_starts_after_it_and_those_in_progress_go_on() -> None:
    decision = after(LIMIT, fresh(0), live(HARNESS._replace(task=1)), made(2))
    assert decision.begin == (verifier(2),)
    assert decision.finishes == (
        Finish(KEY, Outcome.CANCELLED, "run_budget_exhausted", "queued", SPENT),
    )
    assert decision.halt is Halt.DRAINING
    assert decision.wait_reason == WaitReason(Reason.CANCELLING, SPENT)


def test_a_suspended_run_is_ended() -> None:
    decision = after(LIMIT, fresh(0), halt=Halt.SUSPENDED)
    assert [finish.reason for finish in decision.finishes] == ["run_budget_exhausted"]


TIMED_OUT = CommandReport(124, timed_out=True)
WITH_TROUBLE: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "a time limit": {"command": TIMED_OUT},
    "a container that was killed": {"problem": "oom_killed"},
    "nothing handed in": {"candidate": None},
}


@pytest.mark.parametrize("task", [text_task(), check_task(), unverified_task()])
@pytest.mark.parametrize("name", WITH_TROUBLE)
def test_an_attempt_that_was_cut_short_is_no_failure_of_the_agent(name: str, task: Any) -> None:
    egress = relayed(run_budget_exhausted=True, budget_exhausted=True, failure="provider_quota")
    result = production(**{"egress": egress} | WITH_TROUBLE[name])
    decision = after(0, history_of(production=result), tasks=(task,))
    assert decision.finishes == (
        Finish(KEY, Outcome.CANCELLED, "run_budget_exhausted", "producer", CUT),
    )


def test_a_refused_launch_ends_the_run_before_the_gateway_says_so() -> None:
    decision = after(0, cut(), fresh(1))
    assert decision.begin == ()
    assert {finish.reason for finish in decision.finishes} == {"run_budget_exhausted"}


def end_of(decision: RunDecision) -> EndReason:
    assert decision.end is not None
    return decision.end


def test_how_the_run_ends() -> None:
    end = end_of(after(LIMIT + 800, finished(0), ended(1)))
    assert end == EndReason(Reason.BUDGET_EXHAUSTED, f"{SPENT}: 6000 tokens were used")
    end = end_of(after(LIMIT + 9000, finished(0), ended(1)))
    assert end.message == f"{SPENT}: 14000 tokens were used"


def test_a_run_whose_last_attempt_used_it_up_is_complete() -> None:
    assert end_of(after(LIMIT + 1, finished(0))).reason is Reason.COMPLETED


def test_a_regrade_needs_no_budget() -> None:
    """The candidates of a run that ended with BudgetExhausted are verified again."""
    earlier = EarlierRun("nightly", "uid-1", "n-1")
    untouched = made(1)._replace(network=ProducerNetwork())
    decision = after(0, cut(0), untouched, regrade=earlier)
    assert decision.begin == (verifier(1),)
    assert decision.finishes == (
        Finish(KEY, Outcome.CANCELLED, "run_budget_exhausted", "producer", CUT),
    )
    assert decision.halt is Halt.NONE


def test_a_failed_gateway_is_the_cause_of_what_it_ends() -> None:
    failure = "the gateway ended three times"
    memory = replace(PROVEN_NETWORK.gateway_memory, failure=failure)
    spent = ObservedProvider("host", tokens_used=LIMIT)
    network = replace(PROVEN_NETWORK, provider=spent, gateway_memory=memory)
    decision = decide(fresh(0), egress=with_limit(LIMIT), network=network)
    assert decision.finishes == (Finish(KEY, Outcome.CANCELLED, "cancelled", "queued", failure),)


def test_who_cancels_comes_first() -> None:
    stop = EndReason(Reason.CANCELLED, "spec.cancel is Immediate")
    decision = after(LIMIT, live(HARNESS), halt=Halt.STOPPED, stop=stop, views=[SEEN])
    assert [finish.reason for finish in decision.finishes] == ["cancelled"]


SEEN = view_of(HARNESS, RUNNING)
