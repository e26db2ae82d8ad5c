"""What the operator's start asks of the API server, what the kubelet and Prometheus ask of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.monitoring import (
    RATE_INTERVAL,
    alert_expressions,
    alert_groups,
    dashboard_expressions,
    forwarded,
    named_series,
    prometheus,
)
from support.release import OPERATOR, Release, condition, release
from support.runs import begin, rows

pytestmark = pytest.mark.e2e

NOT_YET = {"securebench_launches_lost_total", "securebench_run_retries_total"}
"""Of what has not happened there are no series."""

NAMESPACE = "sb-e2e-start"
READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
WRITES = re.compile(
    r'^securebench_api_requests_total\{[^}]*verb="patch_status"\} (\S+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def own() -> Iterator[Release]:
    """A release with metrics, whose operator is restarted."""
    with release(NAMESPACE, {"metrics.enabled": True}) as installed:
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
    own.wait(run, lambda seen: seen["status"]["observedGeneration"] == generation)
    found = WRITES.search(read(own, 9090, "/metrics"))
    assert found is not None
    assert float(found[1]) == 1, "one write for the change, none for the start"


def test_prometheus_scrapes_a_run_and_knows_what_dashboard_and_alerts_ask(
    own: Release, tmp_path: Path
) -> None:
    groups = alert_groups(own.namespace)
    with (
        forwarded(own.namespace, OPERATOR, 9090) as target,
        prometheus(tmp_path, target, own.namespace, groups) as server,
    ):
        server.wait("up", 1)
        ended = server.value("sum(securebench_runs_ended_total)") or 0
        run = begin(own, rows(2), "echo 4")
        own.wait_ended(run)
        server.wait("sum(securebench_runs_ended_total)", ended + 1)
        stages = 'securebench_launch_stage_seconds_count{role="harness", stage="run"}'
        server.wait(stages, 2)
        assert server.value("securebench_launches_in_flight") == 0
        for expression in (*dashboard_expressions(), *alert_expressions(groups)):
            asked = expression.replace("$namespace", own.namespace).replace(RATE_INTERVAL, "1m")
            if named_series([asked]) & NOT_YET:
                server.value(asked)
            else:
                server.wait(re.split(" [<>] ", asked, maxsplit=1)[0], -math.inf)
        rules = server.get("/api/v1/rules")["groups"]
        assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
