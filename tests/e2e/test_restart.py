"""What the operator's start asks of the API server, and what the kubelet asks of the operator."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.release import Release, condition, release
from support.runs import begin, rows

pytestmark = pytest.mark.e2e

READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
WRITES = re.compile(
    r'^securebench_api_requests_total\{[^}]*verb="patch_status"\} (\S+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def own() -> Iterator[Release]:
    """A release with metrics, whose operator is restarted."""
    with release("sb-e2e-start", {"metrics.enabled": True}) as installed:
        yield installed


def read(own: Release, port: int, path: str) -> str:
    return own.operator("python3", "-c", READ, f"http://127.0.0.1:{port}{path}").decode()


def test_the_probes_are_answered(own: Release) -> None:
    assert read(own, 8081, "/livez").strip() == "ok"
    assert read(own, 8081, "/readyz").strip() == "ok"


def test_a_start_writes_no_status_of_runs_that_have_ended(own: Release) -> None:
    run = begin(own, rows(1), "echo 4")
    assert condition(own.wait_ended(run))["reason"] == "Completed"
    assert WRITES.search(read(own, 9090, "/metrics"))
    own.scale(0)
    own.scale(1)
    own.patch(run, {"parallelism": 3})
    generation = own.get("brun", run)["metadata"]["generation"]
    own.wait(run, lambda seen: seen["status"]["observedGeneration"] == generation, 60)
    found = WRITES.search(read(own, 9090, "/metrics"))
    assert found is not None
    assert float(found[1]) == 1, "one write for the change, none for the start"
