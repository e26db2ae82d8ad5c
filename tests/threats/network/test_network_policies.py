"""F7: no command starts before its Pod is cut off, and a policy that does nothing starts no run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from support.release import CommandError, Release, condition, namespace
from threats.honest import APP, WRITE_ANSWER, assert_passed
from threats.kit import weaken
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.live import has_started, running
from threats.kit.network import (
    NO_PROBES,
    SERVICE_PORT,
    Listener,
    Target,
    knocking,
    listen,
    open_policy,
)

STARTS = 50
AT_ONCE = 8
FREE = Weakening((NO_PROBES,))
AS_IS = Weakening(())
"""Only puts a batch in the namespace where policies may be made."""
VERIFIED = {"isolation": {"require": "Verified"}}
NO_REPEAT = {"infrastructureRetries": 0}
SUM = {"accepted_answers": ["4"]}


@pytest.fixture(scope="session")
def outside() -> Iterator[Listener]:
    with namespace("sb-outside") as name:
        (listener,) = listen([name])
        yield listener


def calling(listener: Listener, who: str) -> str:
    """Return an agent that calls out from its first moment on, and then answers."""
    target = Target("outside", "tcp", listener.address, SERVICE_PORT)
    return f"{knocking([target], who, 0.3)}"


@pytest.fixture(scope="session")
def many(arena: Arena, outside: Listener) -> list[Trial]:
    """Trials that call out at once."""
    batch = Batch("f7-starts", "short_answer", spec={"parallelism": AT_ONCE})
    trials = [
        batch.task(f"start-{number}", agent=calling(outside, "early"), grading=SUM)
        for number in range(STARTS)
    ]
    arena.start(trials)
    return trials


class Starters(NamedTuple):
    """Trials that call out at once: one that nothing holds back, one that nothing cuts off."""

    free: Trial
    never_closed: Trial


@pytest.fixture(scope="session")
def starters(arena: Arena, outside: Listener) -> Starters:
    free = Batch("f7-starts-free", "short_answer", weakening=FREE)
    never = Batch("f7-never-closed", "short_answer", spec=NO_REPEAT, weakening=AS_IS, ended="False")
    arena.place(never).release.create(
        open_policy(free.name, "harness"), open_policy(never.name, "harness")
    )
    trials = Starters(
        free.task("start", agent=calling(outside, "unheld"), grading=SUM),
        never.task("start", agent=calling(outside, "unclosed"), grading=SUM),
    )
    arena.start(trials)
    return trials


def test_a_149_attack(arena: Arena, outside: Listener, many: list[Trial]) -> None:
    for trial in many:
        assert json.loads(arena.record(trial)["producer_stdout"]) == []
    assert outside.hits("early") == []


@pytest.mark.short
def test_a_149_attack_with_a_policy_that_never_comes(
    arena: Arena, outside: Listener, starters: Starters
) -> None:
    record = arena.record(starters.never_closed)

    assert (record["outcome"], record.get("passed")) == ("infrastructure", None)
    assert record["producer_stdout"] == ""
    assert outside.hits("unclosed") == []


def test_a_149_twin(arena: Arena, outside: Listener, starters: Starters) -> None:
    assert json.loads(arena.record(starters.free)["producer_stdout"]) == ["outside"]
    assert len(outside.hits("unheld")) == 1


def test_a_149_honest_with_a_late_policy(arena: Arena) -> None:
    """The command waits for the policy; then it works as if nothing had been."""
    late = Batch("f7-late", "terminal_task", defaults=APP, spec=NO_REPEAT, weakening=AS_IS)
    trial = late.task("late", agent=WRITE_ANSWER, grading={"checker": {"command": "true"}})
    release = arena.place(late).release
    release.create(open_policy(late.name, "harness"))
    arena.start([trial])
    running(arena, trial, "harness", "harness")

    release.kubectl("delete", "networkpolicy", f"open-{late.name}")

    assert_passed(arena, trial)


MAKE_POLICIES = [
    (verb, "networkpolicies.networking.k8s.io") for verb in ("create", "update", "patch", "delete")
]


def can_change(release: Release, user: str) -> list[tuple[str, str]]:
    return [right for right in MAKE_POLICIES if _may(release, user, right)]


def _may(release: Release, user: str, right: tuple[str, str]) -> bool:
    try:
        answer = release.kubectl("auth", "can-i", *right, f"--as={user}")
    except CommandError as error:
        answer = str(error)
    return answer.strip().endswith("yes")


def bind(release: Release, user: str, role: str) -> str:
    release.kubectl("create", "rolebinding", user, f"--role={role}", f"--user={user}")
    return user


HERE = Batch("f7-here", "terminal_task", defaults=APP)
THERE = Batch("f7-there", "terminal_task", defaults=APP, weakening=AS_IS)
"""Name the two namespaces; nothing runs in these batches."""


@pytest.mark.short
def test_a_150_attack_by_a_submitter(arena: Arena) -> None:
    release = arena.place(HERE).release
    user = bind(release, "f7-submitter", "securebench-submitter")

    assert can_change(release, user) == []


def test_a_150_twin_of_a_submitter(arena: Arena) -> None:
    release = arena.place(THERE).release
    words = ("create", "role", "f7-policies", "--verb=create,update,patch,delete")
    release.kubectl(*words, f"--resource={MAKE_POLICIES[0][1]}")
    user = bind(release, "f7-policy-maker", "f7-policies")

    assert can_change(release, user) == MAKE_POLICIES


class Opened(NamedTuple):
    """Runs beside a policy that opens the door: made before the run, made in its midst, ignored."""

    before: Trial
    during: tuple[Trial, Trial]
    unasked: Trial


@pytest.fixture(scope="session")
def opened(arena: Arena, outside: Listener) -> Opened:
    before = Batch("f7-open-before", "short_answer", spec=VERIFIED, weakening=AS_IS, ended="False")
    unasked = Batch("f7-open-unasked", "short_answer", weakening=FREE)
    during = Batch(
        "f7-open-during",
        "short_answer",
        spec={**VERIFIED, **NO_REPEAT, "parallelism": 1},
        weakening=AS_IS,
        ended="False",
    )
    trials = Opened(
        before.task("call", agent=calling(outside, "before"), grading=SUM),
        (
            during.task("first", agent=f"import time\ntime.sleep(8)\n{FOUR}", grading=SUM),
            during.task("second", agent=calling(outside, "during"), grading=SUM),
        ),
        unasked.task("call", agent=calling(outside, "unasked"), grading=SUM),
    )
    release = arena.place(before).release
    release.create(open_policy(before.name), open_policy(unasked.name))
    arena.start((trials.before, *trials.during, trials.unasked))
    running(arena, trials.during[0], "harness", "harness")
    release.create(open_policy(during.name))
    return trials


FOUR = "print(4)\n"


@pytest.mark.short
def test_a_150_attack(arena: Arena, outside: Listener, opened: Opened) -> None:
    ended = condition(arena.run(opened.before.batch))

    assert (ended["status"], ended["reason"]) == ("False", "IsolationNotVerified")
    assert "reached: " in ended["message"]
    assert not has_started(arena, opened.before)
    assert outside.hits("before") == []


def test_a_150_attack_in_the_midst(arena: Arena, outside: Listener, opened: Opened) -> None:
    """The command that runs when the door is opened counts for nothing; none starts after it."""
    for trial in opened.during:
        record = arena.record(trial)
        assert (record["outcome"], record.get("passed")) == ("infrastructure", None)
        assert "network" in record["failure_message"]
    assert arena.record(opened.during[1])["producer_stdout"] == ""
    assert outside.hits("during") == []


def test_a_150_twin(arena: Arena, outside: Listener, opened: Opened) -> None:
    assert json.loads(arena.record(opened.unasked)["producer_stdout"]) == ["outside"]
    assert len(outside.hits("unasked")) == 1


class Ignored(NamedTuple):
    """Runs whose policies exist and select nothing; only the first asks for a proof."""

    proven: Trial
    declared: Trial


@pytest.fixture(scope="session")
def ignored(arena: Arena, outside: Listener) -> Ignored:
    proven = Batch(
        "f7-ignored-proven", "short_answer", spec=VERIFIED, weakening=AS_IS, ended="False"
    )
    declared = Batch("f7-ignored-declared", "short_answer", weakening=FREE)
    trials = Ignored(
        *(
            batch.task("call", agent=calling(outside, batch.name), grading=SUM)
            for batch in (proven, declared)
        )
    )
    for trial in trials:
        weaken.ignore_policies(arena.place(proven).release, trial.batch.name)
    arena.start(trials)
    return trials


@pytest.mark.short
def test_a_152_attack(arena: Arena, outside: Listener, ignored: Ignored) -> None:
    run = arena.run(ignored.proven.batch)
    verified = condition(run, "IsolationVerified")

    assert condition(run)["reason"] == "IsolationNotVerified"
    assert verified["status"] == "False"
    assert "reached: " in verified["message"]
    assert not has_started(arena, ignored.proven)
    assert outside.hits(ignored.proven.batch.name) == []


def test_a_152_twin(arena: Arena, outside: Listener, ignored: Ignored) -> None:
    record = arena.record(ignored.declared)

    assert json.loads(record["producer_stdout"]) == ["outside"]
    assert record["labels"]["isolation"] == "declared"
    assert len(outside.hits(ignored.declared.batch.name)) == 1


PROVEN = Batch("f7-proven", "short_answer", spec=VERIFIED).task("sum", agent=FOUR, grading=SUM)


@pytest.mark.short
@pytest.mark.trials(PROVEN)
def test_a_152_honest(arena: Arena) -> None:
    assert_passed(arena, PROVEN)
    assert arena.record(PROVEN)["labels"]["isolation"] == "verified"
