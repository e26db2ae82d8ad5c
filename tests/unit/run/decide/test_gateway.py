"""What is decided about a run's gateway."""

from dataclasses import replace

import pytest

from securebench.clock import Instant
from securebench.run.decide.gateway import (
    RESTART_LIMIT_SECONDS,
    RESTART_SECONDS,
    SILENT_NODE_SECONDS,
    STUCK_SECONDS,
    UNREADY_SECONDS,
    GatewayMemory,
    ObservedGateway,
    decide,
    delayed,
    refused,
)
from securebench.run.observe.pods import ObjectView, pod_view
from support.build import NOW, ended, pod_status, running

SERVICE = ObjectView("gw", NOW, "10.96.0.7")
READY = pod_status("Running", running("gateway"), conditions=[{"type": "Ready", "status": "True"}])
RUNNING = pod_status("Running", running("gateway"))
SILENT = pod_status(
    "Running",
    running("gateway"),
    conditions=[
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False"},
    ],
)
"""As the node controller leaves it when a node does not answer."""

PENDING = pod_status("Pending")
FAILED = pod_status("Failed", ended("gateway", 1, message="no key"))
AT = Instant(NOW, NOW)
UP = GatewayMemory(ready_uid="uid-1", ready_since=NOW - 100, keys_at=NOW + 600)


def view(number, status, *, deleting=False):
    metadata = {
        "name": f"gw-{number}",
        "uid": f"uid-{number}",
        "labels": {"securebench.dev/role": "gateway"},
    }
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return pod_view({"metadata": metadata, "status": status})


def seen(*pods, service=SERVICE, vanished=0, held=""):
    return ObservedGateway(
        name="gw",
        pods={int(pod.name[3:]): pod for pod in pods},
        last_vanished=vanished,
        service=service,
        create_blocked=held,
        start_seconds=180.0,
    )


def done(step):
    """Return what a step does: start, service, keys, names of Pods to delete."""
    return step.start, step.needs_service, step.needs_keys, [pod.name for pod in step.delete]


NOTHING = (0, False, False, [])
DOWN = GatewayMemory(down_since=NOW - 10, running_uid="uid-1", running_since=NOW - STUCK_SECONDS)

STEPS = {
    "nothing is there": (seen(service=None), GatewayMemory(), (1, False, False, [])),
    "it starts": (seen(view(1, PENDING)), GatewayMemory(), NOTHING),
    "it is ready": (seen(view(1, READY)), UP, NOTHING),
    "keys are due": (
        seen(view(1, READY)),
        replace(UP, keys_at=NOW),
        (0, False, True, []),
    ),
    "its Service is gone": (seen(view(1, READY), service=None), UP, (0, True, False, [])),
    "its Service is gone and was asked for a moment ago": (
        seen(view(1, READY), service=None),
        delayed(UP, "no answer", NOW),
        NOTHING,
    ),
    "its Service has no address": (
        seen(view(1, READY), service=replace(SERVICE, address="")),
        UP,
        NOTHING,
    ),
    "an older one is ready, too": (
        seen(view(1, READY), view(2, READY)),
        UP,
        (0, False, False, ["gw-1"]),
    ),
    "an older one is going": (seen(view(1, READY, deleting=True), view(2, READY)), UP, NOTHING),
    "it ended a moment ago": (seen(view(1, FAILED)), UP, NOTHING),
    "it ended and the pause is over": (
        seen(view(1, FAILED)),
        GatewayMemory(down_since=NOW - 5, last_failed=1, failures=1, next_at=NOW),
        (2, False, False, []),
    ),
    "it vanished and the pause is over": (
        seen(vanished=1),
        GatewayMemory(down_since=NOW - 5, last_failed=1, failures=1, next_at=NOW),
        (2, False, False, []),
    ),
    "it was ready and is not": (seen(view(1, RUNNING)), UP, NOTHING),
    "it was ready and is not for long": (
        seen(view(1, RUNNING)),
        replace(UP, down_since=NOW - UNREADY_SECONDS),
        (0, False, False, ["gw-1"]),
    ),
    "its node does not answer": (
        seen(view(1, SILENT)),
        replace(UP, silent_since=NOW - SILENT_NODE_SECONDS + 1),
        NOTHING,
    ),
    "its node does not answer for long": (
        seen(view(1, SILENT)),
        replace(UP, silent_since=NOW - SILENT_NODE_SECONDS),
        (0, False, False, ["gw-1"]),
    ),
    "its node does not answer an operator that started again": (
        seen(view(1, SILENT)),
        DOWN,
        NOTHING,
    ),
    "it runs for long and was never ready": (
        seen(view(1, RUNNING)),
        DOWN,
        (0, False, False, ["gw-1"]),
    ),
    "it does not run": (seen(view(1, PENDING)), DOWN, NOTHING),
    "there will be none": (seen(), refused(UP, "forbidden"), NOTHING),
}


@pytest.mark.parametrize("name", STEPS)
def test_what_is_done(name):
    what, known, want = STEPS[name]
    step = decide(what, known, AT)
    assert done(step) == want
    assert step.wake_at is None or step.wake_at > NOW or step.needs_keys


def test_carrying_a_step_out_twice_decides_the_same():
    for what, known, _ in STEPS.values():
        once = decide(what, known, AT)
        again = decide(what, once.memory, AT)
        assert (again.delete, again.memory) == (once.delete, once.memory)


def test_a_gateway_is_ready_when_its_pod_and_its_service_are():
    assert seen(view(1, READY)).is_ready
    assert not seen(view(1, READY), service=None).is_ready
    assert not seen(view(1, READY), service=replace(SERVICE, address="")).is_ready
    assert not seen(view(1, RUNNING)).is_ready


def test_pauses_double_up_to_a_limit():
    known, pauses = GatewayMemory(down_since=NOW), []
    for number in range(1, 8):
        known = decide(seen(view(number, FAILED)), known, AT).memory
        pauses.append(known.next_at - NOW)
    assert pauses[:3] == [RESTART_SECONDS, 2 * RESTART_SECONDS, 4 * RESTART_SECONDS]
    assert pauses[-1] == RESTART_LIMIT_SECONDS
    assert known.trouble == "gateway Pod gw-7: it ended with exit code 1 (no key)"


def test_one_that_was_ready_for_long_is_replaced_soon():
    known = replace(UP, failures=9, last_failed=0)
    assert decide(seen(vanished=1), known, AT).memory.next_at == NOW + RESTART_SECONDS
    soon = replace(known, ready_since=NOW - 1)
    assert decide(seen(vanished=1), soon, AT).memory.next_at == NOW + RESTART_LIMIT_SECONDS


def test_the_waiting_ends_in_time_but_not_for_a_quota():
    known = GatewayMemory(down_since=NOW - 180)
    assert decide(seen(view(1, PENDING)), known, AT).memory.failure.startswith(
        "the run had no gateway for 180 seconds: gateway Pod gw-1: "
    )
    waiting = decide(seen(view(1, PENDING), held="exceeded quota"), known, AT).memory
    assert (waiting.failure, waiting.down_since) == ("", NOW)


def test_since_when_it_is_gone_does_not_move_while_its_successor_cannot_be_made():
    gone = decide(seen(vanished=1, held="exceeded quota"), UP, AT).memory
    later = Instant(NOW + 9, NOW + 9)
    waiting = decide(seen(vanished=1), delayed(gone, "no answer", NOW + 8), later).memory
    assert (waiting.down_since, waiting.gone_since) == (NOW + 8, NOW)
    back = decide(seen(view(2, READY)), waiting, later).memory
    assert back.gone_since is None


@pytest.mark.parametrize(
    ("status", "known", "words"),
    [
        (RUNNING, UP, "it runs and is not ready"),
        (RUNNING, GatewayMemory(), "waiting for a node"),
        (SILENT, UP, "its node does not answer"),
    ],
    ids=["was-ready", "starts", "silent-node"],
)
def test_what_is_said_of_a_gateway_that_is_not_ready(status, known, words):
    memory = decide(seen(view(1, status)), known, AT).memory
    assert memory.trouble == f"gateway Pod gw-1: {words}"


@pytest.mark.parametrize(
    ("status", "known"),
    [
        (SILENT, replace(UP, down_since=NOW - 170, silent_since=NOW - 170)),
        (RUNNING, replace(UP, down_since=NOW - 170)),
        (RUNNING, replace(DOWN, down_since=NOW - 170)),
        (PENDING, replace(DOWN, down_since=NOW - 200)),
    ],
    ids=["silent-node", "was-ready", "stuck", "starts"],
)
def test_the_time_without_an_api_server_does_not_count(status, known):
    what = seen(view(1, status))
    ended = decide(what, known, AT)
    assert ended.delete or ended.memory.failure
    step = decide(replace(what, answered_at=NOW - 2, listed_at=NOW - 2), known, AT)
    assert (step.delete, step.memory.failure) == ((), "")
    assert step.memory.down_since >= NOW - 2


def test_the_successor_of_a_gateway_on_a_silent_node_has_its_whole_time():
    known = UP
    for second in range(0, int(SILENT_NODE_SECONDS) + 1, 5):
        at = NOW + second
        step = decide(seen(view(1, SILENT)), known, Instant(at, at))
        known = step.memory
    assert step.delete
    for second in range(0, 180, 5):
        later = Instant(at + second, at + second)
        step = decide(replace(seen(view(2, PENDING)), listed_at=at + second), known, later)
        known = step.memory
        assert (known.failure, known.silent_since) == ("", None)
    late = Instant(at + 180, at + 180)
    assert decide(replace(seen(view(2, PENDING)), listed_at=at + 180), known, late).memory.failure


def test_an_outage_before_the_gateway_went_changes_nothing():
    known = replace(UP, down_since=NOW - UNREADY_SECONDS)
    step = decide(replace(seen(view(1, RUNNING)), answered_at=NOW - 100), known, AT)
    assert done(step) == (0, False, False, ["gw-1"])


def test_nobody_gives_up_before_pods_were_listed_once_more():
    known, late = GatewayMemory(down_since=NOW - 180), seen(view(1, PENDING))
    step = decide(replace(late, listed_at=NOW - 1), known, AT)
    assert (step.memory.failure, step.needs_list) == ("", True)
    assert step.wake_at > NOW
    step = decide(replace(late, listed_at=NOW), known, AT)
    assert step.memory.failure
    assert not step.needs_list


def test_a_wall_clock_that_jumps_ends_no_waiting():
    known, starting = GatewayMemory(down_since=NOW - 10), seen(view(1, PENDING))
    for wall in (NOW - 3600, NOW + 3600):
        step = decide(starting, known, Instant(wall, NOW))
        assert (step.memory.down_since, step.memory.failure) == (NOW - 10, "")
        assert step.wake_at == NOW + UNREADY_SECONDS


def test_a_gateway_that_comes_back_is_no_trouble():
    known = replace(UP, down_since=NOW - 5, trouble="it ended")
    step = decide(seen(view(1, READY)), known, AT)
    assert (step.memory.down_since, step.memory.trouble) == (None, "")
    assert step.wake_at == UP.keys_at
