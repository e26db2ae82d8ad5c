"""Which kind of Pod reaches what: ``python -m threats.network.policy_matrix`` prints the table.

The Pods are those that a run makes, with a probe in the place of their main container; the
policies are the run's own. Three runs stand side by side: one without a network, one with a
gateway, and another with a gateway. The exit code is 1 where an address is open that must be
closed, or closed that must be open. Needs the local node and tests/outside.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from outside import places
from securebench.protocol.gateway import GATEWAY_PORT, GatewayLimits
from securebench.protocol.messages import CLOSED
from securebench.protocol.supervise import ProbeSpec, TargetSpec
from securebench.run.plan.model import LaunchKey, Role, RunIdentity, RunPlan
from securebench.run.pods import isolation
from securebench.run.pods.containers import POD_SUPERVISE, supervise_argv
from securebench.run.pods.gateway import GatewayPolicy, gateway_pod, gateway_service
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.isolation import canary_pod, control_pod
from securebench.run.verification.base import Member, verifier_pod
from support.build import DOMAINS
from support.manifest_samples import FACTS, LANES, candidate, pods, run_plan, text_task
from support.release import Raw, call, namespace
from threats.kit.network import Listener, listen

API_PORTS = (443, 6443)
KUBELET_PORT = 10250
OTHER_PORT = 9000
"""Of a gateway Pod: nobody may reach it."""
ANY_ADDRESS = "192.0.2.1"
"""Stands for the gateway's in the sidecar's arguments; the sidecar is left out here."""
SECONDS = 120
QUIET_SECONDS = 3
LIMIT_SECONDS = 20
HARNESS = LaunchKey(0, 1, Role.HARNESS, 1)
VERIFIER = LaunchKey(0, 1, Role.VERIFIER, 1)

LISTEN = f"""\
import socket, threading
def serve(port):
    with socket.create_server(("", port)) as server:
        while True:
            server.accept()[0].close()
for port in ({GATEWAY_PORT}, {OTHER_PORT}):
    threading.Thread(target=serve, args=(port,)).start()
"""

KINDS = (
    "harness, no network",
    "harness",
    "harness, other run",
    "verifier",
    "gateway",
    "canary",
    "control",
)
AGENTS = ("harness", "canary")


class Address(NamedTuple):
    """What is tried, and from which kinds of Pods it must answer."""

    name: str
    host: str
    port: int
    protocol: str
    open_from: tuple[str, ...]


class Run(NamedTuple):
    """One run: its plan and its network policies."""

    plan: RunPlan
    policies: tuple[Raw, ...]


def run_of(space: str, *, has_gateway: bool) -> Run:
    """Return a run as the operator would have it; where it has a gateway, with its policies."""
    uid = str(uuid.uuid4())
    plan = run_plan(
        text_task(),
        identity=RunIdentity(uid, f"matrix-{uid[:8]}", space, "matrix"),
        pods=pods(image=os.environ["SECUREBENCH_POD_IMAGE"], service_account="default"),
    )
    if not has_gateway:
        return Run(plan, (isolation.deny_policy(plan),))
    plan = replace(plan, egress=DOMAINS)
    policies = (
        isolation.deny_policy(plan),
        isolation.egress_policy(plan),
        isolation.gateway_policy(plan, [places.RESOLVER]),
    )
    return Run(plan, policies)


def gateway_of(run: Run, number: int) -> Raw:
    """Return a gateway Pod of a run."""
    limits = GatewayPolicy(run.plan.pods.image, "256Mi", GatewayLimits(), (places.RESOLVER,))
    return dict(gateway_pod(run.plan, number, limits, 1))


def pods_of(closed: Run, run: Run, other: Run) -> dict[str, Raw]:
    """Return one Pod of each kind, as a run makes it."""
    task = text_task()
    facts = replace(FACTS, gateway=ANY_ADDRESS)
    return {
        "harness, no network": dict(harness_pod(closed.plan, task, HARNESS, LANES, facts)),
        "harness": dict(harness_pod(run.plan, task, HARNESS, LANES, facts)),
        "harness, other run": dict(harness_pod(other.plan, task, HARNESS, LANES, facts)),
        "verifier": dict(
            verifier_pod(run.plan, [Member(task, VERIFIER, LANES, candidate())], facts)
        ),
        "gateway": gateway_of(run, 2),
        "canary": dict(canary_pod(run.plan, 1, (), facts)),
        "control": dict(control_pod(run.plan, 1, ())),
    }


def with_command(pod: Raw, image: str, command: Sequence[str]) -> Raw:
    """Return a Pod with one container in the place of its own, and without volumes.

    Its labels and its network settings stay; its owner is taken off, as there is none.
    """
    changed = json.loads(json.dumps(pod))
    changed["metadata"].pop("ownerReferences", None)
    spec = changed["spec"]
    for key in ("initContainers", "volumes", "affinity"):
        spec.pop(key, None)
    container = {
        key: value
        for key, value in spec["containers"][0].items()
        if key in {"name", "securityContext", "resources"}
    }
    container["image"] = os.environ[image]
    container["securityContext"] |= {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True}
    container["command"] = list(command)
    spec["containers"] = [container]
    spec["terminationGracePeriodSeconds"] = 0
    return dict(changed)


def listening(pod: Raw) -> Raw:
    """Return a Pod that accepts connections on the gateway's port and on another one."""
    return with_command(pod, "SECUREBENCH_OPERATOR_IMAGE", ["python3", "-I", "-c", LISTEN])


def probing(pod: Raw, kind: str, addresses: Sequence[Address]) -> Raw:
    """Return a Pod that tries every address until it has long found what must be."""
    targets = {True: [], False: []}  # type: dict[bool, list[TargetSpec]]
    for number, each in enumerate(addresses):
        target = TargetSpec(str(number), each.host, each.port, each.protocol)
        targets[kind in each.open_from].append(target)
    spec = ProbeSpec(
        want=CLOSED,
        timeout_seconds=2,
        quiet_seconds=QUIET_SECONDS,
        limit_seconds=LIMIT_SECONDS,
        targets=tuple(targets[False]),
        must_open=tuple(targets[True]),
    )
    command = supervise_argv(POD_SUPERVISE, spec)
    return with_command(pod, "SECUREBENCH_POD_IMAGE", command)


def addresses_of(
    node: str, neighbours: Sequence[Listener], listeners: dict[str, str], run: Run
) -> list[Address]:
    """Return every kind of address.

    Args:
        node: Address of the node.
        neighbours: Of Pods that no policy selects, in this namespace and in another one.
        listeners: Address by name of the Pods of the runs that listen.
        run: The run of most Pods.
    """
    control, gateway = ("control",), ("control", "gateway")
    found = [
        Address("API server, service", "10.96.0.1", API_PORTS[0], "tcp", control),
        Address("API server, node", node, API_PORTS[1], "tcp", control),
        Address("kubelet", node, KUBELET_PORT, "tcp", control),
        Address("metadata", places.METADATA, 80, "tcp", control),
        Address("name server, UDP", places.RESOLVER, 53, "udp", gateway),
        Address("name server, TCP", places.RESOLVER, 53, "tcp", gateway),
        Address("other name server", places.UNLISTED, 53, "tcp", control),
        Address("outside, 443", places.WEB, 443, "tcp", gateway),
        Address("outside, 80", places.WEB, 80, "tcp", gateway),
        Address("outside, no name, 443", places.UNLISTED, 443, "tcp", gateway),
        Address("outside, other port", places.WEB, 6443, "tcp", control),
        Address("documentation network", places.TEST_NETS[0], 443, "tcp", control),
    ]
    for place, each in zip(("here", "other namespace"), neighbours, strict=True):
        found += [
            Address(f"Pod, {place}", each.address, 443, "tcp", control),
            Address(f"service, {place}", each.service, 8080, "tcp", control),
            Address(f"node port, {place}", each.node, each.node_port, "tcp", control),
        ]
    service = service_address(run)
    other = ("harness, other run",)
    return [
        *found,
        Address("Pod of the run", listeners["harness"], GATEWAY_PORT, "tcp", ()),
        Address("own gateway", listeners["gateway"], GATEWAY_PORT, "tcp", AGENTS),
        Address("own gateway, service", service, GATEWAY_PORT, "tcp", AGENTS),
        Address("own gateway, other port", listeners["gateway"], OTHER_PORT, "tcp", ()),
        Address("other run's gateway", listeners["other gateway"], GATEWAY_PORT, "tcp", other),
    ]


def service_address(run: Run) -> str:
    """Make the Service of a run's gateway and return its address."""
    service = json.loads(json.dumps(gateway_service(run.plan)))
    service["metadata"].pop("ownerReferences")
    create(run.plan.identity.namespace, service)
    name = service["metadata"]["name"]
    address: str = get(run.plan.identity.namespace, "service", name)["spec"]["clusterIP"]
    return address


def create(space: str, *items: Raw) -> None:
    """Create objects."""
    body = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    call("kubectl", "-n", space, "create", "-f", "-", stdin=json.dumps(body).encode())


def get(space: str, kind: str, name: str) -> Raw:
    """Return one object."""
    found: Raw = json.loads(call("kubectl", "-n", space, "get", kind, name, "-o", "json"))
    return found


def pod_in_phase(space: str, name: str, phase: str) -> Raw:
    """Return a Pod when it has reached a phase."""
    late = time.monotonic() + SECONDS
    while True:
        pod = get(space, "pod", name)
        if pod["status"].get("phase") == phase:
            return pod
        is_over = time.monotonic() > late or pod["status"].get("phase") == "Failed"
        assert not is_over, f"{name} does not become {phase}: {story(space, name)}"
        time.sleep(0.3)


def story(space: str, name: str) -> str:
    """Return what is known of a Pod that is not as it should be."""
    words = ("kubectl", "-n", space)
    events = call(*words, "get", "events", f"--field-selector=involvedObject.name={name}")
    log = call(*words, "logs", name, "--ignore-errors")
    return (events + log).decode()


def start_listeners(space: str, run: Run, other: Run) -> dict[str, str]:
    """Start the Pods of the runs that listen, and return their addresses."""
    wanted: dict[str, Any] = {
        "harness": harness_pod(run.plan, text_task(), HARNESS._replace(attempt=2), LANES, FACTS),
        "gateway": gateway_of(run, 1),
        "other gateway": gateway_of(other, 1),
    }
    create(space, *map(listening, wanted.values()))
    return {
        name: pod_in_phase(space, pod["metadata"]["name"], "Running")["status"]["podIP"]
        for name, pod in wanted.items()
    }


def observed(space: str, pod: Raw) -> dict[str, str]:
    """Return the state by the number of an address that a probing Pod found."""
    ended = pod_in_phase(space, pod["metadata"]["name"], "Succeeded")
    (status,) = ended["status"]["containerStatuses"]
    states: dict[str, str] = json.loads(status["state"]["terminated"]["message"])["targets"]
    return states


def cell(kind: str, address: Address, state: str) -> str:
    """Return what the table shows; a difference stands out."""
    wanted = "open" if kind in address.open_from else "closed"
    if state == wanted:
        return "[green]open[/]" if state == "open" else "closed"
    return f"[red]{state} (want {wanted})[/]"


def main() -> int:
    """Make the Pods, print the table and return the exit code."""
    with namespace("sb-matrix") as space, namespace("sb-matrix-other") as elsewhere:
        closed, run, other = (run_of(space, has_gateway=has) for has in (False, True, True))
        neighbours = listen([space, elsewhere])
        create(space, *(each for item in (closed, run, other) for each in unowned(item)))
        listeners = start_listeners(space, run, other)
        addresses = addresses_of(neighbours[0].node, neighbours, listeners, run)
        probes = pods_of(closed, run, other)
        create(space, *(probing(pod, kind, addresses) for kind, pod in probes.items()))
        found = {kind: observed(space, pod) for kind, pod in probes.items()}
    return report(addresses, found)


def unowned(run: Run) -> list[Raw]:
    """Return the policies of a run without their owner, which does not exist here."""
    policies = json.loads(json.dumps(run.policies))
    for each in policies:
        each["metadata"].pop("ownerReferences")
    return list(policies)


def report(addresses: Sequence[Address], found: dict[str, dict[str, str]]) -> int:
    """Print the table and return 1 where it has a difference."""
    table = Table("to \\ from", *KINDS, title="what answers to whom")
    wrong = 0
    for number, each in enumerate(addresses):
        cells = [cell(kind, each, found[kind][str(number)]) for kind in KINDS]
        wrong += sum("want" in text for text in cells)
        table.add_row(each.name, *cells)
    console = Console(width=180)
    console.print(table)
    checked = len(addresses) * len(KINDS)
    console.print(f"policy matrix: {checked - wrong} of {checked} as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
