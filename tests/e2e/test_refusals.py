"""A namespace that refuses Pods, and a full volume: a clear condition, and nothing lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from support.release import DATA, Raw, Release, condition, release
from support.runs import begin, outcomes, row, rows, tasks
from support.waiting import KUBECTL_TIMEOUT

pytestmark = pytest.mark.e2e

SMALL = {
    "persistence.storageClassName": "small",
    "persistence.size": "8Mi",
}
SETTINGS = {"settings.userNamespaces": "Never", "settings.launch.refusalSeconds": 10}
FILLER = f"{DATA}/filler"


@contextmanager
def with_object(own: Release, body: Raw) -> Iterator[None]:
    """Create an object of the administrator for a while."""
    own.create(body)
    kind, name = body["kind"], body["metadata"]["name"]
    if kind == "ResourceQuota":
        own.kubectl("wait", "--for=jsonpath={.status.hard}", f"{kind}/{name}", KUBECTL_TIMEOUT)
    try:
        yield
    finally:
        own.kubectl("delete", kind, name)


def policy(kind: str, spec: Mapping[str, object]) -> Raw:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "of-admin"}, "spec": dict(spec)}


@pytest.fixture(scope="module")
def own() -> Iterator[Release]:
    """A release whose namespace gets an administrator's policies, one after the other."""
    with release("sb-e2e-refuse", SETTINGS) as installed:
        yield installed


@pytest.mark.parametrize("isolation", ["Declared", "Verified"])
def test_a_quota_holds_a_run_up_until_there_is_room(own: Release, isolation: str) -> None:
    quota = policy("ResourceQuota", {"hard": {"pods": "1"}})
    with with_object(own, quota):
        run = begin(own, rows(2), "echo 4", isolation={"require": isolation})
        held = own.wait(run, lambda seen: "exceeded quota" in condition(seen)["message"])
        assert condition(held)["status"] == "Unknown"
        assert condition(held)["reason"] == "QuotaExceeded"
        assert "of-admin" in condition(held)["message"]
        assert tasks(held).get("done", 0) == 0
    assert condition(own.wait_ended(run))["reason"] == "Completed"
    assert [record["launches"] for record in own.records(run)] == [1, 1]


@pytest.mark.parametrize("isolation", ["Declared", "Verified"])
def test_a_limit_range_that_refuses_ends_the_run(own: Release, isolation: str) -> None:
    limits = policy("LimitRange", {"limits": [{"type": "Container", "max": {"memory": "16Mi"}}]})
    with with_object(own, limits):
        run = begin(own, rows(2), "echo 4", isolation={"require": isolation})
        refused(own, run, "maximum memory usage per Container is 16Mi")


@pytest.mark.parametrize("isolation", ["Declared", "Verified"])
def test_pod_security_that_refuses_root_ends_the_run(own: Release, isolation: str) -> None:
    label = "pod-security.kubernetes.io/enforce"
    own.kubectl("label", "namespace", own.namespace, f"{label}=restricted", "--overwrite")
    try:
        run = begin(own, rows(1), "echo 4", isolation={"require": isolation})
        refused(own, run, 'violates PodSecurity "restricted:latest"')
    finally:
        own.kubectl("label", "namespace", own.namespace, f"{label}=baseline", "--overwrite")


def test_a_pod_for_which_no_node_has_room_is_waited_for(own: Release) -> None:
    resources = {"requests": {"memory": "900Gi"}, "limits": {"memory": "900Gi"}}
    run = begin(own, rows(1), "echo 4", resources=resources)
    held = own.wait(run, lambda seen: condition(seen)["reason"] == "Unschedulable")
    assert "Insufficient memory" in condition(held)["message"]
    own.patch(run, {"cancel": "Immediate"})
    assert condition(own.wait_ended(run))["reason"] == "Cancelled"


def refused(own: Release, run: str, message: str) -> None:
    held = condition(own.wait(run, lambda seen: message in condition(seen)["message"]))
    assert (held["status"], held["reason"]) == ("Unknown", "Forbidden")
    seen = condition(own.wait_ended(run))
    assert (seen["status"], seen["reason"]) == ("False", "PodRefused")
    assert message in seen["message"]
    assert set(outcomes(own, run)) <= {"cancelled"}


def test_a_full_volume_holds_a_run_up_until_there_is_space() -> None:
    given = [row(f"task-{number}") for number in range(4)]
    command = "head -c 20000 /dev/urandom | od -An -tx1 -v | tr -d ' \\n'; echo; echo 4"
    with release("sb-e2e-full", SMALL) as own:
        first = begin(own, rows(1), "echo 4")
        assert condition(own.wait_ended(first))["reason"] == "Completed"
        before = own.file(first, "candidates.jsonl")
        fill(own, keep_bytes=500_000)
        run = begin(own, given, command, parallelism=1, retention={"pods": "None"})
        held = own.wait(run, lambda seen: condition(seen)["reason"] == "StorageUnavailable")
        assert condition(held)["status"] == "Unknown"
        assert "No space left" in condition(held)["message"]
        own.operator("rm", FILLER)
        assert condition(own.wait_ended(run))["reason"] == "Completed"
        assert own.file(first, "candidates.jsonl") == before
        assert outcomes(own, run) == ["scored"] * 4
        assert all(record["passed"] for record in own.records(run))


def fill(own: Release, keep_bytes: int) -> None:
    """Fill the volume but for some bytes."""
    free = int(own.operator("df", "-B1", "--output=avail", DATA).split()[-1])
    own.operator("sh", "-c", f"head -c {free - keep_bytes} /dev/zero > {FILLER}")
