"""A task that waits for its model provider says so within five seconds, by the gateway's file."""

from contextlib import contextmanager

import pytest

from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.protocol.gateway import MAX_LISTED_WAITS, ProviderWait, ProviderWaits, encode
from support.agent_world import CODEX, CODEX_OVERLAYS, AgentWorld
from support.build import pod_status, running
from support.operator_world import opened

TOLD_SECONDS = 5.0
FULL = "exceeded quota: pods"
WORDS = "waiting for the model provider api.openai.com, which answers 429"


@contextmanager
def two_agents(root):
    """Open an operator whose run has two agents that work; ``working`` names their Pods."""
    settings = {"harness": CODEX, "key": "OPENAI_API_KEY", "overlays": CODEX_OVERLAYS}
    with opened(AgentWorld, root, **settings) as world:
        world.uid = world.begin(parallelism=2)
        world.working = [name for name in world.pods() if "gateway" not in name]
        for name in world.working:
            world.cluster.set_pod_status(name, pod_status("Running", running("harness")))
        world.wait(5)
        yield world


@pytest.fixture
def world(tmp_path):
    with two_agents(tmp_path) as world:
        yield world


def tell(world, waits):
    folder = world.root / "runs" / world.uid / "gateway"
    (folder / "waits.json").write_bytes(waits if isinstance(waits, bytes) else encode(waits))


def waiting(world, number=1, **changes):
    wait = ProviderWait(world.working[number], world.clock.now(), 429, **changes)
    return ProviderWaits(1, (wait,))


def told(world):
    return world.condition()["reason"], world.condition()["message"]


def events(world):
    return [event["note"] for event in world.cluster.objects(ObjectKind.EVENT).values()]


def test_a_wait_is_told_in_status_and_events_and_goes(world):
    assert told(world) == ("Running", "")
    tell(world, waiting(world, until=world.clock.now() + 60))
    world.wait(TOLD_SECONDS)
    reason, message = told(world)
    assert reason == "Running"
    assert message.startswith(f"task #1: {WORDS}: since 2026-")
    assert ", not before 2026-" in message
    assert WORDS in events(world)
    tell(world, ProviderWaits())
    world.wait(TOLD_SECONDS)
    assert told(world) == ("Running", "")


def test_a_short_wait_is_not_told(world):
    tell(world, waiting(world))
    world.wait(2)
    tell(world, ProviderWaits())
    world.wait(TOLD_SECONDS)
    assert WORDS not in events(world)


def test_a_full_quota_hides_no_wait_for_the_provider(world):
    for _ in range(9):
        world.cluster.fail_next("create", QuotaExceeded(FULL), kind=ObjectKind.POD)
    first, _ = world.working
    world.cluster.set_pod_status(first, world.ending(world.uid, world.launch(first)))
    tell(world, waiting(world))
    world.wait(TOLD_SECONDS + 2)
    assert world.condition()["reason"] == "QuotaExceeded"
    assert world.condition()["message"].endswith(f"{FULL}; also task #1: {WORDS}")
    reasons = {each["reason"] for each in world.cluster.objects(ObjectKind.EVENT).values()}
    assert WORDS in events(world)
    assert "QuotaExceeded" in reasons
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    world.wait(30)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] == writes


def test_a_wait_that_goes_on_writes_no_status(world):
    tell(world, waiting(world))
    world.wait(TOLD_SECONDS)
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    world.wait(30)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] == writes


SENSELESS = {
    "no JSON": b"{",
    "an unknown field": b'{"launches": 1, "longest": [], "more": 1}',
    "more than it counts": encode(ProviderWaits(0, (ProviderWait("p", 1.0),))),
    "more than it may name": encode(
        ProviderWaits(99, tuple(ProviderWait("p", 1.0) for _ in range(MAX_LISTED_WAITS + 1)))
    ),
    "too long": encode(ProviderWaits(1, (ProviderWait("p", 1.0),))) + b" " * 20_000,
    "an endless time": b'{"launches": 1, "longest": [{"pod": "p", "since": 1, "until": 1e999}]}',
    "a time that nobody can write": encode(ProviderWaits(1, (ProviderWait("p", 1.0, 0, 1e15),))),
    "a time before all others": encode(ProviderWaits(1, (ProviderWait("p", -1e15),))),
    "a status that is none": encode(ProviderWaits(1, (ProviderWait("p", 1.0, 1000),))),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_a_file_without_sense_says_nothing(world, name):
    text = SENSELESS[name].replace(b'"p"', f'"{world.working[0]}"'.encode())
    tell(world, text)
    world.wait(TOLD_SECONDS)
    assert told(world) == ("Running", "")
