"""Two operators: the one that works is killed or stopped, the other goes on, nothing is doubled."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import NamedTuple

import pytest

from cluster.test_kills import (
    Form,
    check_journal,
    comparable,
    make_pack,
    operator_processes,
    start,
)
from securebench.core.names import OPERATOR_LEASE, holder_pod
from securebench.run.state.history import Continued
from support.release import Release, condition, release

pytestmark = pytest.mark.cluster

REPLICAS = 2
MOST_SECONDS = 30.0
"""Until the other one works."""

SHORT = Form(tasks=8, kills=1, parallelism=2, seed=66)
LONG = Form(tasks=120, kills=10, parallelism=3, seed=66)


class Holder(NamedTuple):
    """Who has the Lease."""

    pod: str
    uid: str
    epoch: int


@pytest.mark.parametrize(
    "form", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"]
)
@pytest.mark.beside
def test_the_other_operator_goes_on(form: Form) -> None:
    with release("sb-failover", {"operator.replicas": REPLICAS}) as own:
        make_pack(own, form.tasks)
        start(own, "shielded", form.parallelism)
        assert condition(own.wait_ended("shielded"))["reason"] == "Completed"
        start(own, "disturbed", form.parallelism)
        own.wait("disturbed", lambda seen: condition(seen)["reason"] != "")
        seconds = [fail_over(own, number) for number in range(form.kills)]
        ended = own.wait_ended("disturbed", 900)
        said = " ".join(f"{each:.1f}" for each in seconds)
        sys.stdout.write(f"seconds until the other operator worked: {said}\n")
        assert condition(ended)["reason"] == "Completed"
        check_journal(own, "disturbed", form)
        heads = [entry for entry in own.entries("disturbed") if isinstance(entry, Continued)]
        assert len(heads) >= form.kills
        want, seen = (own.records(run) for run in ("shielded", "disturbed"))
        assert [comparable(record) for record in seen] == [comparable(record) for record in want]


def fail_over(own: Release, number: int) -> float:
    """Take the leader away; return after how many seconds another one has the Lease.

    In turn: its Pod is deleted by force, or its process is stopped and goes on when the other one
    works. A process that is killed is not enough: its container is started again and goes on.
    """
    assert condition(own.get("brun", "disturbed"))["status"] == "Unknown", f"over after {number}"
    before, began = holder(own), time.monotonic()
    if number % 2 == 0:
        own.kubectl("delete", "pod", before.pod, "--force", "--grace-period=0", "--wait=false")
        wait_for_another(own, before)
    else:
        (process,) = operator_processes(before.uid)
        os.kill(process, signal.SIGSTOP)
        try:
            wait_for_another(own, before)
        finally:
            os.kill(process, signal.SIGCONT)
    seconds = time.monotonic() - began
    assert seconds < MOST_SECONDS
    own.kubectl("rollout", "status", "statefulset/securebench", "--timeout=120s")
    return seconds


def holder(own: Release) -> Holder:
    """Return who has the Lease."""
    lease = json.loads(own.kubectl("get", "lease", OPERATOR_LEASE, "-o", "json"))
    name = lease["spec"]["holderIdentity"]
    _, _, uid = name.partition("_")
    return Holder(holder_pod(name), uid, lease["spec"]["leaseTransitions"])


def wait_for_another(own: Release, before: Holder) -> None:
    deadline = time.monotonic() + 2 * MOST_SECONDS
    while holder(own).uid in (before.uid, ""):
        assert time.monotonic() < deadline, f"nobody takes over from {before}"
        time.sleep(0.1)
