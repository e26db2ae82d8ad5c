"""Two operators: the one that works is killed or stopped, the other goes on, nothing is doubled."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from cluster.test_kills import (
    LEASE,
    Form,
    check_journal,
    make_pack,
    start,
)
from securebench.controller.process import LOST_EXIT_CODE
from securebench.names import OPERATOR_LEASE, holder_pod
from securebench.run.state.entries import Continued
from support.comparable import comparable
from support.node import processes
from support.release import DATA, CommandError, Release, condition, release
from support.waiting import KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.cluster

REPLICAS = 2
MOST_SECONDS = 30.0
"""Until the other one has continued the run's journal."""

SHORT = Form(tasks=8, kills=1, parallelism=2, seed=66)
LONG = Form(tasks=120, kills=10, parallelism=3, seed=66)
SHIELDED_PARALLELISM = 8


class Holder(NamedTuple):
    """Who has the Lease."""

    pod: str
    uid: str
    epoch: int


@pytest.mark.parametrize(
    ("form", "lease"),
    [
        pytest.param(SHORT, LEASE, id="short"),
        pytest.param(LONG, {}, id="long", marks=pytest.mark.slow),
    ],
)
def test_the_other_operator_goes_on(form: Form, lease: Mapping[str, float]) -> None:
    with release(
        "sb-failover", {"operator.replicas": REPLICAS, "settings.leadership": lease}
    ) as own:
        make_pack(own, form.tasks)
        start(own, "shielded", SHIELDED_PARALLELISM)
        assert condition(own.wait_ended("shielded"))["reason"] == "Completed"
        start(own, "disturbed", form.parallelism)
        own.wait("disturbed", lambda seen: condition(seen)["reason"] != "")
        seconds = [fail_over(own, number) for number in range(form.kills)]
        said = " ".join(f"{each:.1f}" for each in seconds)
        sys.stdout.write(f"\nseconds until the other operator went on with the run: {said}\n")
        ended = own.wait_ended("disturbed", 900)
        assert condition(ended)["reason"] == "Completed"
        check_journal(own, "disturbed", form)
        heads = [entry for entry in own.entries("disturbed") if isinstance(entry, Continued)]
        assert len(heads) >= form.kills
        want, seen = (own.records(run) for run in ("shielded", "disturbed"))
        assert [comparable(record) for record in seen] == [comparable(record) for record in want]


def fail_over(own: Release, number: int) -> float:
    """Take the leader away; return after how many seconds another one goes on with the run.

    In turn: its process is stopped and wakes up when the other one works, or its Pod is deleted by
    force. A process that is killed is not enough: its container is started again and goes on.
    """
    assert condition(own.get("brun", "disturbed"))["status"] == "Unknown", f"over after {number}"
    before, began = holder(own), time.monotonic()
    if number % 2 == 0:
        (process,) = (each.pid for each in processes(before.uid) if each.has(b"operator"))
        os.kill(process, signal.SIGSTOP)
        try:
            wait_for_another(own, before)
            seconds = time.monotonic() - began
        finally:
            os.kill(process, signal.SIGCONT)
        until(lambda: exit_code(own, before.pod) == LOST_EXIT_CODE, f"{before} did not end")
    else:
        own.kubectl("delete", "pod", before.pod, "--force", "--grace-period=0", "--wait=false")
        wait_for_another(own, before)
        seconds = time.monotonic() - began
    assert seconds < MOST_SECONDS
    own.kubectl("rollout", "status", "statefulset/securebench", KUBECTL_TIMEOUT)
    return seconds


def holder(own: Release) -> Holder:
    """Return who has the Lease."""
    lease = json.loads(own.kubectl("get", "lease", OPERATOR_LEASE, "-o", "json"))
    name = lease["spec"]["holderIdentity"]
    _, _, uid = name.partition("_")
    return Holder(holder_pod(name), uid, lease["spec"]["leaseTransitions"])


def wait_for_another(own: Release, before: Holder) -> None:
    """Wait until another operator has continued the journal of the run."""
    until(lambda: holder(own).uid not in (before.uid, ""), f"nobody takes over from {before}")
    after = holder(own)
    uid = own.uid("disturbed")
    journal = f"{DATA}/runs/{uid}/journal.{after.epoch}.jsonl"

    def is_continued() -> bool:
        try:
            own.kubectl("exec", after.pod, "-c", "operator", "--", "test", "-s", journal)
        except CommandError:
            return False
        return True

    until(is_continued, f"{after} does not go on with the run")


def exit_code(own: Release, pod: str) -> int | None:
    """Return with what the operator of a Pod ended before, or None."""
    (status,) = own.get("pod", pod)["status"]["containerStatuses"]
    code = status["lastState"].get("terminated", {}).get("exitCode")
    return None if code is None else int(code)
