"""F8: the API server is out of reach, and the runtime is the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from securebench.run.state.entries import LaunchBegun
from support.release import Raw, call, condition
from threats.honest import APP, CHECK_ANSWER, WRITE_ANSWER, assert_passed
from threats.kit.arena import FALSE_CLASS, RUNC_CLASS, Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.network import NO_PROBES, open_policy
from threats.kit.outcomes import not_applicable
from threats.kit.signals import FORGE

CONNECT = """\
import json, os, socket, ssl
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def reach(host, port):
    try:
        with socket.create_connection((host, port), timeout=4) as plain:
            with context.wrap_socket(plain) as secured:
                return bool(secured.version())
    except OSError:
        return False
tell = {
    "service": reach(os.environ["KUBERNETES_SERVICE_HOST"], 443),
    "name": reach("kubernetes.default.svc", 443),
    "node": reach("%s", %d),
    "variables": sorted(name for name in os.environ if name.endswith("_SERVICE_HOST")),
}
print(json.dumps(tell))
"""
NEIGHBOUR: Raw = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "neighbour"},
    "spec": {"selector": {"app": "neighbour"}, "ports": [{"port": 80}]},
}
ALWAYS = ["KUBERNETES_SERVICE_HOST"]
CUT_OFF = Batch("f8-cut-off", "terminal_task", defaults=APP)
WITH_NAME = (
    '[JSONPatch{op: "add", path: "/spec/hostAliases", value: []},'
    ' JSONPatch{op: "add", path: "/spec/hostAliases/-", value: Object.spec.hostAliases{ip: "%s",'
    ' hostnames: ["kubernetes.default.svc"]}}]'
)
WITH_LINKS = Batch(
    "f8-with-links",
    "terminal_task",
    defaults=APP,
    weakening=Weakening(
        ('[JSONPatch{op: "replace", path: "/spec/enableServiceLinks", value: true}]',)
    ),
)


class Callers(NamedTuple):
    """Three trials that look for the API server: as they are, with a network, with links."""

    cut_off: Trial
    connected: Trial
    linked: Trial


@pytest.fixture(scope="session")
def callers(arena: Arena) -> Callers:
    node, port = _api_server()
    service = json.loads(call("kubectl", "-n", "default", "get", "svc", "kubernetes", "-o", "json"))
    patches = (NO_PROBES, WITH_NAME % service["spec"]["clusterIP"])
    connected = Batch("f8-connected", "terminal_task", defaults=APP, weakening=Weakening(patches))
    for batch in (CUT_OFF, connected):
        arena.place(batch).release.create(NEIGHBOUR)
    arena.place(connected).release.create(open_policy(connected.name, "harness"))
    trials = Callers(
        *(
            batch.task(
                "call", agent=CONNECT % (node, port), grading={"checker": {"command": "true"}}
            )
            for batch in (CUT_OFF, connected, WITH_LINKS)
        )
    )
    arena.start(trials)
    return trials


def _api_server() -> tuple[str, int]:
    words = ("-n", "default", "get", "endpointslices", "-o", "json")
    selected = ("-l", "kubernetes.io/service-name=kubernetes")
    (found,) = json.loads(call("kubectl", *words, *selected))["items"]
    return found["endpoints"][0]["addresses"][0], found["ports"][0]["port"]


def seen_by(arena: Arena, trial: Trial) -> Raw:
    seen: Raw = json.loads(arena.record(trial)["producer_stdout"])
    return seen


def test_a_156_attack(arena: Arena, callers: Callers) -> None:
    assert seen_by(arena, callers.cut_off) == {
        "service": False,
        "name": False,
        "node": False,
        "variables": ALWAYS,
    }


def test_a_156_twin(arena: Arena, callers: Callers) -> None:
    """The network has two guards, the policy and supervise's wait for it; the name a third."""
    seen = seen_by(arena, callers.connected)
    assert (seen["service"], seen["name"], seen["node"]) == (True, True, True)


def test_a_156_twin_with_service_links(arena: Arena, callers: Callers) -> None:
    assert "NEIGHBOUR_SERVICE_HOST" in seen_by(arena, callers.linked)["variables"]


SHOW_KERNEL = f"{WRITE_ANSWER}import os\nprint(os.uname().release)\n"


def in_class(name: str, **batch: Any) -> Trial:
    """Return an honest trial that asks for a runtime class, in a run that wants it verified."""
    require = batch.pop("require", "Verified")
    spec = {"podTemplate": {"runtimeClassName": name}, "isolation": {"require": require}}
    title = f"f8-in-{name}-{require.lower()}"
    return Batch(title, "terminal_task", defaults=APP, spec=spec, **batch).task(
        "kernel", agent=SHOW_KERNEL, grading=CHECK_ANSWER
    )


SANDBOXED, NOT_SANDBOXED = in_class("gvisor"), in_class(RUNC_CLASS)
SANDBOXED_FORGERY = SANDBOXED.batch.task("forge", agent=FORGE, grading=CHECK_ANSWER)
FALSE = {
    require: in_class(FALSE_CLASS, require=require, ended="False")
    for require in ("Verified", "Declared")
}


@pytest.fixture(scope="session")
def unsandboxed(arena: Arena) -> Iterator[None]:
    """Runs in classes that are no sandboxes, under way."""
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    names = (RUNC_CLASS, FALSE_CLASS)
    items = [{**kind, "metadata": {"name": name}} for name in names]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    call("kubectl", "create", "-f", "-", stdin=body)
    arena.start([NOT_SANDBOXED, *FALSE.values()])
    yield
    call("kubectl", "delete", "runtimeclass", *names)


@pytest.fixture(scope="session")
def sandboxed(arena: Arena) -> Trial:
    names = call("kubectl", "get", "runtimeclass", "-o", "name").decode().split()
    if "runtimeclass.node.k8s.io/gvisor" not in names:
        not_applicable(f"the cluster has no runtime class gvisor, only {names}")
    arena.start([SANDBOXED, SANDBOXED_FORGERY])
    return SANDBOXED


def kernel(arena: Arena, trial: Trial) -> str:
    release: str = arena.record(trial)["producer_stdout"].strip()
    return release


def runtime(arena: Arena, trial: Trial) -> str:
    said: str = arena.record(trial)["labels"]["runtime"]
    return said


def has_started(arena: Arena, trial: Trial) -> bool:
    """Return whether a run began a launch or had a Pod of a task."""
    place, run = arena.place(trial.batch), trial.batch.name
    arena.run(trial.batch)
    labels = [state["metadata"].get("labels", {}) for state in place.pods.states()]
    roles = {
        found["securebench.dev/role"] for found in labels if found.get("securebench.dev/run") == run
    }
    assert "canary" in roles
    begun = [entry for entry in place.release.entries(run) if isinstance(entry, LaunchBegun)]
    assert bool(begun) == bool(roles - {"canary", "control"})
    return bool(begun)


def test_a_076_attack_in_a_sandbox(arena: Arena, sandboxed: Trial) -> None:
    assert_passed(arena, sandboxed)
    record = arena.record(SANDBOXED_FORGERY)

    assert (record["outcome"], record["failure_reason"]) == ("agent", "supervisor_killed")
    assert record["launches"] == 1


def test_a_168_attack_in_a_sandbox(arena: Arena, sandboxed: Trial) -> None:
    assert "gvisor" in kernel(arena, sandboxed)
    assert runtime(arena, sandboxed) == "gvisor"


@pytest.mark.usefixtures("unsandboxed")
@pytest.mark.parametrize("require", FALSE)
def test_a_176_attack(arena: Arena, require: str) -> None:
    trial = FALSE[require]
    ended = condition(arena.run(trial.batch))

    assert (ended["status"], ended["reason"]) == ("False", "IsolationNotVerified")
    assert f"runtime class '{FALSE_CLASS}' must run in gVisor" in ended["message"]
    assert "sandboxedRuntimeClassNames" in ended["message"]
    assert not has_started(arena, trial)


@pytest.mark.usefixtures("unsandboxed")
def test_a_176_attack_on_the_record(arena: Arena) -> None:
    (pod,) = arena.pods(NOT_SANDBOXED, "harness")

    assert pod["spec"]["runtimeClassName"] == RUNC_CLASS
    assert "gvisor" not in kernel(arena, NOT_SANDBOXED)
    assert runtime(arena, NOT_SANDBOXED) == "runc"


@pytest.mark.usefixtures("unsandboxed")
def test_a_176_twin(arena: Arena) -> None:
    """The same handler in a class that is not listed: nothing holds the run back."""
    assert has_started(arena, NOT_SANDBOXED)
    assert_passed(arena, NOT_SANDBOXED)


def test_a_176_honest(arena: Arena, sandboxed: Trial) -> None:
    (pod,) = arena.pods(sandboxed, "harness")

    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert has_started(arena, sandboxed)
    assert runtime(arena, sandboxed) == "gvisor"
    assert_passed(arena, sandboxed)
