"""Services of a task on a real node: order, names, checks, what they may do, and one that fails."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from securebench.clock import seconds_since_epoch
from securebench.run.observe.pods import pod_view
from securebench.run.observe.stage import HARNESS_WORK, Interrupted, launch_stage
from securebench.run.plan.environment import in_image
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.containers import side_pod
from securebench.run.pods.frame import Containers, launch_frame
from support.manifest_samples import FACTS, pods, root_task, run_plan
from support.release import call
from support.waiting import until

pytestmark = pytest.mark.cluster

NAMESPACE = f"sb-services-{os.getpid()}"
IMAGE = "python:3.11-slim"
STORE = """
import http.server, os, pathlib, time
time.sleep(2)
pathlib.Path("/data").mkdir(); os.chown("/data", 1000, 1000); os.setgid(1000); os.setuid(1000)
pathlib.Path("/data/index.html").write_text(os.environ["WORD"]); os.chdir("/data")
http.server.test(http.server.SimpleHTTPRequestHandler, port=8082)
"""
FRONT = """
import http.server, urllib.request
word = urllib.request.urlopen("http://store:8082/index.html").read()
open("/srv/index.html", "wb").write(word + b" by front")
http.server.test(http.server.SimpleHTTPRequestHandler, port=8083)
"""
MAIN = """
import os, urllib.request
print(urllib.request.urlopen("http://front:8083/index.html").read().decode())
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("WORD" in os.environ, os.path.exists("/data"), status["NoNewPrivs"].strip())
"""
ASK = "import urllib.request as r; r.urlopen('http://127.0.0.1:{}/index.html')"


def service(name: str, program: str, port: int, **changes: Any) -> Mapping[str, object]:
    check = {
        "command": ["python3", "-c", ASK.format(port)],
        "timeout_seconds": 5,
        "interval_seconds": 5,
        "retries": 6,
    }
    argv = ["python3", "-c", program]
    return {"name": name, "image": IMAGE, "entrypoint": argv, "healthcheck": check, **changes}


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    if "KUBECONFIG" not in os.environ:
        pytest.skip("no cluster: KUBECONFIG is not set")
    level = "pod-security.kubernetes.io/enforce=baseline"
    call("kubectl", "create", "namespace", NAMESPACE)
    call("kubectl", "label", "namespace", NAMESPACE, level)
    yield
    call("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")


def started(number: int, *services: Mapping[str, object]) -> str:
    """Create the Pod of a side whose command is MAIN, and return its name."""
    environment = in_image({"image": IMAGE, "services": list(services)}, 60.0)
    task = root_task(environment=environment)
    plan = run_plan(task, pods=pods(service_account="default", grace_seconds=5))
    plan = replace(plan, identity=replace(plan.identity, namespace=NAMESPACE))
    launch = LaunchKey(task.index, 1, Role.HARNESS, number)
    main = {
        "name": "harness",
        "image": IMAGE,
        "command": ["python3", "-c", MAIN],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [],
    }
    frame = launch_frame(plan, launch, 60.0, FACTS)
    body: Any = side_pod(plan, environment, frame, Containers(main))
    del body["metadata"]["ownerReferences"]
    call("kubectl", "create", "-f", "-", stdin=json.dumps(body).encode())
    return str(body["metadata"]["name"])


def seen(name: str) -> Any:
    return json.loads(call("kubectl", "get", "pod", name, "-n", NAMESPACE, "-o", "json"))


def has_ended(name: str) -> bool:
    """Return whether the commands have; the services live on until the Pod's grace is over."""
    states = seen(name)["status"].get("containerStatuses", [])
    return any("terminated" in each["state"] for each in states)


def test_services_are_ready_before_the_commands_and_found_by_name() -> None:
    web = service("front", FRONT, 8083, workdir="/srv")
    name = started(1, service("store", STORE, 8082, env={"WORD": "a $(b) $$c"}), web)
    until(lambda: has_ended(name), "the commands have not ended")
    said = call("kubectl", "logs", name, "-n", NAMESPACE, "-c", "harness").decode()
    assert said == "a $(b) $$c by front\nFalse False 1\n"


def test_a_service_that_never_is_ready_ends_the_launch() -> None:
    check = {"command": ["false"], "timeout_seconds": 1, "interval_seconds": 1, "retries": 2}
    name = started(2, service("store", STORE, 8082, env={"WORD": "x"}, healthcheck=check))

    def stage() -> object:
        view = pod_view(seen(name))
        assert view is not None
        since = seconds_since_epoch(seen(name)["metadata"]["creationTimestamp"])
        return launch_stage(view, HARNESS_WORK, since, run_plan().policy, since)

    until(lambda: isinstance(stage(), Interrupted), "the launch goes on")
    found = stage()
    assert isinstance(found, Interrupted)
    assert "service 'store' does not become ready" in found.message
