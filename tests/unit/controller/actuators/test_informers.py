import asyncio
import math

import pytest

from securebench.cluster.port import ObjectKind, WatchExpired
from securebench.controller.informers import (
    PAUSE_LIMIT_SECONDS,
    PAUSE_SECONDS,
    PodInformer,
    PolicyInformer,
    ServiceInformer,
)
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.plan.model import LaunchKey, Role
from support.build import (
    HARNESS,
    VERIFIER,
    FakeClock,
    VirtualLoop,
    harness_done,
    raw_pod,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID

NAME = "sb-3f2a9c1e5b7d-0-1h1"
OTHER = "sb-3f2a9c1e5b7d-0-1v1"
SELECTOR = "securebench.dev/run-uid"


RELIST_SECONDS = 60.0


class World:
    """A informer of a fake cluster in virtual time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.changes = 0
        self.informer = PodInformer(self.cluster, SELECTOR, RELIST_SECONDS, self.count)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.run = self.runner.run

    def count(self):
        self.changes += 1

    def pod(self, launch=HARNESS):
        return self.run(self.cluster.create(ObjectKind.POD, raw_pod(launch)))

    def names(self):
        return sorted(self.informer.pods)

    def follow(self):
        async def start():
            version = await self.informer.list()
            self.follower = asyncio.create_task(self.informer.follow(version))

        self.run(start())
        self.wait(0.1)

    def wait(self, seconds):
        self.run(asyncio.sleep(seconds))


def gateway_pod(number):
    labels = {"securebench.dev/role": "gateway", "securebench.dev/run-uid": RUN_UID}
    return {"metadata": {"name": f"sb-x-gateway-{number}", "uid": f"{number}", "labels": labels}}


def lists(world):
    return world.cluster.requests["list", ObjectKind.POD]


async def call(act):
    act()


@pytest.fixture
def world():
    world = World()
    yield world
    world.runner.close()


def test_a_list_shows_what_is_there(world):
    world.pod()
    world.run(world.cluster.create(ObjectKind.POD, {"metadata": {"name": "foreign"}}))
    world.run(world.informer.list())
    assert world.names() == [NAME]
    assert world.changes == 1


def test_a_pod_that_a_later_list_lacks_has_vanished(world):
    world.pod()
    world.run(world.informer.list())
    world.cluster.remove(ObjectKind.POD, NAME)
    world.run(world.informer.list())
    assert world.names() == []
    assert set(world.informer.vanished) == {NAME}


def test_of_pods_that_are_gone_those_of_open_attempts_and_of_none_are_remembered(world):
    for raw in (raw_pod(HARNESS), raw_pod(VERIFIER), gateway_pod(1), gateway_pod(2)):
        created = world.run(world.cluster.create(ObjectKind.POD, raw))
        world.informer.note_created(created)
        world.informer.note_deleted(created["metadata"]["name"], created["metadata"]["uid"])
    world.informer.forget_vanished(lambda name, launch: (name, launch) == (NAME, HARNESS))
    assert set(world.informer.vanished) == {OTHER, "sb-x-gateway-1", "sb-x-gateway-2"}
    assert world.informer.last_vanished == {Role.GATEWAY: 2}


def test_a_pod_that_is_gone_is_told_of_as_it_was_last_seen_and_exists_no_more(world):
    raw = world.pod()
    world.follow()
    world.cluster.set_pod_status(NAME, harness_done(), node="node-9")
    world.wait(0.1)
    world.cluster.remove(ObjectKind.POD, NAME)
    world.wait(0.1)
    assert (world.informer.last_seen(NAME).facts.node, world.names()) == ("node-9", [])
    world.informer.note_created(raw)
    assert world.names() == []
    assert world.informer.last_seen(OTHER) is None


def test_what_was_last_seen_is_kept_for_live_launches_alone(world):
    for raw in (raw_pod(HARNESS), raw_pod(VERIFIER), gateway_pod(1)):
        created = world.run(world.cluster.create(ObjectKind.POD, raw))
        world.informer.note_created(created)
        world.informer.note_deleted(created["metadata"]["name"], created["metadata"]["uid"])
    assert world.informer.last_seen("sb-x-gateway-1") is None
    world.informer.forget_last_seen(lambda launch: launch == HARNESS)
    assert world.informer.last_seen(OTHER) is None
    assert world.informer.last_seen(NAME).launch == HARNESS
    world.informer.forget_last_seen(lambda _: False)
    assert world.informer.last_seen(NAME) is None
    assert set(world.informer.vanished) == {NAME, OTHER, "sb-x-gateway-1"}


def test_what_was_last_seen_of_a_batch_is_kept_while_one_of_its_launches_is_live(world):
    member = LaunchKey(5, 1, Role.VERIFIER, 1)
    raw = raw_pod(VERIFIER)
    raw["metadata"]["annotations"]["securebench.dev/members"] = "0-1-1 5-1-1"
    created = world.run(world.cluster.create(ObjectKind.POD, raw))
    world.informer.note_created(created)
    world.informer.note_deleted(OTHER, created["metadata"]["uid"])
    world.informer.forget_last_seen(lambda launch: launch == member)
    assert world.informer.last_seen(OTHER).members == (VERIFIER, member)


# Own writes


def test_the_reply_of_a_create_is_seen_at_once(world):
    world.informer.note_created(world.pod())
    assert world.names() == [NAME]
    assert world.changes == 1


def test_a_reply_that_is_no_pod_of_ours_is_ignored(world):
    world.informer.note_created({"metadata": {"name": "foreign"}})
    assert world.names() == []


def test_a_list_that_began_before_a_create_ended_removes_nothing(world):
    real = world.cluster.list

    async def slow(kind, selector):
        before = await real(kind, selector)
        world.informer.note_created(await world.cluster.create(ObjectKind.POD, raw_pod(HARNESS)))
        return before

    world.cluster.list = slow
    world.run(world.informer.list())
    assert world.names() == [NAME]
    assert not world.informer.vanished


def test_the_next_list_may_remove_it(world):
    world.informer.note_created(world.pod())
    world.cluster.remove(ObjectKind.POD, NAME)
    world.run(world.informer.list())
    assert set(world.informer.vanished) == {NAME}


def test_a_reply_does_not_replace_what_the_watch_knows_already(world):
    reply = world.pod()
    world.follow()
    world.cluster.set_pod_status(NAME, harness_done())
    world.wait(0.1)
    world.informer.note_created(reply)
    assert world.informer.pods[NAME].is_terminal


def test_a_reply_does_not_bring_back_what_has_vanished(world):
    world.follow()
    reply = world.pod()
    world.cluster.remove(ObjectKind.POD, NAME)
    world.wait(0.1)
    world.informer.note_created(reply)
    assert world.names() == []
    assert set(world.informer.vanished) == {NAME}


def test_the_reply_of_a_delete_is_seen_at_once_and_spares_what_came_later(world):
    reply = world.pod()
    world.informer.note_created(reply)
    world.informer.note_deleted(NAME, "another uid")
    assert world.names() == [NAME]
    world.informer.note_deleted(NAME, reply["metadata"]["uid"])
    assert world.names() == []


def test_the_end_of_an_object_spares_a_later_one_of_its_name(world):
    """The reply of the create was faster than the watch."""
    policy = {"metadata": {"name": NAME, "labels": {SELECTOR: "x"}}, "spec": {}}
    present = []

    def note():
        present.append(NAME in informer.objects)

    informer = PolicyInformer(world.cluster, SELECTOR, 60.0, note)

    async def replace():
        follower = asyncio.create_task(informer.follow(await informer.list()))
        informer.note_created(await world.cluster.create(ObjectKind.NETWORK_POLICY, policy))
        await asyncio.sleep(0.1)
        present.clear()
        world.cluster.remove(ObjectKind.NETWORK_POLICY, NAME)
        informer.note_deleted(NAME, informer.objects[NAME].uid)
        made = await world.cluster.create(ObjectKind.NETWORK_POLICY, policy)
        informer.note_created(made)
        await asyncio.sleep(0.1)
        follower.cancel()
        return made["metadata"]["uid"]

    uid = world.run(replace())
    assert informer.objects[NAME].uid == uid
    assert present[0] is False
    assert all(present[1:])


# The watch


def test_the_watch_adds_changes_and_removes(world):
    world.follow()
    world.pod()
    world.wait(0.1)
    assert world.names() == [NAME]
    world.cluster.set_pod_status(NAME, harness_done())
    world.wait(0.1)
    assert world.informer.pods[NAME].is_terminal
    world.cluster.remove(ObjectKind.POD, NAME)
    world.wait(0.1)
    assert world.names() == []
    assert set(world.informer.vanished) == {NAME}
    assert world.changes == 4


def test_bookmarks_move_the_version_only(world):
    world.follow()
    world.pod()
    world.cluster.bookmark(ObjectKind.POD)
    world.wait(0.1)
    world.cluster.end_watches()
    world.wait(0.1)
    assert world.names() == [NAME]
    assert world.cluster.requests["list", ObjectKind.POD] == 1
    assert world.cluster.requests["watch", ObjectKind.POD] == 2


@pytest.mark.parametrize("kind", [PolicyInformer, ServiceInformer])
def test_a_bookmark_is_no_object(world, kind):
    informer = kind(world.cluster, "", 60.0, world.count)

    async def follow():
        async with informer.watching():
            world.changes = 0
            world.cluster.bookmark(informer.kind)
            await asyncio.sleep(0.1)
            return world.changes

    assert world.run(follow()) == 0
    assert dict(informer.objects) == {}
    assert informer.resource_version == str(world.cluster.resource_version)


# A server that answers badly


def watches(world):
    return world.cluster.requests["watch", ObjectKind.POD]


def fail_all(world, verb, error):
    for _ in range(1000):
        world.cluster.fail_next(verb, error)


def test_watches_that_are_closed_at_once_are_asked_for_less_and_less(world):
    world.cluster.watch_waits = False
    world.follow()
    world.wait(5)
    assert 3 <= watches(world) <= 8
    before = watches(world)
    world.wait(16)
    assert 2 <= watches(world) - before <= 5


@pytest.mark.parametrize("answer", [WatchExpired("410"), TransientClusterError("reset")])
def test_watches_that_cannot_go_on_are_listed_again_less_and_less(world, answer):
    fail_all(world, "watch", answer)
    world.follow()
    world.wait(5)
    assert 3 <= lists(world) <= 8
    before = lists(world)
    world.wait(16)
    assert 2 <= lists(world) - before <= 5


def test_lists_that_fail_are_repeated_less_and_less(world):
    world.follow()
    fail_all(world, "list", TransientClusterError("busy"))
    world.cluster.end_watches(TransientClusterError("connection reset"))
    world.wait(5)
    assert 2 <= lists(world) <= 6
    before = lists(world)
    world.wait(16)
    assert 2 <= lists(world) - before <= 4


@pytest.mark.parametrize("verb", ["watch", "list"])
def test_the_server_is_left_alone_for_as_long_as_it_asks(world, verb):
    world.follow()
    world.cluster.fail_next(verb, TransientClusterError("429", retry_after_seconds=30.0))
    world.cluster.end_watches(None if verb == "watch" else TransientClusterError("reset"))
    world.wait(3)
    before = lists(world), watches(world)
    world.wait(27)
    assert (lists(world), watches(world)) == before
    world.wait(5)
    assert lists(world) == before[0] + 1


def test_a_watch_that_expires_after_it_was_well_is_listed_again_at_once(world):
    world.follow()
    world.wait(PAUSE_LIMIT_SECONDS)
    world.cluster.expire_history()
    world.wait(0.01)
    assert (lists(world), watches(world)) == (2, 2)


def test_a_watch_that_breaks_after_it_was_well_is_listed_again_after_a_moment(world):
    """Else the watches of all runs would come back together to a server that just started."""
    world.follow()
    world.wait(PAUSE_LIMIT_SECONDS)
    world.cluster.end_watches(TransientClusterError("connection reset"))
    world.wait(PAUSE_SECONDS / 2 - 0.1)
    assert lists(world) == 1
    world.wait(PAUSE_SECONDS / 2 + 0.2)
    assert lists(world) == 2


@pytest.mark.parametrize("why", ["it gave an event", "it lived"])
def test_the_watch_after_a_good_one_follows_at_once(world, why):
    world.cluster.watch_waits = False
    world.follow()
    world.wait(20)
    world.cluster.watch_waits = True
    world.wait(PAUSE_LIMIT_SECONDS)
    if why == "it gave an event":
        world.pod()
        world.wait(0.1)
    else:
        world.wait(PAUSE_LIMIT_SECONDS)
    before = watches(world)
    world.cluster.end_watches()
    world.wait(0.01)
    assert watches(world) == before + 1


def test_a_lost_event_is_repaired_by_the_next_full_list(world):
    world.follow()
    world.cluster.lose_events(1)
    world.pod()
    world.wait(50)
    assert world.names() == []
    world.wait(20)
    assert world.names() == [NAME]


def test_a_list_that_is_asked_for_repairs_a_lost_event_at_once(world):
    world.follow()
    world.cluster.lose_events(1)
    world.pod()
    began = world.clock.monotonic()
    world.run(call(world.informer.relist))
    world.wait(0.1)
    assert world.names() == [NAME]
    assert world.informer.listed_at >= began
    world.pod(VERIFIER)
    world.wait(0.1)
    assert world.names() == [NAME, OTHER]


def test_a_list_that_is_asked_for_twice_is_made_once(world):
    world.follow()

    async def twice():
        world.informer.relist()
        world.informer.relist()

    before = lists(world)
    world.run(twice())
    world.wait(0.1)
    assert lists(world) == before + 1


def test_a_list_that_is_asked_for_as_its_turn_comes_is_made_once(world):
    """Both timers are due in one round of the loop, the watch's own first."""
    world.follow()
    errors = []

    async def ask_in_time():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        loop.call_at(world.informer.listed_at + RELIST_SECONDS + 5e-7, world.informer.relist)

    world.run(ask_in_time())
    before = lists(world)
    world.wait(RELIST_SECONDS + 1)
    assert errors == []
    assert lists(world) == before + 1


def test_asking_for_a_list_while_one_gets_no_answer_does_nothing(world):
    world.follow()
    listed_at = world.informer.listed_at
    for _ in range(2):
        world.cluster.fail_next("list", TransientClusterError("no answer"))
    world.run(call(world.informer.relist))
    world.wait(0.1)
    world.run(call(world.informer.relist))
    assert world.informer.listed_at == listed_at
    world.wait(10)
    assert world.informer.listed_at > listed_at


def test_watches_that_end_in_time_do_not_put_the_full_list_off(world):
    world.follow()
    world.cluster.lose_events(1)
    world.pod()
    for _ in range(7):
        world.wait(10)
        world.cluster.end_watches()
    assert world.names() == [NAME]


@pytest.mark.parametrize("how", ["expired", "broken"])
def test_a_watch_that_cannot_go_on_starts_with_a_list(world, how):
    world.follow()
    world.cluster.lose_events(1)
    world.pod()
    if how == "expired":
        world.cluster.expire_history()
    else:
        world.cluster.end_watches(TransientClusterError("connection reset"))
    world.wait(PAUSE_SECONDS + 0.1)
    assert world.names() == [NAME]
    world.pod(VERIFIER)
    world.wait(0.1)
    assert world.names() == [NAME, OTHER]


def test_a_list_that_gets_no_answer_is_repeated(world):
    world.follow()
    world.cluster.fail_next("list", TransientClusterError("busy"))
    world.cluster.fail_next("list", TransientClusterError("busy"))
    world.pod()
    world.cluster.expire_history()
    world.wait(PAUSE_SECONDS + 2 * PAUSE_SECONDS + 4 * PAUSE_SECONDS)
    assert world.names() == [NAME]
    assert lists(world) == 4


def test_an_outage_is_over_with_the_first_list_that_is_answered(world):
    world.follow()
    for _ in range(2):
        world.cluster.end_watches(TransientClusterError("connection reset"))
        world.wait(PAUSE_SECONDS + 0.1)
    assert world.informer.answered_at == -math.inf, "a watch that breaks is no outage"
    world.cluster.fail_next("list", TransientClusterError("connection refused"))
    world.cluster.end_watches(TransientClusterError("connection refused"))
    world.wait(10.0)
    assert world.informer.answered_at == world.informer.listed_at
    answered_at = world.informer.answered_at
    world.wait(RELIST_SECONDS + 1)
    assert answered_at == world.informer.answered_at < world.informer.listed_at


def test_a_refusal_ends_the_follower_for_all_to_see(world):
    world.cluster.fail_next("watch", PermanentClusterError("forbidden", status=403))
    world.follow()
    assert world.follower.done()
    with pytest.raises(PermanentClusterError, match="forbidden"):
        world.follower.result()


def test_names_are_kept_apart_by_launch(world):
    second = LaunchKey(0, 1, Role.HARNESS, 2)
    world.pod()
    world.run(world.informer.list())
    world.cluster.remove(ObjectKind.POD, NAME)
    world.pod(second)
    world.run(world.informer.list())
    assert world.names() == ["sb-3f2a9c1e5b7d-0-1h2"]
    assert set(world.informer.vanished) == {NAME}
