"""The keeper of a run's gateway, on a cluster in memory."""

import asyncio
import itertools
import json
import sys
from dataclasses import replace
from unittest import mock

import pytest

from securebench.cluster.port import Forbidden, ObjectKind, QuotaExceeded
from securebench.controller.gateway_keeper import GatewayKeeper
from securebench.controller.informers import PodInformer
from securebench.controller.loop_tasks import Wake
from securebench.controller.object_writers import ObjectWriters
from securebench.controller.volume.store import RunStore
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.protocol.gateway import GatewayConfig, decode
from securebench.run.decide.gateway import (
    ANSWER_SECONDS,
    KEYS_SECONDS,
    RESTART_LIMIT_SECONDS,
    STUCK_SECONDS,
    UNREADY_SECONDS,
    decide,
)
from securebench.run.plan.model import LaunchKey, Role
from support.build import (
    DOMAINS,
    MONOTONIC,
    OPENAI,
    FakeClock,
    VirtualLoop,
    context_of,
    ended,
    inline,
    plan_of,
    pod_status,
    raw_pod,
    running,
    waiting,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID
from support.places import gateway_place

PLAN = replace(plan_of(), egress=DOMAINS)
NAME = "sb-3f2a9c1e5b7d-gateway"
START_SECONDS = 180
PARALLELISM = 60
READY = {"type": "Ready", "status": "True"}


def ready():
    return pod_status("Running", running("gateway"), conditions=[READY])


class World:
    def __init__(self, root, plan=PLAN):
        self.root = root
        self.plan = plan
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.store = RunStore(root, RUN_UID)
        self.begin()

    def begin(self):
        """Start a process that knows nothing."""
        self.context = context_of(self.cluster, self.clock, self.root)
        self.woken = mock.Mock()
        self.informer = PodInformer(self.cluster, "", 60.0, self.woken)
        self.writers = ObjectWriters(self.context, RUN_UID, self.informer, self.woken)
        self.keeper = GatewayKeeper(
            self.context, self.plan, self.store, self.writers, self.informer
        )

    def passes(self, count=1, seconds=0.0):
        """Do as the run loop does: look, tend, let the background work."""

        async def turn():
            for _ in range(count):
                self.clock.advance(seconds)
                await self.informer.list()
                await self.keeper.services.list()
                await self.tend()
            await self.informer.list()

        self.runner.run(turn())

    @property
    def wake_at(self):
        return decide(self.keeper.observe(), self.keeper.memory, self.clock.instant()).wake_at

    async def tend(self):
        self.writers.observe()
        step = decide(self.keeper.observe(), self.keeper.memory, self.clock.instant())
        self.keeper.apply(step, PARALLELISM)
        await asyncio.sleep(0.001)

    def pods(self):
        return sorted(self.cluster.objects(ObjectKind.POD))

    def set(self, status, number=1):
        self.cluster.set_pod_status(f"{NAME}-{number}", status)

    def come_up(self):
        self.passes()
        self.set(ready())
        self.passes()
        assert self.keeper.observe().is_ready


@pytest.fixture
def world(tmp_path):
    with mock.patch.object(asyncio, "to_thread", inline):
        world = World(tmp_path)
        yield world
        world.runner.run(world.writers.tasks.close())
        world.runner.close()


def gateway_file(world, name):
    return (world.root / "runs" / RUN_UID / "gateway" / name).read_bytes()


def work_of_a_look(world):
    """Return how many instructions are executed to observe the gateway and to decide about it."""
    count = itertools.count()

    def trace(frame, event, _):
        frame.f_trace_opcodes = True
        if event == "opcode":
            next(count)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decide(world.keeper.observe(), world.keeper.memory, world.clock.instant())
    finally:
        sys.settrace(before)
    return next(count)


def test_a_look_costs_the_same_however_many_launches_have_ended(world):
    world.come_up()
    before = work_of_a_look(world)
    for task in range(200):
        raw = raw_pod(LaunchKey(task, 1, Role.HARNESS, 1))
        world.informer.note_created(raw)
        world.informer.note_deleted(raw["metadata"]["name"], raw["metadata"]["uid"])
    assert len(world.informer.vanished) == 200
    assert work_of_a_look(world) == before > 0


# The start


def test_everything_is_there_before_the_pod(world):
    world.passes()
    created = [(call.kind, call.name) for call in world.cluster.calls if call.verb == "create"]
    assert created == [
        (ObjectKind.SERVICE, NAME),
        (ObjectKind.POD, f"{NAME}-1"),
    ]
    config = decode(GatewayConfig, gateway_file(world, "config.json"))
    assert config.domains == DOMAINS.domains
    assert gateway_file(world, "keys.json") == world.cluster.keys
    assert (gateway_place(world.store) / "launches").is_dir()


def test_the_gateway_is_ready_when_its_pod_is(world):
    world.passes()
    assert not world.keeper.observe().is_ready
    assert world.keeper.memory.trouble
    world.set(pod_status("Running", running("gateway")))
    world.passes()
    assert not world.keeper.observe().is_ready
    world.set(ready())
    world.passes()
    assert (
        world.keeper.observe().is_ready,
        world.keeper.memory.trouble,
        world.keeper.memory.failure,
    ) == (True, "", "")
    service = world.cluster.objects(ObjectKind.SERVICE)[NAME]
    assert world.keeper.address == service["spec"]["clusterIP"]


def test_a_run_with_a_provider_names_its_secret(tmp_path):
    with mock.patch.object(asyncio, "to_thread", inline):
        world = World(tmp_path, replace(plan_of(), egress=OPENAI))
        world.passes()
        text = json.dumps(world.cluster.objects(ObjectKind.POD)[f"{NAME}-1"])
        assert '"secretName": "openai-key"' in text
        world.runner.close()


def test_an_operator_that_starts_again_finds_the_gateway(world):
    world.come_up()
    address = world.keeper.address
    world.begin()
    world.passes()
    assert world.keeper.observe().is_ready
    assert world.keeper.address == address
    assert world.pods() == [f"{NAME}-1"]


def test_a_pod_that_an_earlier_process_made_unseen_is_taken_over(world):
    world.passes()
    world.begin()
    with mock.patch.object(world.informer, "list", mock.AsyncMock()):
        world.runner.run(world.tend())
    assert f"{NAME}-1" in world.informer.pods


# Trouble at the start

TROUBLES = {
    "image": (
        pod_status("Pending", waiting("gateway", "ErrImagePull", "not found")),
        "ErrImagePull: not found",
    ),
    "node": (
        pod_status(
            "Pending",
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes",
                }
            ],
        ),
        "0/1 nodes",
    ),
    "still pulling": (
        pod_status("Pending", waiting("gateway", "ContainerCreating", image="operator:1")),
        "pulling operator:1",
    ),
    "a restart": (
        pod_status(
            "Running",
            running("gateway") | {"lastState": ended("gateway", 3, message="no key")["state"]},
        ),
        "it ended with exit code 3 (no key)",
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_gateway_that_does_not_start_says_why_and_ends_in_time(world, name):
    status, words = TROUBLES[name]
    world.passes()
    world.set(status)
    world.passes()
    assert words in world.keeper.memory.trouble
    assert world.keeper.memory.failure == ""
    world.passes(seconds=START_SECONDS)
    assert world.keeper.memory.failure.startswith(
        "the run had no gateway for 180 seconds: gateway Pod "
    )
    assert words in world.keeper.memory.failure
    assert not world.keeper.observe().is_ready


def test_a_full_quota_is_waited_for(world):
    for _ in range(30):
        world.cluster.fail_next(
            "create", QuotaExceeded("exceeded quota: pods"), kind=ObjectKind.POD
        )
    world.passes(20, seconds=20.0)
    assert world.writers.retries.quota == "exceeded quota: pods"
    assert world.keeper.memory.failure == ""
    world.cluster.recover()
    world.passes(3, seconds=20.0)
    assert world.pods() == [f"{NAME}-1"]


def test_a_full_quota_for_services_is_waited_for(world):
    for _ in range(30):
        error = QuotaExceeded("exceeded quota: services")
        world.cluster.fail_next("create", error, kind=ObjectKind.SERVICE)
    world.passes(20, seconds=20.0)
    assert world.keeper.memory.trouble == "exceeded quota: services"
    assert world.keeper.memory.failure == ""


def refuse_services(world, count):
    for _ in range(count):
        error = Forbidden("services is forbidden", status=403)
        world.cluster.fail_next("create", error, kind=ObjectKind.SERVICE)


def test_a_service_that_rights_refuse_for_a_while_is_waited_for(world):
    refuse_services(world, 9)
    world.passes(20, seconds=20.0)
    assert world.keeper.memory.trouble.startswith(f"gateway {NAME}: services is forbidden; tried")
    assert world.writers.retries.forbidden == world.keeper.memory.trouble
    world.passes(20, seconds=20.0)
    assert world.pods() == [f"{NAME}-1"]
    assert world.writers.retries.forbidden == ""


def test_a_service_that_rights_refuse_for_long_is_given_up(world):
    refuse_services(world, 99)
    world.passes(100, seconds=10.0)
    assert world.keeper.memory.failure.startswith("the run's gateway cannot be made: gateway sb-")
    assert world.pods() == []
    assert world.wake_at is None


def test_a_service_that_is_refused_for_good_is_never_made(world):
    error = PermanentClusterError("no", status=422)
    world.cluster.fail_next("create", error, kind=ObjectKind.SERVICE)
    world.passes()
    assert world.keeper.memory.failure == "the run's gateway cannot be made: no"
    assert world.pods() == []
    assert world.wake_at is None


def test_a_refused_pod_is_a_refusal_of_the_run(world):
    error = PermanentClusterError("is invalid", status=422)
    world.cluster.fail_next("create", error, kind=ObjectKind.POD)
    world.passes()
    assert world.writers.retries.refusal == "is invalid"


def test_a_service_of_somebody_else_is_not_taken(world):
    service = {"metadata": {"name": NAME}, "spec": {}}
    world.runner.run(world.cluster.create(ObjectKind.SERVICE, service))
    world.passes()
    assert "is not this run's; delete it" in world.keeper.memory.failure


@pytest.mark.parametrize("address", ["", "None", 7])
def test_a_service_without_an_address_is_asked_for_again(world, address):
    world.passes()
    world.cluster.edit(ObjectKind.SERVICE, NAME, {"spec": {"clusterIP": address}})
    world.set(ready())
    world.begin()
    world.passes()
    assert not world.keeper.observe().is_ready
    assert world.keeper.memory.trouble == "the gateway's Service has no address yet"


def test_calls_without_an_answer_are_repeated(world):
    lost = TransientClusterError("no answer")
    world.cluster.fail_next("create", lost, before=False, kind=ObjectKind.SERVICE)
    world.cluster.fail_next("create", lost, before=False, kind=ObjectKind.NETWORK_POLICY)
    world.cluster.fail_next("create", lost, before=False, kind=ObjectKind.POD)
    world.passes(6, seconds=5.0)
    assert world.pods() == [f"{NAME}-1"]
    assert list(world.cluster.objects(ObjectKind.SERVICE)) == [NAME]


# While the run lives

ENDS = {
    "it ends": lambda world: world.set(pod_status("Failed", ended("gateway", 1))),
    "the kubelet refuses it": lambda world: world.set(pod_status("Failed", reason="OutOfcpu")),
    "it vanishes": lambda world: world.cluster.remove(ObjectKind.POD, f"{NAME}-1"),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_next_number_follows(world, name):
    world.come_up()
    ENDS[name](world)
    world.passes()
    assert not world.keeper.observe().is_ready
    assert f"{NAME}-2" not in world.pods()
    world.passes(seconds=3.0)
    assert f"{NAME}-2" in world.pods()
    world.set(ready(), number=2)
    world.passes(2)
    assert world.keeper.observe().is_ready
    assert world.pods() == [f"{NAME}-2"]


def test_keys_are_written_anew_for_the_next_pod(world):
    world.come_up()
    world.cluster.keys = b'{"keys":[]}'
    world.set(pod_status("Failed", ended("gateway", 1)))
    world.passes(2, seconds=3.0)
    assert gateway_file(world, "keys.json") == world.cluster.keys


def test_keys_that_were_rotated_are_written_anew(world):
    world.come_up()
    world.cluster.keys = b'{"keys":[]}'
    world.passes(seconds=1.0)
    assert gateway_file(world, "keys.json") != world.cluster.keys
    world.passes(seconds=KEYS_SECONDS)
    assert gateway_file(world, "keys.json") == world.cluster.keys


def test_a_gateway_that_runs_does_without_new_keys(world):
    world.come_up()
    error = PermanentClusterError("forbidden", status=403)
    with mock.patch.object(world.cluster, "signing_keys", side_effect=error):
        world.passes(3, seconds=KEYS_SECONDS)
    assert world.keeper.observe().is_ready
    assert world.keeper.memory.failure == ""


def test_pauses_grow_while_it_keeps_ending(world):
    world.passes()
    began = []
    known = 0
    for _ in range(170):
        if len(world.pods()) > known:
            known = len(world.pods())
            began.append(world.clock.now())
            world.set(pod_status("Failed", ended("gateway", 2, message="bad config")), known)
        world.passes(seconds=1.0)
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(began)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 4
    assert max(pauses) <= RESTART_LIMIT_SECONDS + 2
    world.passes(20, seconds=1.0)
    assert "it ended with exit code 2 (bad config)" in world.keeper.memory.failure


def lives(world, seconds):
    """Let five gateways be ready for so long and end; return the seconds until the next each."""
    pauses = []
    world.passes()
    for number in range(1, 6):
        world.set(ready(), number)
        world.passes()
        world.passes(seconds=seconds)
        world.set(pod_status("Failed", ended("gateway", 1)), number)
        before = world.clock.now()
        while f"{NAME}-{number + 1}" not in world.pods():
            world.passes(seconds=1.0)
        pauses.append(round(world.clock.now() - before))
    return pauses


def test_pauses_grow_while_it_ends_soon_after_it_was_ready(world):
    pauses = lives(world, 5.0)
    assert pauses == sorted(pauses)
    assert pauses[0] <= 4
    assert pauses[-1] >= RESTART_LIMIT_SECONDS


def test_pauses_stay_short_where_it_was_ready_for_long(world):
    assert max(lives(world, RESTART_LIMIT_SECONDS + 1)) <= 4


def test_a_gateway_that_is_not_ready_any_more_is_replaced(world):
    world.come_up()
    world.set(pod_status("Running", running("gateway")))
    world.passes(seconds=1.0)
    world.passes(seconds=UNREADY_SECONDS - 1)
    assert "deletionTimestamp" not in world.cluster.objects(ObjectKind.POD)[f"{NAME}-1"]["metadata"]
    world.passes(3, seconds=2.0)
    assert f"{NAME}-2" in world.pods()


def test_one_that_was_ready_for_an_earlier_process_is_replaced(world):
    world.come_up()
    world.set(pod_status("Running", running("gateway")))
    world.begin()
    world.passes()
    assert world.wake_at == pytest.approx(MONOTONIC + UNREADY_SECONDS, abs=1)
    world.passes(seconds=STUCK_SECONDS - 5)
    assert world.wake_at == pytest.approx(MONOTONIC + STUCK_SECONDS, abs=1)
    assert "deletionTimestamp" not in world.cluster.objects(ObjectKind.POD)[f"{NAME}-1"]["metadata"]
    world.passes(3, seconds=5.0)
    assert f"{NAME}-2" in world.pods()
    assert world.keeper.memory.failure == ""


def test_one_that_does_not_run_yet_is_waited_for(world):
    world.passes()
    world.set(pod_status("Running", running("gateway")))
    world.passes(seconds=STUCK_SECONDS - 5)
    world.set(pod_status("Pending", waiting("gateway", "ContainerCreating")))
    world.passes(seconds=STUCK_SECONDS)
    world.set(pod_status("Running", running("gateway")))
    world.passes(5, seconds=1.0)
    assert world.pods() == [f"{NAME}-1"]


def test_one_that_somebody_deletes_is_replaced(world):
    world.come_up()
    world.runner.run(world.cluster.delete(ObjectKind.POD, f"{NAME}-1", uid=None, grace_seconds=30))
    world.passes(2, seconds=3.0)
    assert f"{NAME}-2" in world.pods()


def test_the_newest_of_two_that_are_ready_stays(world):
    world.come_up()
    world.set(pod_status("Failed", ended("gateway", 1)))
    world.passes(2, seconds=3.0)
    world.set(ready(), number=1)
    world.set(ready(), number=2)
    world.passes()
    gone = [
        name
        for name, item in world.cluster.objects(ObjectKind.POD).items()
        if "deletionTimestamp" in item["metadata"]
    ]
    assert gone == [f"{NAME}-1"]


def test_a_service_that_somebody_deletes_is_made_again(world):
    world.come_up()
    before = world.keeper.address
    world.cluster.remove(ObjectKind.SERVICE, NAME)
    world.runner.run(world.keeper.services.list())
    assert not world.keeper.observe().is_ready
    world.passes()
    assert world.keeper.observe().is_ready
    assert (
        world.keeper.address == world.cluster.objects(ObjectKind.SERVICE)[NAME]["spec"]["clusterIP"]
    )
    assert world.keeper.address != before
    assert world.pods() == [f"{NAME}-1"]


def test_an_api_server_that_does_not_answer_ends_no_run(world):
    world.come_up()
    world.cluster.remove(ObjectKind.SERVICE, NAME)
    world.set(pod_status("Failed", ended("gateway", 1)))
    for _ in range(100):
        error = TransientClusterError("no answer")
        world.cluster.fail_next("create", error, kind=ObjectKind.SERVICE)
    world.passes(20, seconds=20.0)
    assert world.keeper.memory.failure == ""
    assert world.keeper.memory.trouble == "no answer"


# When to look again


def test_when_to_look_again(world):
    world.passes()
    assert world.wake_at == pytest.approx(MONOTONIC + UNREADY_SECONDS, abs=1)
    world.set(ready())
    world.passes()
    assert world.wake_at == pytest.approx(MONOTONIC + KEYS_SECONDS, abs=1)


def test_a_request_without_an_answer_is_looked_at_again_at_once(world):
    """What came of it says when to try again, and what the status says."""
    world.come_up()
    world.cluster.remove(ObjectKind.SERVICE, NAME)
    world.runner.run(world.keeper.services.list())
    world.cluster.fail_next("create", TransientClusterError("no"), kind=ObjectKind.SERVICE)
    world.woken.reset_mock()
    world.runner.run(world.tend())
    assert world.woken.call_count == 1
    assert world.wake_at == pytest.approx(MONOTONIC + ANSWER_SECONDS, abs=1)
    assert world.keeper.memory.trouble == "no"


def test_what_comes_of_a_request_between_look_and_act_counts(world):
    async def turn():
        step = decide(world.keeper.observe(), world.keeper.memory, world.clock.instant())
        world.keeper.apply(step, PARALLELISM)
        step = decide(world.keeper.observe(), world.keeper.memory, world.clock.instant())
        await asyncio.sleep(0.001)
        world.keeper.apply(step, PARALLELISM)

    error = PermanentClusterError("no", status=422)
    world.cluster.fail_next("create", error, kind=ObjectKind.SERVICE)
    world.runner.run(turn())
    assert world.keeper.memory.failure == "the run's gateway cannot be made: no"


@pytest.mark.parametrize("request_name", ["create", "signing_keys"])
def test_a_slow_request_holds_up_nothing_and_is_not_repeated(world, request_name):
    async def slow(*_):
        await asyncio.sleep(3600)

    if request_name == "signing_keys":
        world.come_up()
        world.clock.advance(KEYS_SECONDS)
    began = world.clock.now()
    with mock.patch.object(world.cluster, request_name, side_effect=slow) as requests:
        world.passes(3)
        assert requests.call_count == 1
        assert world.clock.now() < began + 1
        assert not world.writers.tasks.is_idle
        world.runner.run(world.writers.tasks.close())


# The end


def test_pods_and_service_go(world):
    world.come_up()
    world.runner.run(world.keeper.close(Wake(world.clock)))
    assert "deletionTimestamp" in world.cluster.objects(ObjectKind.POD)[f"{NAME}-1"]["metadata"]
    assert world.cluster.objects(ObjectKind.SERVICE) == {}
    world.runner.run(world.keeper.close(Wake(world.clock)))
