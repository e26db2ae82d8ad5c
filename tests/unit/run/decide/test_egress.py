"""Runs with egress: preflight, sidecar, outages of the model provider, budgets."""

from dataclasses import replace

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.decide.attempt import Begin, Capture, Wait, attempt_step
from securebench.run.decide.controls import Controls
from securebench.run.decide.gateway import ObservedGateway
from securebench.run.decide.reconcile import ObservedState, reconcile
from securebench.run.observe.pods import pod_view
from securebench.run.observe.stage import HARNESS_WORK, Ended, InProgress, Interrupted, launch_stage
from securebench.run.plan.model import AgentPlan, LaunchKey, Role, pod_name
from securebench.run.state.attempts import CommandReport, Finish, Lost, Usage, usage_of
from securebench.run.state.entries import LaunchBegun, LaunchLost, Produced
from securebench.run.state.history import AttemptIndex, run_history
from support.build import (
    DOMAINS,
    HARNESS,
    KEY,
    NOW,
    OPENAI,
    PROVEN_NETWORK,
    VERIFIER,
    changed,
    check_task,
    ended,
    history_of,
    live,
    lost_launch,
    pod_status,
    production,
    raw_pod,
    relayed,
    running,
    seal_message,
    sealed,
    supervise_message,
    unverified_task,
    view_of,
    waiting,
)
from support.manifest_samples import policy_of, run_plan, text_task

POLICY = policy_of(
    infrastructure_retries=1,
    provider_retries=2,
    backoff_seconds=4.0,
    backoff_limit_seconds=100.0,
)
AGENT = AgentPlan(
    overlay="overlay-codex:1",
    overlay_path="/opt/securebench/codex",
    home="/opt/securebench/codex-home",
    version="1",
    environment={},
    preflight=("/opt/securebench/codex/bin/codex", "--version"),
)
SECOND, THIRD = (LaunchKey(0, 1, Role.HARNESS, number) for number in (2, 3))
USAGE = Usage(requests=4, input_tokens=1000, cached_tokens=200, output_tokens=50)
FAILED = {"failures": 3, "failure": "provider_auth"}
MISSING = sealed(problem="candidate_missing", file=None, message="none")
TIMED_OUT = CommandReport(timed_out=True, phase="harness")


def plan(task=None, **changes):
    known = run_plan(task or text_task(), policy=POLICY, egress=OPENAI)
    return replace(known, harness=replace(known.harness, type="codex", agent=AGENT), **changes)


def step(history, view=None, task=None, now=NOW):
    return attempt_step(plan(task), history, view, now)


def stage(*containers, phase="Succeeded", now=NOW, **changes):
    view = view_of(HARNESS, pod_status(phase, *containers, **changes))
    return launch_stage(view, HARNESS_WORK, NOW, POLICY, now)


# Preflight


def failed_preflight(code=64, **report):
    message = supervise_message(code, **{"phase": "preflight", "exit_code": 127} | report)
    return pod_status(
        "Failed", ended("courier", 0, message=seal_message()), ended("harness", code, "", message)
    )


PREFLIGHTS = {
    "an exit code": (failed_preflight(), "codex --version failed: exit code 127"),
    "no program": (
        failed_preflight(error="no such file"),
        "codex --version failed: no such file",
    ),
    "its time limit": (
        failed_preflight(exit_code=124, timed_out=True),
        "codex --version failed: it ran into the time limit",
    ),
}


@pytest.mark.parametrize("name", PREFLIGHTS)
def test_a_preflight_that_fails_is_infrastructure(name):
    status, message = PREFLIGHTS[name]
    found = step(live(), view_of(HARNESS, status))
    assert found == Lost(HARNESS, "preflight_failed", message, NOW)


def test_a_health_check_that_does_not_succeed_is_infrastructure():
    status = failed_preflight(phase="healthcheck", exit_code=1)
    message = "the health check of the task does not succeed: exit code 1"
    found = step(live(), view_of(HARNESS, status))
    assert found == Lost(HARNESS, "materialization_failed", message, NOW)


def test_the_time_limit_of_the_agent_itself_is_its_own():
    status = failed_preflight(124, phase="harness")
    assert isinstance(step(live(), view_of(HARNESS, status)), Capture)


def test_a_preflight_that_always_fails_ends_in_its_phase():
    lost = lost_launch(SECOND, reason="preflight_failed")
    found = step(history_of(retries=(Role.HARNESS,) * 2, launches=2, last_lost=lost))
    assert found == Finish(
        KEY, Outcome.INFRASTRUCTURE, "preflight_failed", "preflight", "Pod was evicted"
    )


def test_the_check_of_a_verifier_has_no_preflight():
    status = pod_status(
        "Failed", ended("courier", 0, message="{}"), ended("check", 64, "", supervise_message(64))
    )
    found = step(
        live(VERIFIER, production=production()), view_of(VERIFIER, status), task=check_task()
    )
    assert isinstance(found, Capture)


# The sidecar

COURIER, HARNESS_END = ended("courier", 0, message="{}"), ended("harness", 0)
TROUBLE = "egress_setup_failed"

SIDECARS = {
    "ended well": ((COURIER, ended("egress-proxy"), HARNESS_END), Ended(0)),
    "could not report": (
        (COURIER, ended("egress-proxy", 1, message="no answer"), HARNESS_END),
        Interrupted(TROUBLE, "the egress proxy failed: exit code 1, no answer"),
    ),
    "was killed": (
        (COURIER, ended("egress-proxy", 137), HARNESS_END),
        Interrupted(TROUBLE, "the egress proxy failed: exit code 137, Error"),
    ),
    "never ended": (
        (COURIER, waiting("egress-proxy"), HARNESS_END),
        Interrupted(TROUBLE, "the egress proxy was gone before it reported"),
    ),
    "was started again": (
        (COURIER, ended("egress-proxy") | {"restartCount": 1}, HARNESS_END),
        Interrupted(TROUBLE, "the egress proxy did not stay up"),
    ),
}


@pytest.mark.parametrize("name", SIDECARS)
def test_a_launch_needs_the_last_word_of_its_sidecar(name):
    containers, want = SIDECARS[name]
    assert stage(*containers) == want


def test_an_eviction_for_the_disk_is_no_trouble_of_the_sidecar():
    found = stage(
        COURIER, ended("egress-proxy", 137), HARNESS_END, phase="Failed", reason="Evicted"
    )
    assert found == Ended(0, "disk_limit_exceeded", "a disk limit was hit")


def test_a_memory_limit_does_not_hide_a_sidecar_without_a_report():
    found = stage(COURIER, ended("egress-proxy", 1), ended("harness", 137, "OOMKilled"))
    assert isinstance(found, Interrupted)


def test_the_sidecar_is_waited_for():
    found = stage(COURIER, running("egress-proxy"), HARNESS_END, phase="Running")
    assert found == InProgress()


def test_a_sidecar_that_does_not_stay_up_ends_the_launch():
    before = waiting("egress-proxy", "CrashLoopBackOff", restarts=1)
    before["lastState"] = ended("egress-proxy", 1, message="no token")["state"]
    found = stage(running("courier"), before, running("harness"), phase="Running")
    assert found == Interrupted(TROUBLE, "the egress proxy did not stay up: exit code 1, no token")


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_of_a_pod_is_seen(ready):
    condition = {"type": "Ready", "status": str(ready)}
    view = pod_view(raw_pod(HARNESS, pod_status("Running", conditions=[condition])))
    assert view is not None
    assert view.is_ready is ready


# Outages of the model provider


def outage(task=None, relay=None, history=None, **changes):
    made = production(egress=relayed(**FAILED | (relay or {})), **changes)
    return step(changed(history or history_of(launches=1), production=made), task=task)


LOST = Lost(
    HARNESS,
    "provider_auth",
    "the model provider openai refused the key; 3 of 4 requests failed",
    NOW,
)

OUTAGES = {
    "no candidate": ({"candidate": MISSING}, None),
    "a blank candidate": ({"candidate": sealed(is_blank=True)}, None),
    "a producer timeout": ({"command": TIMED_OUT}, None),
    "a workspace, which is always there": ({}, check_task()),
    "no verifier": ({"candidate": MISSING}, unverified_task()),
}


@pytest.mark.parametrize("name", OUTAGES)
def test_an_outage_without_a_usable_candidate_loses_the_launch(name):
    changes, task = OUTAGES[name]
    assert outage(task, **changes) == LOST


@pytest.mark.parametrize(
    ("problem", "want"),
    [
        ("oom_killed", Outcome.RESOURCE),
        ("disk_limit_exceeded", Outcome.RESOURCE),
        ("supervisor_killed", Outcome.AGENT),
    ],
)
def test_an_outage_excuses_no_limit_that_the_agent_ran_into(problem, want):
    found = outage(problem=problem, candidate=None)
    assert (found.outcome, found.reason, found.passed) == (want, problem, False)


def test_a_usable_candidate_is_judged_in_spite_of_an_outage():
    assert outage() == Begin(VERIFIER)


def test_a_call_that_went_well_in_the_end_is_no_outage():
    found = outage(relay={"failure": ""}, candidate=MISSING)
    assert isinstance(found, Finish)
    assert found.outcome is Outcome.AGENT


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("provider_unavailable", "the model provider openai did not answer as it should"),
        ("provider_quota", "the model provider openai refused for its quota or rate limit"),
    ],
)
def test_every_outage_has_its_words(failure, words):
    found = outage(relay={"failure": failure}, candidate=MISSING)
    assert isinstance(found, Lost)
    assert (found.reason, found.message) == (failure, f"{words}; 3 of 4 requests failed")


def test_an_outage_has_its_cause():
    relay = {"failure": "provider_unavailable", "failure_cause": "m.example has no address"}
    found = outage(relay=relay, candidate=MISSING)
    assert found.message == (
        "the model provider openai did not answer as it should: m.example has no address;"
        " 3 of 4 requests failed"
    )


def test_an_outage_that_lasts_ends_the_attempt():
    history = history_of(launches=3, provider_retries=2, retries=(Role.HARNESS,))
    found = outage(history=history, candidate=MISSING)
    assert found == Finish(KEY, Outcome.PROVIDER, "provider_auth", "producer", LOST.message)


def test_infrastructure_has_retries_of_its_own():
    made = production(egress=relayed(**FAILED), candidate=MISSING)
    history = history_of(launches=2, retries=(Role.HARNESS,), production=made)
    assert step(history) == LOST


# Budgets


BUDGET_END = Finish(
    KEY,
    Outcome.AGENT,
    "budget_exhausted",
    "producer",
    "the agent used up the budget of its launch for the model provider",
    passed=False,
)


@pytest.mark.parametrize("task", [text_task(), check_task(), unverified_task()])
@pytest.mark.parametrize("failure", ["", "provider_quota"])
def test_a_budget_that_was_used_up_is_the_agents(task, failure):
    made = production(egress=relayed(budget_exhausted=True, failure=failure))
    assert step(history_of(production=made), task=task) == BUDGET_END


def test_a_time_limit_comes_before_a_budget():
    made = production(egress=relayed(budget_exhausted=True), command=TIMED_OUT)
    found = step(history_of(production=made))
    assert isinstance(found, Finish)
    assert found.reason == "producer_timeout"


# The history


def test_launches_are_counted_apart_and_numbered_together():
    made = production(egress=relayed(**FAILED), candidate=MISSING)
    lost = replace(lost_launch(SECOND, at=NOW), usage=USAGE)
    entries = [
        LaunchBegun(HARNESS, NOW),
        Produced(KEY, made),
        LaunchLost(LOST),
        LaunchBegun(SECOND, NOW),
        LaunchLost(lost),
        LaunchBegun(THIRD, NOW),
        Produced(KEY, production(launch=3, egress=relayed())),
    ]
    after_outage = run_history(plan(), entries[:3]).attempts[KEY]
    assert (after_outage.provider_retries, after_outage.retries) == (1, ())
    assert after_outage.production is None
    assert step(after_outage, now=NOW + 3) == Wait(NOW + 4)
    assert step(after_outage, now=NOW + 4) == Begin(SECOND)
    after_both = run_history(plan(), entries[:5]).attempts[KEY]
    assert (after_both.provider_retries, after_both.retries, after_both.lost) == (
        1,
        (Role.HARNESS,),
        2,
    )
    assert step(after_both, now=NOW + 7) == Wait(NOW + 8)
    assert step(after_both, now=NOW + 8) == Begin(THIRD)
    whole = run_history(plan(), entries).attempts[KEY]
    assert whole.usage == Usage(12, 3000, 600, 150)
    assert step(whole, now=NOW + 100) == Begin(LaunchKey(0, 1, Role.VERIFIER, 3))


def test_a_verifier_that_is_lost_keeps_what_was_produced():
    entries = [
        LaunchBegun(HARNESS, NOW),
        Produced(KEY, production()),
        LaunchBegun(VERIFIER, NOW),
        LaunchLost(lost_launch(VERIFIER)),
    ]
    known = run_history(plan(), entries).attempts[KEY]
    assert known.production is not None
    assert (known.retries, known.provider_retries) == ((Role.VERIFIER,), 0)


def test_a_launch_without_a_provider_has_no_usage():
    assert usage_of(None) == Usage()
    assert usage_of(replace(relayed(), relay=None)) == Usage()
    assert usage_of(relayed()) == USAGE


# Without a gateway nothing new begins


@pytest.mark.parametrize(("is_gateway_ready", "want"), [(True, (HARNESS,)), (False, ())])
def test_no_harness_begins_without_a_way_out(is_gateway_ready, want):
    assert decided({KEY: history_of()}, is_gateway_ready=is_gateway_ready).begin == want


@pytest.mark.parametrize(("is_gateway_ready", "want"), [(True, (HARNESS,)), (False, ())])
def test_no_create_of_a_harness_is_repeated_without_a_way_out(is_gateway_ready, want):
    begun = {KEY: live()}
    pending = {pod_name(plan().identity.uid, HARNESS)}
    assert decided(begun, is_gateway_ready=is_gateway_ready, pending=pending).repeat == want


@pytest.mark.parametrize("is_gateway_ready", [True, False])
def test_a_verifier_needs_none(is_gateway_ready):
    known = {KEY: history_of(launches=1, production=production(egress=relayed()))}
    assert decided(known, is_gateway_ready=is_gateway_ready).begin == (VERIFIER,)


def decided(history, *, is_gateway_ready, pending=()):
    gateway = None if is_gateway_ready else ObservedGateway("gateway", {}, 0, None, "", 600.0)
    network = replace(PROVEN_NETWORK, gateway=gateway)
    attempts = AttemptIndex(history.values())
    situation = ObservedState(plan(egress=DOMAINS), attempts, network, {}, pending, (), NOW)
    return reconcile(situation, Controls(1))


UNANSWERED = {
    "its cause is known": ({"failures": 3, "failure": "provider_quota"}, "provider_quota"),
    "its errors look like the agent's": ({"failures": 0, "failure": ""}, "provider_unavailable"),
    "a budget of requests went into errors": (
        {"failures": 0, "failure": "", "budget_exhausted": True},
        "provider_unavailable",
    ),
}


@pytest.mark.parametrize("name", UNANSWERED)
@pytest.mark.parametrize("candidate", [MISSING, sealed()])
def test_a_run_of_which_no_request_was_answered_waits(name, candidate):
    relay, want_reason = UNANSWERED[name]
    report = replace(relayed(**relay), unanswered="its answer had status 404: the model is gone")
    made = production(egress=report, candidate=candidate, command=TIMED_OUT)
    history = history_of(launches=9, provider_retries=8, production=made)
    found = step(history)
    assert isinstance(found, Lost)
    assert found.reason == want_reason
    assert found.message.startswith("the model provider openai ")
    assert found.message.endswith(
        ": its answer had status 404: the model is gone; it has answered no request of this run,"
        " which waits until it does"
    )


def test_launches_of_a_run_that_waits_take_no_retry():
    report = replace(relayed(**FAILED), unanswered="its answer had status 401")
    made = production(egress=report, candidate=MISSING)
    found = step(history_of(launches=1, production=made))
    assert isinstance(found, Lost)
    entries = [LaunchBegun(HARNESS, NOW), Produced(KEY, made, NOW), LaunchLost(found)]
    after = run_history(plan(), entries).attempts[KEY]
    assert (after.provider_retries, after.lost, after.production) == (0, 1, None)


def test_a_run_without_retries_does_not_wait():
    report = replace(relayed(failures=0, failure=""), unanswered="its answer had status 404")
    history = history_of(launches=1, production=production(egress=report))
    policy = replace(POLICY, provider_retries=0)
    found = attempt_step(replace(plan(), policy=policy), history, None, NOW)
    assert (found.outcome, found.reason) == (Outcome.PROVIDER, "provider_unavailable")


def test_limits_of_the_container_are_the_agents_also_in_such_a_run():
    report = replace(relayed(**FAILED), unanswered="its answer had status 401")
    history = history_of(
        launches=1, production=production(egress=report, problem="oom_killed", candidate=None)
    )
    assert step(history).outcome is Outcome.RESOURCE


def test_a_provider_that_reports_no_tokens_is_not_asked_again():
    found = outage(relay={"failure": "provider_usage"}, candidate=MISSING)
    assert (found.outcome, found.reason) == (Outcome.PROVIDER, "provider_usage")
    assert "remove the budget" in found.message
