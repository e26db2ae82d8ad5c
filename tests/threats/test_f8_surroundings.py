"""F8: the API server is out of reach, and the runtime is the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from e2e.release import Raw, call
from threats.honest import APP, CHECK_ANSWER, TERMINAL, WRITE_ANSWER, assert_passed
from threats.kit.arena import RUNC_CLASS, Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.outcomes import not_applicable, not_built

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
NO_PROBES = (
    '[JSONPatch{op: "replace", path: "/spec/containers/0/command/3", value:'
    " object.spec.containers[0].command[3].replace("
    "object.spec.containers[0].command[3].find('\"probes\":\\\\[[^\\\\]]*\\\\]'),"
    " '\"probes\":[]')}]"
)
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
    arena.place(connected).release.create(_open(connected.name))
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


def _open(run: str) -> Raw:
    selected = {"securebench.dev/run": run, "securebench.dev/role": "harness"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"open-{run}"},
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Egress"],
            "egress": [{}],
        },
    }


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


@pytest.mark.trials(TERMINAL)
def test_a_156_honest(arena: Arena) -> None:
    assert_passed(arena, TERMINAL)


SHOW_KERNEL = f"{WRITE_ANSWER}import os\nprint(os.uname().release)\n"


def in_class(name: str) -> Trial:
    """Return an honest trial that asks for a runtime class."""
    spec = {"podTemplate": {"runtimeClassName": name}}
    batch = Batch(f"f8-in-{name}", "terminal_task", defaults=APP, spec=spec)
    return batch.task("kernel", agent=SHOW_KERNEL, grading=CHECK_ANSWER)


SANDBOXED, NOT_SANDBOXED = in_class("gvisor"), in_class(RUNC_CLASS)


@pytest.fixture(scope="session")
def runc_class() -> Iterator[None]:
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    body = json.dumps({**kind, "metadata": {"name": RUNC_CLASS}}).encode()
    call("kubectl", "create", "-f", "-", stdin=body)
    yield
    call("kubectl", "delete", "runtimeclass", RUNC_CLASS)


@pytest.fixture(scope="session")
def sandboxed(arena: Arena) -> Trial:
    names = call("kubectl", "get", "runtimeclass", "-o", "name").decode().split()
    if "runtimeclass.node.k8s.io/gvisor" not in names:
        not_applicable(f"the cluster has no runtime class gvisor, only {names}")
    arena.start([SANDBOXED])
    return SANDBOXED


def kernel(arena: Arena, trial: Trial) -> str:
    release: str = arena.record(trial)["producer_stdout"].strip()
    return release


def test_a_168_attack_in_a_sandbox(arena: Arena, sandboxed: Trial) -> None:
    assert "gvisor" in kernel(arena, sandboxed)
    assert arena.record(sandboxed)["labels"]["runtime"] == "gvisor"


@pytest.mark.usefixtures("runc_class")
def test_a_176_attack(arena: Arena) -> None:
    arena.start([NOT_SANDBOXED])
    said = arena.record(NOT_SANDBOXED)["labels"]["runtime"]

    assert "gvisor" not in kernel(arena, NOT_SANDBOXED)
    if said == RUNC_CLASS:
        not_built("the runtime is recorded by the name of its class; no Pod measures it")
    assert said == "runc"


def test_a_176_twin(arena: Arena, sandboxed: Trial) -> None:
    (pod,) = arena.pods(sandboxed, "harness")

    assert pod["spec"]["runtimeClassName"] == "gvisor"
    assert "gvisor" in kernel(arena, sandboxed)
    assert arena.record(sandboxed)["labels"]["runtime"] == "gvisor"


def test_a_176_honest(arena: Arena, sandboxed: Trial) -> None:
    assert_passed(arena, sandboxed)
