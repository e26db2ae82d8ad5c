"""The Events of a run: what is posted, counted, bounded and never waited for."""

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.context import RunObject
from securebench.controller.events import MAX_EVENTS, MAX_NOTE, EventRecorder
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.decide.notices import Notice, losses
from support.build import FakeClock, lost_launch
from support.fake_cluster import FakeCluster

RUN = RunObject("nightly", "11111111-0000", "bench", 1, {})


def notice(key="", note="0/1 nodes", reason="Unschedulable", kind=""):
    return Notice("Wait", reason, note, is_warning=True, key=key, kind=kind)


class Told:
    """A recorder and what the cluster has of it."""

    def __init__(self):
        self.clock = FakeClock()
        self.cluster = FakeCluster(namespace="bench", clock=self.clock)
        self.recorder = self.process()

    def process(self):
        return EventRecorder(self.cluster, RUN, self.clock, "process")

    def events(self):
        return list(self.cluster.objects(ObjectKind.EVENT).values())

    def counts(self):
        return [event.get("series", {}).get("count", 1) for event in self.events()]


@pytest.fixture
def told():
    return Told()


async def test_an_event_is_about_the_run(told):
    await told.recorder.post([notice()])
    (event,) = told.events()
    assert event["regarding"]["uid"] == RUN.uid
    assert event["regarding"]["kind"] == "BenchmarkRun"
    assert (event["type"], event["reason"], event["note"]) == (
        "Warning",
        "Unschedulable",
        "0/1 nodes",
    )
    assert event["eventTime"] == "2026-01-01T00:00:00.000000Z"
    assert event["metadata"]["name"].startswith("nightly.")


async def test_what_occurs_again_is_counted_at_most_once_a_minute(told):
    await told.recorder.post([notice()] * 5)
    assert told.counts() == [1]
    told.clock.advance(61)
    await told.recorder.post([notice(), notice()])
    assert told.counts() == [6]
    await told.recorder.flush()
    assert told.counts() == [7]
    writes = len(told.cluster.calls)
    await told.recorder.flush()
    assert len(told.cluster.calls) == writes


async def test_another_process_goes_on_counting(told):
    await told.recorder.post([notice()])
    for count in (2, 3):
        await told.process().post([notice()])
        assert told.counts() == [count]


async def test_another_key_is_another_event(told):
    await told.recorder.post([notice("a"), notice("b"), notice("a", reason="Queued")])
    assert len(told.events()) == 3


async def test_events_are_bounded(told):
    await told.recorder.post(notice(str(number)) for number in range(3 * MAX_EVENTS))
    assert len(told.events()) == MAX_EVENTS


PULLS = [notice(f"pulling {number}", reason="Waiting", kind="pulling") for number in range(500)]
LATE = {
    "a wait of another reason": notice("pods: 10", reason="QuotaExceeded"),
    "a wait of another kind": notice("cannot pull x:1", reason="Waiting", kind="cannot pull"),
    "a launch that is lost": next(losses([lost_launch()])),
    "the end": Notice("End", "Incomplete", "no verdict", is_warning=True, key=""),
}


@pytest.mark.parametrize("name", LATE)
async def test_what_recurs_leaves_room_for_the_first_of_another_kind(told, name):
    await told.recorder.post([*PULLS, LATE[name], *PULLS])
    assert len(told.events()) == MAX_EVENTS + 1
    assert told.events()[-1]["reason"] == LATE[name].reason
    await told.recorder.post([LATE[name]._replace(key=f"{number}") for number in range(500)])
    assert len(told.events()) == MAX_EVENTS + 1


async def test_a_loss_for_another_cause_has_room_beside_a_known_one(told):
    lost = [lost_launch(reason=reason) for reason in ("pod_lost", "image_pull_failed")]
    await told.recorder.post([*PULLS, *losses(lost)])
    assert [each["note"].partition(":")[0] for each in told.events()[MAX_EVENTS:]] == [
        "pod_lost",
        "image_pull_failed",
    ]


async def test_a_long_note_is_cut_to_what_the_server_takes(told):
    await told.recorder.post([notice(note="ü" * 2000)])
    (event,) = told.events()
    assert len(event["note"].encode()) <= MAX_NOTE
    assert event["note"].endswith("ü…")


REFUSALS = {
    "create": PermanentClusterError("events is forbidden", status=403),
    "patch": TransientClusterError("no answer"),
}


@pytest.mark.parametrize("verb", REFUSALS)
async def test_a_refusal_is_no_trouble_of_the_run(verb, told, caplog):
    told.cluster.fail_next(verb, REFUSALS[verb])
    await told.recorder.post([notice()])
    told.clock.advance(61)
    await told.recorder.post([notice()])
    assert str(REFUSALS[verb]) in caplog.text


def events(world):
    return list(world.cluster.objects(ObjectKind.EVENT).values())


def reasons(world):
    return [event["reason"] for event in events(world)]


def test_a_run_tells_its_start_its_isolation_and_its_end(world):
    uid = world.apply()
    world.work(uid)
    assert sorted(reasons(world)) == ["Completed", "IsolationDeclared", "Started", "Waiting"]
    assert [each["reason"] for each in events(world) if "series" in each] in ([], ["Waiting"])


def test_a_restart_tells_nothing_twice(world):
    uid = world.apply()
    before = world.cluster.objects(ObjectKind.EVENT)
    for _ in range(3):
        world.restart()
        world.observe(None)
    assert world.cluster.objects(ObjectKind.EVENT) == before
    world.work(uid)
    world.restart()
    world.observe(None)
    counts = {each["reason"]: each.get("series") for each in events(world)}
    assert counts["Started"] is counts["Completed"] is counts["IsolationDeclared"] is None


def test_lost_launches_are_one_event_for_their_cause(world):
    world.apply(parallelism=2, infrastructureRetries=1)
    for name in world.pods():
        world.cluster.remove(ObjectKind.POD, name)
    world.wait(100)
    (first,) = (each for each in events(world) if each["reason"] == "LaunchLost")
    for name in world.pods():
        world.cluster.remove(ObjectKind.POD, name)
    world.wait(100)
    (lost,) = (each for each in events(world) if each["reason"] == "LaunchLost")
    assert lost["type"] == "Warning"
    assert lost["note"] == first["note"]
    assert lost["series"]["count"] == 4


def test_a_spec_that_is_refused_is_told(world):
    world.apply(nonsense=1)
    assert reasons(world) == ["InvalidSpec"]


def test_a_run_without_the_right_to_post_goes_on(world):
    error = PermanentClusterError("events is forbidden", status=403)
    for _ in range(10):
        world.cluster.fail_next("create", error, kind=ObjectKind.EVENT)
    uid = world.apply()
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
