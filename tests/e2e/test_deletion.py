"""What goes with a run or a namespace that is deleted."""

from __future__ import annotations

import pytest

from support.release import call, release
from support.runs import STUCK, begin, is_running, rows
from support.waiting import KUBECTL_TIMEOUT

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("replicas", [1, 0], ids=["operator-runs", "operator-is-gone"])
def test_run_and_namespace_are_deleted_without_hanging(replicas: int) -> None:
    with release("sb-e2e-gone", {}) as own:
        kept, deleted = begin(own, rows(2), STUCK), begin(own, rows(1), STUCK)
        for run in (kept, deleted):
            own.wait(run, lambda _, run=run: is_running(own, run))  # type: ignore[misc]
        if not replicas:
            own.scale(0)
        own.kubectl("delete", "benchmarkrun", deleted, KUBECTL_TIMEOUT)
        if replicas:
            label = f"securebench.dev/run={deleted}"
            own.kubectl("wait", "--for=delete", "pod", "-l", label, KUBECTL_TIMEOUT)
        call("kubectl", "delete", "namespace", own.namespace, KUBECTL_TIMEOUT)
